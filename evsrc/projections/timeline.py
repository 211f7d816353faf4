"""Timeline: what happened in a run and when, one readable line per event, with what is remarkable marked.

Rule: a line says what its event says, in words; whatever is derived (late, duplicate) comes from the
state before and after the event, as `evolve` keeps it. Texts are as recorded: whoever shows them escapes.
Does not know: terminals, colours, time zones.

| mark | says |
|---|---|
| late | an attempt that was settled already got a further answer or verdict |
| duplicate | an effect was found for an attempt that counted as without effect |
| older evidence | a person let an act stand although what it rests on has changed |
| skipped | somebody decided to go on without knowing |
| earlier attempt | the node's output is of a later attempt than an effect in its scope: the log does not |
| | say whether the later one asked for it |
| no output | the run ended, and a node that acted gave no output |
| does not fit | an answer that changed nothing |
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from evsrc.core.calls import CallState, pins
from evsrc.core.events import (
    CallAccepted,
    CallNotSent,
    CallRejected,
    CancelRequested,
    Event,
    EvidenceAdded,
    IntentReconciled,
    IntentRecorded,
    NodeFailed,
    NodeOutput,
    NodeStarted,
    OutcomeUnknown,
    QuestionAnswered,
    QuestionAsked,
    ResultRecorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunReopened,
    RunStarted,
    StepRecorded,
    WaitAbandoned,
)
from evsrc.core.state import RunState, evolve, node_scope
from evsrc.projections.base import Seen

Mark: TypeAlias = Literal[
    "late",
    "duplicate",
    "older evidence",
    "skipped",
    "earlier attempt",
    "no output",
    "does not fit",
]

_Outcome: TypeAlias = (
    CallAccepted
    | ResultRecorded
    | CallRejected
    | CallNotSent
    | OutcomeUnknown
    | IntentReconciled
    | EvidenceAdded
)
_CALL = (
    CallAccepted,
    ResultRecorded,
    CallRejected,
    CallNotSent,
    OutcomeUnknown,
    IntentReconciled,
    EvidenceAdded,
)
_END = (RunCompleted, RunFailed, RunCancelled)


class Line(msgspec.Struct, frozen=True):
    """One event in words. `text` may hold text that an attacker wrote."""

    position: int
    time_ns: int
    text: str
    marks: tuple[Mark, ...] = ()
    subject: str = ""
    """Id of the call or question that it is about, empty otherwise."""


class Timeline:
    """The timeline of one run: events of other runs are passed over."""

    def __init__(self, run: str) -> None:
        self.state = RunState(run)
        """The folded state up to the last line."""
        self.lines: list[Line] = []

    def apply(self, seen: Seen, /) -> None:
        """Take in one event."""
        if seen.run != self.state.run_id:
            return
        event = seen.event
        settled = _settled(self.state, event)
        duplicate = _duplicate(self.state, event)
        text, subject = _words(self.state, event)
        evolve(self.state, event)
        marks: list[Mark] = ["late"] if settled else []
        if _duplicate(self.state, event) and not duplicate:
            marks.append("duplicate")
        marks += _said(event)
        self._add(seen, Line(seen.position, seen.time_ns, text, tuple(marks), subject))

    def _add(self, seen: Seen, line: Line) -> None:
        self.lines.append(line)
        if isinstance(seen.event, NodeOutput):
            mark: Mark = "earlier attempt"
            calls = _earlier(self.state, seen.event)
            why = "acted, or may have, in an earlier attempt than the one that gave the output"
        elif isinstance(seen.event, _END):
            mark, calls = "no output", _without_output(self.state)
            why = "acted, or may have, and its node gave no output"
        else:
            return
        for call in calls:
            text = f"{_name(call)} {why}"
            self.lines.append(Line(seen.position, seen.time_ns, text, (mark,), call.id))


# ---- marks -----------------------------------------------------------------------------------------


def _settled(state: RunState, event: Event) -> bool:
    """Was the attempt that the event is about settled before it?"""
    if isinstance(event, CallNotSent) and event.final:
        return False  # says that the budget is used up, not how the attempt ended
    if not isinstance(event, _CALL):
        return False
    call = state.calls.get(event.call)
    attempt = None if call is None else call.attempt(event.attempt)
    return attempt is not None and attempt.status in ("done", "closed")


def _duplicate(state: RunState, event: Event) -> bool:
    call = state.calls.get(event.call) if isinstance(event, _CALL) else None
    return call is not None and call.duplicate


def _said(event: Event) -> list[Mark]:
    """What the event alone makes remarkable."""
    match event:
        case QuestionAnswered(fits=False):
            return ["does not fit"]
        case QuestionAnswered(answer="keep"):
            return ["older evidence"]
        case IntentReconciled(verdict="skipped"):
            return ["skipped"]
        case _:
            return []


def _earlier(state: RunState, output: NodeOutput) -> list[CallState]:
    """Effects in the node's scope whose every intent is older than the attempt that gave the output."""
    node = state.nodes[output.node, output.item]
    scope = node_scope(output.node, output.item)
    if output.source_run or not node.started_order:
        return []
    return [
        call
        for call in _acts(state.calls.values())
        if call.intent.scope[: len(scope)] == scope
        and max(attempt.order for attempt in call.attempts) < node.started_order
    ]


def _without_output(state: RunState) -> list[CallState]:
    done = {node_scope(*id_) for id_, node in state.nodes.items() if node.output is not None}
    started = {node_scope(*id_) for id_ in state.nodes}
    return [
        call
        for call in _acts(state.calls.values())
        if (place := _node_of(call, started)) is not None and place not in done
    ]


def _node_of(call: CallState, places: set[tuple[str, ...]]) -> tuple[str, ...] | None:
    scope = call.intent.scope
    return next((scope[:depth] for depth in (2, 1) if scope[:depth] in places), None)


def _acts(calls: Iterable[CallState]) -> list[CallState]:
    return [call for call in calls if pins(call)]


# ---- words -----------------------------------------------------------------------------------------


def _words(state: RunState, event: Event) -> tuple[str, str]:
    """The line's text and subject. `state` is the one before the event."""
    if isinstance(event, IntentRecorded):
        return _intent(event), event.call
    if isinstance(event, _CALL):
        call = state.calls.get(event.call)
        name = event.call if call is None else _name(call)
        return f"{name}: {_outcome(event)}", event.call
    if isinstance(event, NodeStarted | NodeOutput | NodeFailed):
        return _node(event), ""
    if isinstance(event, QuestionAsked | QuestionAnswered):
        return _question(event), event.question
    return _run(event), ""


def _intent(event: IntentRecorded) -> str:
    which = f"{event.label!r}" if event.label else f"#{event.ordinal}"
    where = _place(event.scope)
    at = f" at {event.instance}" if event.instance else ""
    return f"{event.tool} {which} in {where}{at}: intent, attempt {event.attempt}"


def _name(call: CallState) -> str:
    return f"{call.intent.tool} in {_place(call.intent.scope)}"


def _place(scope: tuple[str, ...]) -> str:
    return "/".join(scope) or "(run)"


def _outcome(event: _Outcome) -> str:
    match event:
        case CallAccepted(attempt=n):
            return f"accepted, not yet done (attempt {n})"
        case ResultRecorded(attempt=n, why=why):
            return f"done (attempt {n})" + (f", result not recorded: {why}" if why else "")
        case CallRejected(attempt=n, error=error):
            return f"refused (attempt {n}): {error.message}"
        case CallNotSent(attempt=n, error=error, final=final):
            end = ", no further attempt" if final else ""
            return f"not sent (attempt {n}){end}: {error.message}"
        case OutcomeUnknown(attempt=n, cause=cause, error=error):
            because = "" if error is None else f", {error.type}: {error.message}"
            return f"outcome unknown (attempt {n}): {cause}{because}"
        case IntentReconciled():
            return _verdict(event)
        case EvidenceAdded(attempt=n, source=source, detail=detail):
            return f"{source} about attempt {n}: {detail}"


def _verdict(event: IntentReconciled) -> str:
    whose = "" if event.whose == "ours" else f", {event.whose}"
    gone = ", gone since" if event.gone else ""
    because = f": {event.evidence or event.why}" if event.evidence or event.why else ""
    return f"{event.verdict} says {event.by} (attempt {event.attempt}{whose}{gone}){because}"


def _node(event: NodeStarted | NodeOutput | NodeFailed) -> str:
    name = f"{event.node}[{event.item}]" if event.item else event.node
    match event:
        case NodeStarted(attempt=n):
            return f"node {name} started" + (f", attempt {n}" if n > 1 else "")
        case NodeOutput(source_run=source):
            return f"node {name} " + (f"reused from run {source}" if source else "done")
        case NodeFailed(attempt=n, error=error, retry_at_ns=retry):
            end = "no further attempt" if retry is None else "to be tried again"
            return f"node {name} failed, attempt {n}, {end}: {error.type}: {error.message}"


def _question(event: QuestionAsked | QuestionAnswered) -> str:
    if isinstance(event, QuestionAsked):
        return f"question ({event.kind}) about {event.subject}: {event.text}"
    because = f": {event.why or event.reason}" if event.why or event.reason else ""
    return f"{event.by} answered {event.answer}{because}"


def _run(event: Event) -> str:
    match event:
        case RunStarted(workflow=workflow, version=version):
            return f"run started: {workflow}, version {version}"
        case RunCompleted(open_calls=calls):
            return "run completed" + _open(calls)
        case RunFailed(error=error, open_calls=calls):
            return f"run failed: {error.type}: {error.message}" + _open(calls)
        case RunCancelled(open_calls=calls):
            return "run cancelled" + _open(calls)
        case CancelRequested(by=by, reason=reason) | RunReopened(by=by, reason=reason):
            what = "cancel requested" if isinstance(event, CancelRequested) else "reopened"
            return f"{what} by {by}" + (f": {reason}" if reason else "")
        case StepRecorded():
            return _read(event)
        case WaitAbandoned(name=name, subject=subject, waited_s=waited_s):
            return f"the caller of {name or subject} gave up after {waited_s:.3f} s"
        case _:
            return type(event).__name__


def _read(event: StepRecorded) -> str:
    which = f" {event.label!r}" if event.label else ""
    end = "recorded"
    if event.abandoned:
        end = f"given up after {event.waited_s:.3f} s"
    elif event.error is not None:
        end = f"{event.error.type}: {event.error.message}"
    return f"read {event.name}{which} in {_place(event.scope)}: {end}"


def _open(calls: tuple[str, ...]) -> str:
    return f", {len(calls)} call(s) of unknown outcome" if calls else ""
