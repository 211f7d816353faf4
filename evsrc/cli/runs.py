"""`runs` and `show`: what is in a log, and what happened in one run.

Rule: reads only, without a lock.
Does not know: the code of the runs, so not whether one is blocked.
"""

from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from evsrc.cli import logs, render, statuses
from evsrc.cli.escape import shown
from evsrc.cli.logs import AsJson, LogDir
from evsrc.cli.plain import event_object, fields, to_json, when
from evsrc.core.events import QuestionAsked, RunCancelled, RunCompleted, RunFailed
from evsrc.projections.base import Seen
from evsrc.projections.costs import Costs
from evsrc.projections.runs import RunRow, Runs
from evsrc.projections.timeline import Line, Timeline

COLUMNS = ("run", "workflow", "status", "started", "ended", "events", "calls", "unknown", "asked")


def runs(*, log: LogDir = logs.LOG_DEFAULT, json: AsJson = False) -> int:
    """List the runs of a log.

    Exit status 4 if a run holds an event that this version cannot read.
    """
    found, unreadable = logs.load_runs(log)
    rows = found.rows()
    status = statuses.INTEGRITY if unreadable else statuses.OK
    if json:
        render.print_json({"runs": rows, "unreadable": unreadable})
        return status
    render.table(COLUMNS, [_cells(row) for row in rows])
    for run, why in unreadable.items():
        render.note(render.status_text("unreadable"), run, why)
    return status


def _cells(row: RunRow) -> list[Text | str]:
    return [
        row.run,
        row.workflow,
        render.status_text(row.status),
        _second(row.started_ns),
        _second(row.ended_ns),
        str(row.events),
        str(row.calls),
        str(row.unknown_calls),
        str(row.open_questions),
    ]


def _second(time_ns: int) -> str:
    return when(time_ns)[:19]


def show(
    run: str,
    /,
    *,
    events: Annotated[bool, Parameter(negative="", help="Every event with its fields.")] = False,
    follow: Annotated[
        bool, Parameter(negative="", help="Go on until the run ends, or Ctrl-C.")
    ] = False,
    log: LogDir = logs.LOG_DEFAULT,
    json: AsJson = False,
) -> int:
    """Show what happened in one run: a line per event, with what is remarkable marked.

    RUN is a run's id, or the beginning of one.
    """
    found, _ = logs.load_runs(log)
    id_ = logs.find_run(found, run).run_id
    if follow:
        return _follow(log, id_, events=events, json=json)
    timeline, costs, seen = Timeline(id_), Costs(id_), list(logs.reader(log).events(run=id_))
    for one in seen:
        timeline.apply(one)
        costs.apply(one)
    if json:
        body = {"events": [event_object(one) for one in seen]} if events else {}
        lines = {} if events else {"timeline": [_object(line) for line in timeline.lines]}
        render.print_json({"run": found.row(id_), "cost": costs.total()} | lines | body)
        return statuses.OK
    _header(found, id_, costs)
    if events:
        _print_events(seen)
    else:
        _print_lines(timeline.lines)
    _questions(timeline.state.open_questions)
    return statuses.OK


def _header(found: Runs, run: str, costs: Costs) -> None:
    row, spent = found.row(run), costs.total()
    if row is None:
        raise AssertionError("a run that was found has a row")
    render.line(render.status_text(row.status), row.run, "of", row.workflow)
    counts = f"{row.events} events, {row.calls} calls, {row.unknown_calls} of unknown outcome"
    again = f", {spent.again_cost:g} of it again" if spent.again else ""
    render.line(f"{counts}; cost {spent.cost:g}{again}")


def _follow(log: str, run: str, *, events: bool, json: bool) -> int:
    """Print what is there and what comes, until a terminal event."""
    timeline = Timeline(run)
    for seen in _until_end(logs.reader(log, follow=True).events(run=run)):
        before = len(timeline.lines)
        timeline.apply(seen)
        lines = timeline.lines[before:]
        if events and json:
            render.print_jsonl(event_object(seen))
        elif json:
            for line in lines:
                render.print_jsonl(_object(line))
        elif events:
            _print_events([seen])
        else:
            _print_lines(lines)
    return statuses.OK


def _until_end(events: Iterator[Seen]) -> Iterator[Seen]:
    for seen in events:
        yield seen
        if isinstance(seen.event, RunCompleted | RunFailed | RunCancelled):
            return


def _object(line: Line) -> dict[str, object]:
    return {
        "position": line.position,
        "time": when(line.time_ns),
        "text": line.text,
        "marks": line.marks,
        "subject": line.subject,
    }


def _print_lines(lines: list[Line]) -> None:
    for one in lines:
        marks = [shown(f"[{mark}]", "yellow") for mark in one.marks]
        subject = [shown(f"({one.subject})", "dim")] if one.subject else []
        render.line(shown(when(one.time_ns), "dim"), one.text, *marks, *subject)


def _print_events(events: list[Seen]) -> None:
    for seen in events:
        held = {k: v for k, v in _fields(seen).items() if v not in ("", None, [], {}, False)}
        kind = shown(type(seen.event).__name__, "bold")
        render.line(shown(when(seen.time_ns), "dim"), str(seen.position), kind, to_json(held))


def _fields(seen: Seen) -> dict[str, object]:
    from msgspec.structs import asdict

    return fields(asdict(seen.event))


def _questions(questions: list[QuestionAsked]) -> None:
    for question in questions:
        render.line(shown("open question", "yellow"), question.question, question.text)
