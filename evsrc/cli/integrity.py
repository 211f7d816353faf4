"""`verify` and `export`: is the log whole, and everything in it as JSON.

Rule: reads only. `export` leaves nothing out, also not events of a later version.
Does not know: what an event means.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from evsrc.cli import logs, plain, render, statuses
from evsrc.cli.logs import AsJson, LogDir
from evsrc.cli.statuses import UsageError
from evsrc.core.codec import decode_events, decode_plain
from evsrc.errors import UnknownEvent
from evsrc.log.base import Record
from evsrc.projections.base import Seen
from evsrc.verify import VerifyReport
from evsrc.verify import verify as verify_log


def verify(
    folder: Annotated[str | None, Parameter(help="Folder of the log; the same as --log.")] = None,
    /,
    *,
    log: LogDir = logs.LOG_DEFAULT,
    json: AsJson = False,
) -> int:
    """Check every byte of a log. Exit status 4 if acknowledged data is damaged or missing.

    The same as `python -m evsrc.verify`, which needs no extra.
    """
    where = log if folder is None else folder
    try:
        report = verify_log(where)
    except FileNotFoundError as error:
        raise UsageError(str(error)) from None
    if json:
        render.print_json(report)
    else:
        _print(report)
    return statuses.INTEGRITY if report.state == "corrupt" else statuses.OK


def _print(report: VerifyReport) -> None:
    render.line(f"{report.state}: {report.records} records in {report.segments} segments")
    render.line(f"namespace {report.namespace}, log {report.log_id}, head {report.head}")
    if report.reason:
        place = f"segment {report.segment}, offset {report.offset}, sequence {report.sequence}"
        render.line(f"{report.reason} ({place})")


def export(
    *,
    jsonl: Annotated[bool, Parameter(negative="", help="One event a line: the only form.")] = True,
    run: Annotated[str | None, Parameter(help="Only this run.")] = None,
    log: LogDir = logs.LOG_DEFAULT,
    json: AsJson = False,
) -> int:
    """Print every event as one JSON object a line: position, run, time, type and its fields.

    Values of users are decoded; what is no msgpack stands under "base64". Exit status 4 if the log
    holds an event of a later version: it is exported as it stands.
    """
    del jsonl, json  # both say the same
    unknown = 0
    stream = None if run is None else logs.find_run(logs.load_runs(log)[0], run).run_id
    for record in logs.reader(log).records(run=stream):
        try:
            objects = [_object(record, event) for event in decode_events(record.body)]
        except UnknownEvent as error:
            unknown += 1
            render.note(f"position {record.position}, run {record.stream}: {error}")
            objects = list(_strange(record))
        for one in objects:
            render.print_jsonl(one)
    return statuses.INTEGRITY if unknown else statuses.OK


def _object(record: Record, event: Any) -> dict[str, Any]:
    return plain.event_object(Seen(record.stream, event, record.position, record.time_ns))


def _strange(record: Record) -> Iterator[dict[str, Any]]:
    """Events of a record that this version cannot read, as maps."""
    for event in decode_plain(record.body):
        tag = str(event.pop("type", ""))
        place = plain.place(record.position, record.stream, record.time_ns, tag)
        yield place | plain.fields(event)
