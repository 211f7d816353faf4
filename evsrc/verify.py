"""`python -m evsrc.verify PATH [--json]`: is this log whole? Needs no extra, no lock and no writer.

Exit status 0: every byte that counts verifies (a torn, never acknowledged tail is told and allowed);
4: acknowledged data is damaged or missing; 2: there is no log at PATH.

Rule: reads only. The mark is read before the segments: beside a living writer it can then only lag.
Does not know: what a record means.
"""

import os
import sys
from collections.abc import Sequence
from typing import Literal

import msgspec

from evsrc.errors import LogCorrupt
from evsrc.log.file.fs import Fs, RealFs
from evsrc.log.file.judge import Judgement, judge
from evsrc.log.file.meta import META_NAME
from evsrc.log.file.recovery import read_mark, read_meta
from evsrc.log.file.segments import file_segments, segment_names
from evsrc.log.streams import Heads

OK, USAGE, INTEGRITY = 0, 2, 4


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` found. Place and reason are empty when the log is clean."""

    state: Literal["clean", "torn", "corrupt"]
    records: int = 0
    segments: int = 0
    last_position: int = 0
    head: str = ""
    """Chain digest behind the last record, hex: two copies with one head hold the same records."""
    closed: bool = False
    """Its last owner closed it; else the owner lives, or was killed."""
    reason: str = ""
    segment: str = ""
    offset: int = -1
    sequence: int = -1
    namespace: str = ""
    log_id: str = ""


def verify(path: str | os.PathLike[str], *, fs: Fs | None = None) -> VerifyReport:
    """Read the whole log in folder `path`; damage is reported, not raised.

    Raises: FileNotFoundError: there is no log. OSError: it cannot be read.
    """
    fs, folder = RealFs() if fs is None else fs, os.fspath(path)
    if META_NAME not in fs.list(folder) and not segment_names(fs, folder):
        raise FileNotFoundError(f"no log in {folder}: neither {META_NAME} nor a segment")
    report, heads = VerifyReport(state="corrupt"), Heads()
    try:
        if META_NAME not in fs.list(folder):
            raise LogCorrupt(f"{META_NAME} is missing", segment=META_NAME, offset=0, sequence=0)
        meta = read_meta(fs, folder)
        report = msgspec.structs.replace(report, namespace=meta.namespace, log_id=meta.log_id)
        mark = read_mark(fs, folder)
        segments = file_segments(fs, folder)
        report = msgspec.structs.replace(report, segments=len(segments))
        found = judge(segments, mark, heads.admit)
        if found.segment.header.log_id.hex() != meta.log_id:
            raise LogCorrupt(
                "the segments are of another log", segment=META_NAME, offset=0, sequence=0
            )
    except LogCorrupt as damage:
        return msgspec.structs.replace(
            report,
            records=heads.position,
            last_position=heads.position,
            reason=damage.reason,
            segment=damage.segment,
            offset=damage.offset,
            sequence=damage.sequence,
        )
    return _sound(report, found)


def _sound(report: VerifyReport, found: Judgement) -> VerifyReport:
    torn = found.torn
    report = msgspec.structs.replace(
        report,
        state="clean",
        records=found.position,
        last_position=found.position,
        head=found.end.digest.hex(),
        closed=found.closed,
    )
    if torn is None:
        return report
    return msgspec.structs.replace(
        report,
        state="torn",
        reason=f"{torn.bytes} bytes at the end were never acknowledged: {torn.reason}",
        segment=torn.segment,
        offset=torn.offset,
        sequence=torn.sequence,
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    as_json = "--json" in arguments
    paths = [argument for argument in arguments if argument != "--json"]
    if len(paths) != 1 or paths[0].startswith("-"):
        print("usage: python -m evsrc.verify PATH [--json]", file=sys.stderr)
        return USAGE
    try:
        report = verify(paths[0])
    except OSError as error:
        print(f"evsrc.verify: {error}", file=sys.stderr)
        return USAGE
    print(msgspec.json.encode(report).decode() if as_json else _text(report))
    return INTEGRITY if report.state == "corrupt" else OK


def _text(report: VerifyReport) -> str:
    lines = [
        f"{report.state}: {report.records} records in {report.segments} segments",
        f"namespace {report.namespace!r}, log {report.log_id}, head {report.head or 'unknown'}",
    ]
    if report.reason:
        lines.append(f"{report.reason}")
        lines.append(
            f"at segment {report.segment}, offset {report.offset}, sequence {report.sequence}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
