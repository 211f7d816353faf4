"""Deciding about calls: state and what the shell saw go in; events to append, or one action, come out.

Rule: synchronous, total, and the only place where a call's fate is decided. The shell performs the
action, appends the events, and asks again; it holds no `if` about the business.
Does not know: tools, tasks, clocks, logs. What of them matters enters as `Situation`.
Must change together: core/settle.py (may a call be sent again), core/state.py (what events mean).

The loop of one call, until `Finish`:

    next_action ── RecordIntent ─▶ prepare, append the intent, send, then `after_send` ─▶ events
               ├── Append ───────▶ append the events, ask again
               ├── Look ─────────▶ probe, hand the verdict back in the next Situation
               ├── Wait ─────────▶ sleep, or until the call changes
               ├── Park ─────────▶ wait for a human
               └── Finish ───────▶ the outcome is in the state
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from evsrc.core.calls import Attempt, CallState
from evsrc.core.events import (
    CallNotSent,
    CallRejected,
    ErrorData,
    Event,
    IntentReconciled,
    OutcomeUnknown,
)
from evsrc.core.people import question_about
from evsrc.core.reports import RETRY_PAUSE_S_MAX, budget_left, doubled
from evsrc.core.settle import LATE_S_UNDECLARED, Allowed, Look, horizon_s, may_resend
from evsrc.core.verdicts import Absent, Capabilities, Conflict, Effect, Happened, InProgress
from evsrc.errors import DivergenceError, KeyReuseError

LOOKS_MAX = 8
"""Looks at the tool before a human is asked, beyond the horizon: doubling pauses make it half a minute."""

LOOK_PAUSE_S = 0.1
"""First pause between two looks; doubles up to LOOK_PAUSE_S_MAX."""

LOOK_PAUSE_S_MAX = 10.0
"""Longest pause between two looks: a tool that is down is not to be hammered, nor forgotten."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell knows and the log does not. Times of waiting are on the owner's monotonic clock."""

    now_ns: int
    in_flight: bool = False
    """Is an attempt's task or thread alive in this process?"""
    waited_s: float = 0.0
    """Seconds since the latest moment a request can have left, as this owner counts them."""
    looks: int = 0
    look: Look | None = None
    """The newest look, or None before the first one."""
    asked_digest: str = ""
    """Digest of the arguments asked for now; empty where only the log's own are known."""
    target_busy: bool = False
    """Is an earlier intent on the same target unsettled?"""
    not_after_ns: int | None = None
    stopping: bool = False
    """The run's code does not wait for it now: settle what is out, send nothing new."""
    given_up: bool = False
    """Its caller left for good: nobody will ever ask for a further attempt."""


class RecordIntent(msgspec.Struct, frozen=True):
    """Prepare, record an intent with this number, send. `rule` says why that is allowed."""

    attempt: int
    rule: str = ""
    stale: bool = False
    """The call is too old: record the intent as not sent instead of sending it."""
    same_prior: bool = False
    """Send with what `prepare` returned for the first attempt, instead of preparing anew: the fence is
    the state before anything was sent, so that a state that somebody undid since is not set again."""


class Append(msgspec.Struct, frozen=True):
    """Append these events as one record, essential, then ask again."""

    events: tuple[Event, ...]


class LookAtTool(msgspec.Struct, frozen=True):
    """Probe the given attempt after a pause."""

    attempt: int
    pause_s: float = 0.0


class Wait(msgspec.Struct, frozen=True):
    """Ask again after `seconds` (None: when the call changes)."""

    seconds: float | None
    why: str


class Park(msgspec.Struct, frozen=True):
    """A human is asked; nothing to do until the answer."""

    question: str


class Finish(msgspec.Struct, frozen=True):
    """The call's outcome is in the state, or the call was given up unsent."""


Action: TypeAlias = RecordIntent | Append | LookAtTool | Wait | Park | Finish


# ---- may this call be asked for? ---------------------------------------------------------------


def check_identity(
    call: CallState | None, asked_digest: str, own_key: str, differing: Sequence[str]
) -> bool:
    """True if the call is recorded and asked for again, False if it is new; refuses anything else.

    Raises:
        KeyReuseError: a caller's own key stands for other arguments.
        DivergenceError: the same identity was recorded with other arguments and may have acted.
    """
    if call is None:
        return False
    if call.intent.asked_digest == asked_digest:
        return True
    if call.without_effect and call.attempts:
        return False
    fields = ", ".join(differing) or "arguments"
    where = f"was used for tool {call.intent.tool} (call {call.id})"
    if own_key:
        check_own_key(own_key, call.intent.asked_digest, asked_digest, where, differing)
    raise DivergenceError(
        f"call {call.id} of tool {call.intent.tool} in scope {'/'.join(call.intent.scope) or '(run)'}"
        f" was recorded with other arguments: {fields} differ; nothing was sent. Deploy the code that "
        "recorded it, or give the new call a label of its own."
    )


def check_own_key(
    own_key: str, used_digest: str, asked_digest: str, where: str, differing: Sequence[str] = ()
) -> None:
    """A caller's own key stands for one set of arguments, in flight and in every run of the log.

    Raises:
        KeyReuseError: it is used for others now.
    """
    if used_digest != asked_digest:
        fields = ", ".join(differing) or "arguments"
        raise KeyReuseError(
            f"key {own_key!r} {where} with other arguments: {fields} differ; nothing was sent. Use a "
            "key per action."
        )


# ---- the next step of one call -----------------------------------------------------------------


def next_action(call: CallState | None, caps: Capabilities, at: Situation) -> Action:
    """What is owed for this call now. None: it was never recorded."""
    if call is None:
        return _first(caps, at)
    if at.asked_digest not in ("", call.intent.asked_digest) and call.without_effect:
        # Nothing happened under the recorded arguments: these are new, with a budget of their own.
        return _further(call, at, "nothing happened under the earlier arguments")
    if call.outcome is not None and not call.unknown:
        return Finish()
    if call.question:
        return Park(call.question)
    if at.in_flight:
        return Wait(None, "an attempt is still in flight")
    crashed = [a for a in call.attempts if a.status == "open"]
    if crashed:
        return Append(
            tuple(OutcomeUnknown(call.id, a.number, "crash", at_ns=at.now_ns) for a in crashed)
        )
    if call.open_attempts:
        return _unknown(call, caps, at)
    return _again(call, caps, at)


def _first(caps: Capabilities, at: Situation) -> Action:
    if at.stopping:
        return Finish()
    if at.target_busy:
        return Wait(None, "an earlier act on the same target is unsettled")
    return RecordIntent(1, "first attempt", _stale(at))


def _stale(at: Situation) -> bool:
    return at.not_after_ns is not None and at.now_ns > at.not_after_ns


def _again(call: CallState, caps: Capabilities, at: Situation) -> Action:
    """Every attempt is closed without effect: send again, unless the budget or the run is at an end."""
    last = call.attempts[-1]
    if at.stopping:
        return Finish()
    doubt = None if call.resend_by else _after_a_persons_absent(call, caps, at)
    if doubt is not None:
        return doubt
    refused = next((a for a in call.attempts if a.closed_by == "rejected"), None)
    if refused is not None and call.rejected is not None and not call.resend_by:
        return Append((CallRejected(call.id, refused.number, call.rejected),))
    if not budget_left(call, caps) and not call.resend_by:
        error = ErrorData("NotSent", f"not done after {len(call.attempts)} attempts")
        return Append((CallNotSent(call.id, last.number, error, final=True),))
    pause_s = _pause_left(last, at)
    if pause_s > 0:
        return Wait(min(pause_s, RETRY_PAUSE_S_MAX), "before the next attempt")
    return _further(call, at, "every earlier attempt is closed without effect")


def _pause_left(last: Attempt, at: Situation) -> float:
    """What is left of the recorded pause: by the wall clock, and never more than was owed in all,

    which this owner counts on its own clock, so that a clock set back postpones nothing for hours.
    """
    if last.retry_at_ns is None:
        return 0.0
    owed_s = (last.retry_at_ns - last.at_ns) / 1e9
    return min((last.retry_at_ns - at.now_ns) / 1e9, owed_s - at.waited_s)


def _after_a_persons_absent(call: CallState, caps: Capabilities, at: Situation) -> Action | None:
    """A person looked completely; a request still under way is not excluded by any look.

    So the resend waits until nothing can land any more, and a tool that can look is looked at then.
    """
    last, told = call.attempts[-1], [a for a in call.attempts if a.closed_by == "human:absent"]
    if not told or told[-1].closed_order < last.order:
        return None  # nobody said so, or the wait was kept before the attempt that followed
    wait_s = LATE_S_UNDECLARED if caps.late_s is None else caps.late_s
    if caps.can_probe:
        wait_s += caps.lag_s or 0.0
    if at.waited_s < wait_s:
        return Wait(wait_s - at.waited_s, "a request that is still under way may land")
    if not caps.can_probe:
        return None
    if at.look is None or at.look.waited_s < wait_s:
        return LookAtTool(told[-1].number)
    verdict = at.look.verdict
    if isinstance(verdict, Happened):
        ours = verdict.whose != "theirs"
        return _happened(call, told[-1], verdict, at) if ours else None
    clear = isinstance(verdict, Absent) and verdict.complete
    if clear or at.looks >= LOOKS_MAX:
        return None  # absent for both, or the tool cannot tell and the person's word stands
    return LookAtTool(told[-1].number, _look_pause_s(at))


def _further(call: CallState, at: Situation, rule: str) -> Action:
    if at.stopping:
        return Finish()
    if at.target_busy:
        return Wait(None, "an earlier act on the same target is unsettled")
    return RecordIntent(call.attempts[-1].number + 1, rule, _stale(at))


def _unknown(call: CallState, caps: Capabilities, at: Situation) -> Action:
    """An attempt is out and unknown: look, wait, send again, or ask, by what the tool declares."""
    attempt = call.open_attempts[-1]
    look = at.look
    if look is not None and isinstance(look.verdict, Happened):
        return _found(call, caps, look.verdict, at)
    if at.looks == 0 and caps.can_probe and not call.resend_by:
        return LookAtTool(attempt.number)
    if call.outcome is not None:
        return Finish()  # skipped: looked at once, so that the log may learn what happened
    if look is not None and isinstance(look.verdict, Conflict):
        return _ask(call, "conflict", f"the tool shows {look.verdict.found}", at)
    if look is not None and isinstance(look.verdict, InProgress):
        accepted = (
            attempt.status == "accepted"
        )  # then "in progress" is an answer, for hours if need be
        pause_s = max(look.verdict.retry_after_s, _look_pause_s(at) if accepted else 0.0)
        if accepted or at.looks < LOOKS_MAX:
            return LookAtTool(attempt.number, pause_s)
    return _by_permission(call, caps, at, may_resend(call, caps, look, at.now_ns))


def _by_permission(call: CallState, caps: Capabilities, at: Situation, allowed: Allowed) -> Action:
    attempt = call.open_attempts[-1]
    if not call.resend_by and any(a.status == "accepted" for a in call.open_attempts):
        return _accepted(call, caps, at)
    if allowed.permission == "proven-absent":
        return Append(tuple(_absent(call, a, allowed, at) for a in call.open_attempts))
    if allowed.permission == "resend":
        return _resend(call, caps, at, allowed)
    if allowed.permission == "look-again" and _patience(caps, at):
        pause_s = _look_pause_s(at)
        return LookAtTool(attempt.number, min(pause_s, allowed.wait_s) or pause_s)
    missing = f"; undeclared: {', '.join(allowed.missing)}" if allowed.missing else ""
    return _by_policy(call, caps, at, f"{allowed.rule}{missing}")


def _accepted(call: CallState, caps: Capabilities, at: Situation) -> Action:
    """The tool has it and does it when it likes: never sent again meanwhile, whatever a look misses."""
    if caps.can_probe and _patience(caps, at):
        return LookAtTool(call.open_attempts[-1].number, _look_pause_s(at))
    if caps.on_unknown == "skip":
        return _by_policy(call, caps, at, "accepted, and not reported as done")
    return _ask(call, "unknown", "the tool accepted it and does not say that it is done", at)


def _look_pause_s(at: Situation) -> float:
    return doubled(LOOK_PAUSE_S, at.looks, LOOK_PAUSE_S_MAX)


def _patience(caps: Capabilities, at: Situation) -> bool:
    """Is a further look owed? Always until one was begun beyond the horizon."""
    horizon = horizon_s(caps)
    if horizon is not None and (at.look is None or at.look.waited_s < horizon):
        return True
    return at.looks < LOOKS_MAX


def _resend(call: CallState, caps: Capabilities, at: Situation, allowed: Allowed) -> Action:
    if at.stopping:
        return _unsent(call, at, allowed.rule)
    if _stale(at):
        return _ask(call, "unknown", "it is older than its not_after, so it is not sent again", at)
    if not budget_left(call, caps) and not call.resend_by:
        return _by_policy(call, caps, at, f"all {caps.attempts} attempts are used")
    number = call.attempts[-1].number + 1
    return RecordIntent(number, allowed.rule, same_prior=caps.effect is Effect.STATE)


def _unsent(call: CallState, at: Situation, why: str) -> Action:
    """It may be sent again, but not now: its run will ask for it, or nobody ever will."""
    if at.given_up:
        return _ask(call, "unknown", f"its caller gave up, so it is not sent again ({why})", at)
    return Finish()


def _by_policy(call: CallState, caps: Capabilities, at: Situation, why: str) -> Action:
    attempt = call.open_attempts[-1]
    if caps.on_unknown == "skip":
        return Append(
            (
                IntentReconciled(
                    call.id, attempt.number, "skipped", "policy", why=why, at_ns=at.now_ns
                ),
            )
        )
    if caps.on_unknown == "resend" and budget_left(call, caps) and not _stale(at):
        if at.stopping:
            return _unsent(call, at, why)
        return RecordIntent(call.attempts[-1].number + 1, f"policy: resend ({why})")
    return _ask(call, "unknown", why, at)


def _ask(call: CallState, kind: Literal["unknown", "conflict"], why: str, at: Situation) -> Action:
    evidence = "" if at.look is None else repr(at.look.verdict)
    return Append((question_about(call, kind, why, at.now_ns, evidence),))


def _found(call: CallState, caps: Capabilities, verdict: Happened[object], at: Situation) -> Action:
    if verdict.whose == "theirs" and caps.effect is not Effect.STATE:
        if call.outcome is not None:
            return Finish()  # skipped: somebody decided already to go on without knowing
        return _ask(call, "conflict", "somebody else's object answers to our name", at)
    return _happened(call, call.open_attempts[0], verdict, at)


def _happened(
    call: CallState, attempt: Attempt, verdict: Happened[object], at: Situation
) -> Action:
    value = verdict.value
    if value is not None and not isinstance(value, bytes):
        raise TypeError("the shell encodes the value of a verdict before it hands it in")
    return Append(
        (
            IntentReconciled(
                call.id,
                attempt.number,
                "happened",
                "probe",
                value=value,
                whose=verdict.whose,
                gone=verdict.gone,
                evidence=verdict.evidence,
                why=verdict.evidence if value is None else "",
                at_ns=at.now_ns,
            ),
        )
    )


def _absent(call: CallState, attempt: Attempt, allowed: Allowed, at: Situation) -> Event:
    return IntentReconciled(
        call.id, attempt.number, "absent", "probe", evidence=allowed.rule, at_ns=at.now_ns
    )


def explain(call: CallState, caps: Capabilities, look: Look | None, now_ns: int) -> str:
    """Which rule decides about this call now, and which declaration is missing."""
    if call.question:
        allowed = may_resend(call, caps, look, now_ns)
        missing = f" Undeclared: {', '.join(allowed.missing)}." if allowed.missing else ""
        return f"A human is asked (question {call.question}): {allowed.rule}.{missing}"
    if isinstance(call.outcome, msgspec.Struct):
        return f"Settled: {type(call.outcome).__name__}."
    if call.open_attempts:
        allowed = may_resend(call, caps, look, now_ns)
        missing = f" Undeclared: {', '.join(allowed.missing)}." if allowed.missing else ""
        return f"Outcome unknown; {allowed.rule}.{missing}"
    return "Every attempt is closed without effect; the next one is owed."
