"""RunState: what the events of one run mean. `evolve` is one step, `fold` is all of them.

Rule: state changes here and nowhere else. `evolve` depends on its two arguments only; it owns the state
it is given and returns it changed in place, instead of a copy: a run of 10,000 events would otherwise
copy 10,000 growing tables. `fold` always starts from a fresh state.
Does not know: who asks for what next (core/decide.py, core/nodes.py), or where events come from.
Must change together: core/events.py, which holds the closed union matched here.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias, assert_never

import msgspec

from evsrc.core import keys
from evsrc.core.calls import CallState, pins, record_intent, settle_attempt
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

RunStatus: TypeAlias = Literal["new", "running", "completed", "failed", "cancelled"]
NodeId: TypeAlias = tuple[str, str]
"""(node, item key); the item key is empty where a node runs once."""


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
            record_intent(state.calls, event, state.events)
        case (
            CallAccepted()
            | ResultRecorded()
            | CallRejected()
            | CallNotSent()
            | OutcomeUnknown()
            | IntentReconciled()
            | EvidenceAdded()
        ):
            settle_attempt(state.calls, event, state.events)
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
