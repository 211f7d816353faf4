"""RunState: what the events of one run mean. `evolve` is one step, `fold` is all of them.

Rule: state changes here and nowhere else. `evolve` depends on its two arguments only; it owns the state
it is given and returns it changed in place, instead of a copy: a run of 10,000 events would otherwise
copy 10,000 growing tables. `fold` always starts from a fresh state.
Does not know: who asks for what next (core/decide.py, core/nodes.py), or where events come from.
Must change together: core/events.py, which holds the closed union matched here.

The life of one attempt, as `evolve` keeps it:

    open ── ResultRecorded ──────────────── done
     │ ├─── CallRejected, CallNotSent ───── closed (no effect)
     │ ├─── CallAccepted ── accepted ─┐
     │ └─── OutcomeUnknown ─ unknown ─┴─ IntentReconciled: happened ─ done, absent ─ closed

The first settlement of an attempt in log order stands; whatever comes later is kept as evidence.
A call has an outcome once one attempt is done, or all are closed and the tool's refusal, or the used-up
budget, was the last word, or somebody skipped it.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias, assert_never

import msgspec

from evsrc.core import keys
from evsrc.core.events import (
    CallAccepted,
    CallNotSent,
    CallRejected,
    CancelRequested,
    ErrorData,
    Event,
    EvidenceAdded,
    GapFound,
    Held,
    IntentReconciled,
    IntentRecorded,
    LogRestored,
    NodeFailed,
    NodeOutput,
    NodeStarted,
    OutcomeUnknown,
    QuestionAnswered,
    QuestionAsked,
    Released,
    ResultRecorded,
    RunCancelled,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunForked,
    RunPruned,
    RunReopened,
    RunStarted,
    Scope,
    SignalReceived,
    StepRecorded,
    SweepRecorded,
    WaitAbandoned,
    WaitOpened,
    WaitResolved,
)

AttemptStatus: TypeAlias = Literal["open", "accepted", "unknown", "done", "closed"]
RunStatus: TypeAlias = Literal["new", "running", "completed", "failed", "cancelled"]
NodeId: TypeAlias = tuple[str, str]
"""(node, item key); the item key is empty where a node runs once."""


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


class ReadState(msgspec.Struct):
    """One recorded read: a value, an error, or that its caller gave up."""

    id: str
    event: StepRecorded
    order: int


class GaveUp(msgspec.Struct, frozen=True):
    """A caller stopped waiting for a call; `order` is the place of that in the run."""

    event: WaitAbandoned
    order: int


class NodeState(msgspec.Struct):
    """One node, or one item of a fan-out: what last ran, and its last output."""

    started: NodeStarted | None = None
    started_order: int = 0
    failed: NodeFailed | None = None
    output: NodeOutput | None = None
    output_order: int = 0
    runs: int = 0

    @property
    def unfinished(self) -> bool:
        """Started, and neither failed nor done since."""
        begun = self.started is not None and self.output_order < self.started_order
        return begun and self.failed is None


class QuestionState(msgspec.Struct):
    """A question to a human, and the answer that fits, if any."""

    asked: QuestionAsked
    answered: QuestionAnswered | None = None
    misfits: list[QuestionAnswered] = []


class RunState(msgspec.Struct):
    """Everything known about one run. `events` is how many were folded."""

    run_id: str
    events: int = 0
    status: RunStatus = "new"
    started: RunStarted | None = None
    output: bytes = b""
    error: ErrorData | None = None
    cancel: CancelRequested | None = None
    calls: dict[str, CallState] = {}
    reads: dict[str, ReadState] = {}
    nodes: dict[NodeId, NodeState] = {}
    questions: dict[str, QuestionState] = {}
    kept: dict[str, str] = {}
    """Subject of an answered "keep" -> the digest it was said of."""
    gave_up: dict[str, GaveUp] = {}
    """Call id -> that its caller stopped waiting, also before any intent."""
    messages: set[str] = set()
    orphans: set[str] = set()

    @property
    def ended(self) -> bool:
        """True after a terminal event. Calls may still be open."""
        return self.status in ("completed", "failed", "cancelled")

    @property
    def open_questions(self) -> list[QuestionAsked]:
        """Questions without a fitting answer, oldest first.

        A question about a call that was settled by other means meanwhile (a late answer) is moot.
        """
        return [
            q.asked
            for q in self.questions.values()
            if q.answered is None and not self._moot(q.asked)
        ]

    def _moot(self, question: QuestionAsked) -> bool:
        call = self.calls.get(question.subject)
        return call is not None and not call.unknown

    @property
    def unsettled(self) -> list[CallState]:
        """Calls of which an attempt is out and unknown, oldest first."""
        return [c for c in self.calls.values() if c.unknown]


def node_scope(node: str, item: str = "") -> Scope:
    """The scope in which a node's calls and reads stand."""
    return (node, f"item:{item}") if item else (node,)


def fold(run_id: str, events: Iterable[Event]) -> RunState:
    """The state after `events`, from nothing."""
    state = RunState(run_id)
    for event in events:
        state = evolve(state, event)
    return state


def evolve(state: RunState, event: Event) -> RunState:
    """The state after one more event. Owns and returns `state`."""
    state.events += 1
    match event:
        case (
            RunStarted()
            | RunCompleted()
            | RunFailed()
            | CancelRequested()
            | RunCancelled()
            | RunReopened()
        ):
            _run(state, event)
        case NodeStarted() | NodeOutput() | NodeFailed():
            _node(state, event)
        case IntentRecorded():
            _intent(state, event)
        case (
            CallAccepted()
            | ResultRecorded()
            | CallRejected()
            | CallNotSent()
            | OutcomeUnknown()
            | IntentReconciled()
            | EvidenceAdded()
        ):
            _attempt(state, event)
        case StepRecorded() | WaitAbandoned():
            _seen(state, event)
        case QuestionAsked() | QuestionAnswered():
            _question(state, event)
        case SignalReceived():
            state.messages.add(event.message)
        case SweepRecorded():
            state.orphans.update(event.orphans)
        case (
            RunClaimed()
            | RunForked()
            | RunPruned()
            | WaitOpened()
            | WaitResolved()
            | LogRestored()
            | GapFound()
            | Held()
            | Released()
        ):
            pass  # reserved in format 1: they change no state that this version reads
        case _:
            assert_never(event)
    return state


_RunEvent: TypeAlias = (
    RunStarted | RunCompleted | RunFailed | CancelRequested | RunCancelled | RunReopened
)


def _run(state: RunState, event: _RunEvent) -> None:
    match event:
        case RunStarted():
            if state.started is None:
                state.started, state.status = event, "running"
        case RunCompleted():
            state.status, state.output = "completed", event.output
        case RunFailed():
            state.status, state.error = "failed", event.error
        case CancelRequested():
            state.cancel = event
        case RunCancelled():
            state.status = "cancelled"
        case RunReopened():
            state.status, state.error = "running", None
            for node in state.nodes.values():
                if (
                    node.failed is not None
                ):  # one more attempt is owed, of its own number: new reads
                    node.failed = msgspec.structs.replace(node.failed, retry_at_ns=0)


def _node(state: RunState, event: NodeStarted | NodeOutput | NodeFailed) -> None:
    node = state.nodes.setdefault((event.node, event.item), NodeState())
    match event:
        case NodeStarted():
            before = node.started
            if before is not None and (before.key, before.attempt) != (event.key, event.attempt):
                _hide_reads(state, node_scope(event.node, event.item))
            node.started, node.started_order, node.failed = event, state.events, None
            node.runs += 1
        case NodeOutput():
            node.output, node.output_order, node.failed = event, state.events, None
        case NodeFailed():
            node.failed = event


def _seen(state: RunState, event: StepRecorded | WaitAbandoned) -> None:
    if isinstance(event, WaitAbandoned):
        state.gave_up.setdefault(event.subject, GaveUp(event, state.events))
        return
    id_ = keys.step_id(state.run_id, event.scope, event.name, event.label, event.ordinal)
    state.reads.setdefault(id_, ReadState(id_, event, state.events))


def _hide_reads(state: RunState, scope: Scope) -> None:
    """A read serves only the key and attempt that recorded it, except where an act rests on it.

    That a caller gave up waiting is hidden with them: a retry waits anew.
    """
    depth = len(scope)
    pinned = max(
        (
            attempt.order
            for call in state.calls.values()
            if call.intent.scope[:depth] == scope and pins(call)
            for attempt in call.attempts
            if attempt.status != "closed" or call.duplicate
        ),
        default=0,
    )
    for read in list(state.reads.values()):
        if read.event.scope[:depth] == scope and read.order > pinned:
            del state.reads[read.id]
    for subject, given_up in list(state.gave_up.items()):
        if given_up.event.scope[:depth] == scope and given_up.order > pinned:
            del state.gave_up[subject]


def pins(call: CallState) -> bool:
    """True if what this call rests on must not be computed again: it acted, or may have."""
    return not call.without_effect


def _intent(state: RunState, event: IntentRecorded) -> None:
    call = state.calls.get(event.call)
    if call is None:
        call = state.calls[event.call] = CallState(event.call, event, state.events)
    elif call.without_effect and call.intent.asked_digest != event.asked_digest:
        # Nothing happened under the old arguments: the identity is free for new ones.
        call.intent, call.order, call.outcome, call.rejected = event, state.events, None, None
        call.superseded = len(call.attempts)
    call.resend_by = ""  # said once, used once
    call.attempts.append(
        Attempt(
            event.attempt,
            event.sent,
            event.prepared,
            event.at_ns,
            event.send_by_ns,
            order=state.events,
        )
    )


_AttemptEvent: TypeAlias = (
    CallAccepted
    | ResultRecorded
    | CallRejected
    | CallNotSent
    | OutcomeUnknown
    | IntentReconciled
    | EvidenceAdded
)


def _attempt(state: RunState, event: _AttemptEvent) -> None:
    call = state.calls.get(event.call)
    attempt = None if call is None else call.attempt(event.attempt)
    if call is None or attempt is None:
        return  # an event of an intent that a gap swallowed: the sweep, not the fold, reports it
    match event:
        case EvidenceAdded():
            call.evidence.append(f"{event.source}: {event.detail}")
            call.duplicate |= event.duplicate
        case CallNotSent():
            _not_sent(state, call, attempt, event)
        case _ if attempt.status in ("done", "closed"):
            _late(state, call, attempt, event)
        case CallAccepted():
            attempt.status = "accepted"
        case OutcomeUnknown():
            attempt.status, attempt.cause = "unknown", event.cause
            attempt.unknown_at_ns = event.at_ns
        case ResultRecorded():
            attempt.status = "done"
            _end(state, call, Done(event.value, event.why))
        case CallRejected():
            call.rejected = event.error
            _close(state, call, attempt, "rejected")
        case IntentReconciled():
            _reconciled(state, call, attempt, event)


def _not_sent(state: RunState, call: CallState, attempt: Attempt, event: CallNotSent) -> None:
    if attempt.status not in ("done", "closed"):
        attempt.retry_at_ns = event.retry_at_ns
        _close(state, call, attempt, "not-sent")
    elif not event.final:
        _late(state, call, attempt, event)
    if event.final and call.outcome is None and call.without_effect:
        _end(state, call, NeverSent(event.error))


def _late(state: RunState, call: CallState, attempt: Attempt, event: _AttemptEvent) -> None:
    """The first settlement of the attempt stands; this one is kept. Its effect ends the call, though:

    to send again what is known to have happened would be our own doing.
    """
    call.evidence.append(f"late: {type(event).__name__} of attempt {event.attempt}")
    if attempt.status != "closed":
        return
    if attempt.closed_by == "rejected" and isinstance(event, CallRejected) and call.without_effect:
        _end(state, call, Refused(event.error))
    if isinstance(event, ResultRecorded):
        call.duplicate = True
        _end(state, call, Done(event.value, event.why))
    elif isinstance(event, IntentReconciled) and event.verdict == "happened":
        call.duplicate = True
        _end(state, call, Done(event.value, event.why, event.whose))


def _reconciled(
    state: RunState, call: CallState, attempt: Attempt, event: IntentReconciled
) -> None:
    if event.verdict == "happened":
        attempt.status = "done"
        _end(state, call, Done(event.value, event.why, event.whose))
    elif event.verdict == "absent":
        by = "human:absent" if event.by.startswith("human:") else "absent"
        _close(state, call, attempt, by)
    else:
        _end(state, call, Skipped(event.by, event.why))


def _close(state: RunState, call: CallState, attempt: Attempt, by: str) -> None:
    attempt.status, attempt.closed_by, attempt.closed_order = "closed", by, state.events
    if by == "human:absent":
        return  # what is under way may land still: decide ends the call once it cannot
    if call.without_effect and call.rejected is not None:
        _end(state, call, Refused(call.rejected))


def _end(state: RunState, call: CallState, outcome: CallOutcome) -> None:
    # A skipped call may still learn what happened; the caller's answer stays what it was.
    if call.outcome is None:
        call.outcome, call.outcome_order = outcome, state.events
    elif isinstance(call.outcome, Skipped):
        call.evidence.append(f"after the skip: {type(outcome).__name__}")


def _question(state: RunState, event: QuestionAsked | QuestionAnswered) -> None:
    if isinstance(event, QuestionAsked):
        state.questions[event.question] = QuestionState(event)
        if event.subject in state.calls:
            state.calls[event.subject].question = event.question
        return
    if event.message:
        state.messages.add(event.message)
    question = state.questions.get(event.question)
    if question is None:
        return
    if not event.fits:
        question.misfits.append(event)
        return
    question.answered = event
    subject = question.asked.subject
    if subject in state.calls:
        call = state.calls[subject]
        call.question = ""
        if event.answer == "resend":
            call.resend_by = event.by
    if event.answer == "keep":
        state.kept[subject] = question.asked.digest
