"""`unknown` and `explain`: what nobody knows yet, and which rule keeps it so.

Rule: works on calls, not on unfinished runs: a run may have ended while a call of it is still unknown.
Does not know: rules. `explain` repeats what core/decide.py says.
"""

import time
from typing import Annotated, Any

import anyio
import msgspec
from cyclopts import Parameter

from evsrc.cli import logs, render, statuses
from evsrc.cli.escape import shown
from evsrc.cli.loading import loaded_tools
from evsrc.cli.logs import AsJson, LogDir, Subject
from evsrc.cli.plain import recorded, to_json, when
from evsrc.cli.statuses import UsageError
from evsrc.core import decide
from evsrc.core.calls import CallState
from evsrc.core.state import RunState
from evsrc.core.verdicts import Capabilities, Effect
from evsrc.projections.questions import OpenQuestion, OpenQuestions
from evsrc.projections.runs import Runs
from evsrc.tools.tool import Tool

ToolsAt = Annotated[
    str, Parameter(name="--tools", help="module:attribute of the tools, for what they declare.")
]


class UnknownRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call of unknown outcome, or a node that somebody must be asked about."""

    id: str
    """What `resolve` takes: the call's id, or the question's for a node."""
    run: str
    run_status: str
    what: str
    attempt: int
    cause: str
    since: str
    asked: str
    """The question's text, empty while nobody is asked."""
    arguments: Any = None


def unknown(*, log: LogDir = logs.LOG_DEFAULT, json: AsJson = False) -> int:
    """List every call whose outcome nobody knows, and every other open question, over all runs.

    Exit status 3 if there is one.
    """
    found, unreadable = logs.load_runs(log)
    questions = OpenQuestions()
    logs.project(log, questions)
    rows = [
        row
        for state in found.states.values()
        for row in _rows(state, _status(found, state), questions.rows(state.run_id))
    ]
    kinds = [statuses.QUESTIONS] * bool(rows) + [statuses.INTEGRITY] * bool(unreadable)
    if json:
        render.print_json({"unknown": rows, "unreadable": unreadable})
        return statuses.worst(kinds)
    columns = ("id", "run", "status", "what", "attempt", "cause", "since", "question")
    if rows:
        render.table(columns, [_cells(row) for row in rows])
    else:
        render.line("nothing is unknown")
    for run, why in unreadable.items():
        render.note(render.status_text("unreadable"), run, why)
    return statuses.worst(kinds)


def _status(found: Runs, state: RunState) -> str:
    """The status of the run that a state is of."""
    row = found.row(state.run_id)
    return "" if row is None else row.status


def _rows(state: RunState, status: str, questions: list[OpenQuestion]) -> list[UnknownRow]:
    about = {question.subject: question for question in questions}
    rows = [_of_call(state, status, call, about) for call in state.unsettled]
    shown_ids = {row.id for row in rows}
    rows += [
        UnknownRow(
            id=question.question,
            run=state.run_id,
            run_status=status,
            what=f"{question.tool or 'node'} {question.subject}",
            attempt=question.attempt,
            cause=question.kind,
            since=when(question.since_ns),
            asked=question.text,
        )
        for question in questions
        if question.subject not in shown_ids
    ]
    return rows


def _of_call(
    state: RunState, status: str, call: CallState, about: dict[str, OpenQuestion]
) -> UnknownRow:
    attempt, question = call.open_attempts[-1], about.get(call.id)
    return UnknownRow(
        id=call.id,
        run=state.run_id,
        run_status=status,
        what=f"{call.intent.tool} in {'/'.join(call.intent.scope) or '(run)'}",
        attempt=attempt.number,
        cause=attempt.cause or attempt.status,
        since=when(attempt.unknown_at_ns or attempt.at_ns),
        asked="" if question is None else question.text,
        arguments=recorded(call.intent.asked),
    )


def _cells(row: UnknownRow) -> list[str]:
    return [
        row.id,
        row.run,
        row.run_status,
        row.what,
        str(row.attempt),
        row.cause,
        row.since[:19],
        row.asked,
    ]


# ---- explain ---------------------------------------------------------------------------------------


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call stands as it does."""

    call: str
    run: str
    tool: str
    instance: str
    scope: tuple[str, ...]
    arguments: Any
    attempts: list[dict[str, Any]]
    declared: str
    """"tool", or "recorded": then everything but the effect counted as undeclared."""
    rule: str
    missing: list[str]
    """Declarations that would spare a human a question; empty where the tool is not given."""


def explain(
    call: str,
    /,
    *,
    tools: ToolsAt = "",
    run: Annotated[str | None, Parameter(help="Look in this run only.")] = None,
    log: LogDir = logs.LOG_DEFAULT,
    json: AsJson = False,
) -> int:
    """Say which rule decides about a call now, and which declaration is missing.

    CALL is the id of a call or of a question about it, or the beginning of one.
    """
    found, _ = logs.load_runs(log)
    subject = logs.find_subject(found, call, run)
    if subject.call is None:
        raise UsageError(f"{subject.id} is a question about a node; see `evsrc show {subject.run}`")
    result = anyio.run(_explained, subject, subject.call, tools)
    if json:
        render.print_json(result)
        return statuses.OK
    where = "/".join(result.scope) or "(run)"
    render.line(shown(result.call, "bold"), f"{result.tool} in {where}, run {result.run}")
    render.line("arguments", to_json(result.arguments))
    for attempt in result.attempts:
        render.line(*[f"{name} {value}" for name, value in attempt.items() if value])
    if result.declared == "recorded":
        render.line("tool not given (--tools): only its effect is known, the rest counts as worst")
    if result.missing:
        render.line(f"the tool could declare: {', '.join(result.missing)}")
    render.line(result.rule)
    return statuses.OK


async def _explained(subject: Subject, call: CallState, spec: str) -> Explained:
    async with loaded_tools(spec) as tools:
        tool = _find(tools, call)
    if spec and tool is None:
        at = f" with instance {call.intent.instance!r}" if call.intent.instance else ""
        raise UsageError(f"{spec}: no tool {call.intent.tool!r}{at} among them")
    caps = Capabilities(effect=Effect(call.intent.effect)) if tool is None else tool.capabilities
    return Explained(
        call=call.id,
        run=subject.run,
        tool=call.intent.tool,
        instance=call.intent.instance,
        scope=call.intent.scope,
        arguments=recorded(call.intent.asked),
        attempts=[_attempt(call, number) for number in range(len(call.attempts))],
        declared="recorded" if tool is None else "tool",
        rule=decide.explain(call, caps, None, time.time_ns()),
        missing=[] if tool is None else tool.missing(),
    )


def _find(tools: list[Tool[..., Any]], call: CallState) -> Tool[..., Any] | None:
    place = (call.intent.tool, call.intent.instance)
    return next((tool for tool in tools if (tool.name, tool.instance) == place), None)


def _attempt(call: CallState, index: int) -> dict[str, Any]:
    attempt = call.attempts[index]
    return {
        "attempt": attempt.number,
        "status": attempt.status,
        "cause": attempt.cause,
        "closed_by": attempt.closed_by,
        "at": when(attempt.at_ns),
    }
