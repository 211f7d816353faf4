"""Calls: what the events of one logical call mean, attempt by attempt.

Rule: every outcome names its attempt, and the first settlement of an attempt in log order stands;
whatever comes later is kept as evidence.
Does not know: runs and nodes (core/state.py folds them), or what follows from a call's state
(core/decide.py).
Must change together: core/events.py.

The life of one attempt:

    open ── ResultRecorded ──────────────── done
     │ ├─── CallRejected, CallNotSent ───── closed (no effect)
     │ ├─── CallAccepted ── accepted ─┐
     │ └─── OutcomeUnknown ─ unknown ─┴─ IntentReconciled: happened ─ done, absent ─ closed

A call has an outcome once one attempt is done, or all are closed and the tool's refusal, or the used-up
budget, was the last word, or somebody skipped it.
"""

from typing import Literal, TypeAlias

import msgspec

from evsrc.core.events import (
    CallAccepted,
    CallNotSent,
    CallRejected,
    ErrorData,
    EvidenceAdded,
    IntentReconciled,
    IntentRecorded,
    OutcomeUnknown,
    ResultRecorded,
)

AttemptStatus: TypeAlias = Literal["open", "accepted", "unknown", "done", "closed"]


class Done(msgspec.Struct, frozen=True):
    """The effect is there. Without `value` its result could not be recorded, `why` says so."""

    value: bytes | None
    why: str = ""
    whose: Literal["ours", "theirs", "unknown"] = "ours"


class Refused(msgspec.Struct, frozen=True):
    """The tool refused every attempt that was not otherwise closed: no effect."""

    error: ErrorData


class NeverSent(msgspec.Struct, frozen=True):
    """Every attempt is closed without effect and no further one will be made."""

    error: ErrorData


class Skipped(msgspec.Struct, frozen=True):
    """Somebody decided to go on without knowing. The attempts stay unknown."""

    by: str
    why: str


CallOutcome: TypeAlias = Done | Refused | NeverSent | Skipped


class Attempt(msgspec.Struct):
    """One intent of a call, and how far it is settled."""

    number: int
    sent: bytes
    prepared: bytes
    at_ns: int
    send_by_ns: int | None
    order: int = 0
    """Place of its intent among the events of the run."""
    status: AttemptStatus = "open"
    closed_by: str = ""
    """rejected, not-sent, absent; with "human:" in front where a person said so."""
    closed_order: int = 0
    unknown_at_ns: int = 0
    cause: str = ""
    retry_at_ns: int | None = None


class CallState(msgspec.Struct):
    """One logical call. `order` counts events of the run: the place of the first intent."""

    id: str
    intent: IntentRecorded
    order: int
    attempts: list[Attempt] = []
    superseded: int = 0
    """How many attempts were made with earlier arguments, all closed: they count for no budget."""
    outcome: CallOutcome | None = None
    outcome_order: int = 0
    question: str = ""
    resend_by: str = ""
    """Who said by name that it may be sent again without waiting for late arrivals."""
    rejected: ErrorData | None = None
    evidence: list[str] = []
    duplicate: bool = False

    @property
    def open_attempts(self) -> list[Attempt]:
        """Attempts whose effect is not excluded and not confirmed."""
        return [a for a in self.attempts if a.status in ("open", "accepted", "unknown")]

    @property
    def without_effect(self) -> bool:
        """True if every attempt is closed: such a call pins nothing and may take new arguments.

        False once an effect of a closed attempt was found after all.
        """
        return not self.duplicate and all(a.status == "closed" for a in self.attempts)

    @property
    def settled(self) -> bool:
        """True once the world is known, whatever the caller was told."""
        return self.outcome is not None and not isinstance(self.outcome, Skipped)

    @property
    def unknown(self) -> bool:
        """True while an attempt is out of which nobody knows what became."""
        return not isinstance(self.outcome, Done) and bool(self.open_attempts)

    def attempt(self, number: int) -> Attempt | None:
        """The attempt of that number, if recorded."""
        return next((a for a in self.attempts if a.number == number), None)


def pins(call: CallState) -> bool:
    """True if what this call rests on must not be computed again: it acted, or may have."""
    return not call.without_effect


def record_intent(calls: dict[str, CallState], event: IntentRecorded, order: int) -> None:
    """One more attempt; `order` is the event's place in its run."""
    call = calls.get(event.call)
    if call is None:
        call = calls[event.call] = CallState(event.call, event, order)
    elif call.without_effect and call.intent.asked_digest != event.asked_digest:
        # Nothing happened under the old arguments: the identity is free for new ones.
        call.intent, call.order, call.outcome, call.rejected = event, order, None, None
        call.superseded = len(call.attempts)
    call.resend_by = ""  # said once, used once
    call.attempts.append(
        Attempt(
            event.attempt,
            event.sent,
            event.prepared,
            event.at_ns,
            event.send_by_ns,
            order=order,
        )
    )


AttemptEvent: TypeAlias = (
    CallAccepted
    | ResultRecorded
    | CallRejected
    | CallNotSent
    | OutcomeUnknown
    | IntentReconciled
    | EvidenceAdded
)


def settle_attempt(calls: dict[str, CallState], event: AttemptEvent, order: int) -> None:
    """What an event says of one attempt; `order` is the event's place in its run."""
    call = calls.get(event.call)
    attempt = None if call is None else call.attempt(event.attempt)
    if call is None or attempt is None:
        return  # an event of an intent that a gap swallowed: the sweep, not the fold, reports it
    match event:
        case EvidenceAdded():
            call.evidence.append(f"{event.source}: {event.detail}")
            call.duplicate |= event.duplicate
        case CallNotSent():
            _not_sent(order, call, attempt, event)
        case _ if attempt.status in ("done", "closed"):
            _late(order, call, attempt, event)
        case CallAccepted():
            attempt.status = "accepted"
        case OutcomeUnknown():
            attempt.status, attempt.cause = "unknown", event.cause
            attempt.unknown_at_ns = event.at_ns
        case ResultRecorded():
            attempt.status = "done"
            _end(order, call, Done(event.value, event.why))
        case CallRejected():
            call.rejected = event.error
            _close(order, call, attempt, "rejected")
        case IntentReconciled():
            _reconciled(order, call, attempt, event)


def _not_sent(order: int, call: CallState, attempt: Attempt, event: CallNotSent) -> None:
    if attempt.status not in ("done", "closed"):
        attempt.retry_at_ns = event.retry_at_ns
        _close(order, call, attempt, "not-sent")
    elif not event.final:
        _late(order, call, attempt, event)
    if event.final and call.outcome is None and call.without_effect:
        _end(order, call, NeverSent(event.error))


def _late(order: int, call: CallState, attempt: Attempt, event: AttemptEvent) -> None:
    """The first settlement of the attempt stands; this one is kept. Its effect ends the call, though:

    to send again what is known to have happened would be our own doing.
    """
    call.evidence.append(f"late: {type(event).__name__} of attempt {event.attempt}")
    if attempt.status != "closed":
        return
    if attempt.closed_by == "rejected" and isinstance(event, CallRejected) and call.without_effect:
        _end(order, call, Refused(event.error))
    if isinstance(event, ResultRecorded):
        call.duplicate = True
        _end(order, call, Done(event.value, event.why))
    elif isinstance(event, IntentReconciled) and event.verdict == "happened":
        call.duplicate = True
        _end(order, call, Done(event.value, event.why, event.whose))


def _reconciled(order: int, call: CallState, attempt: Attempt, event: IntentReconciled) -> None:
    if event.verdict == "happened":
        attempt.status = "done"
        _end(order, call, Done(event.value, event.why, event.whose))
    elif event.verdict == "absent":
        by = "human:absent" if event.by.startswith("human:") else "absent"
        _close(order, call, attempt, by)
    else:
        _end(order, call, Skipped(event.by, event.why))


def _close(order: int, call: CallState, attempt: Attempt, by: str) -> None:
    attempt.status, attempt.closed_by, attempt.closed_order = "closed", by, order
    if by == "human:absent":
        return  # what is under way may land still: decide ends the call once it cannot
    if call.without_effect and call.rejected is not None:
        _end(order, call, Refused(call.rejected))


def _end(order: int, call: CallState, outcome: CallOutcome) -> None:
    # A skipped call may still learn what happened; the caller's answer stays what it was.
    if call.outcome is None:
        call.outcome, call.outcome_order = outcome, order
    elif isinstance(call.outcome, Skipped):
        call.evidence.append(f"after the skip: {type(outcome).__name__}")
