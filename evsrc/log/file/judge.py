"""The verdict on a log's bytes: good to the end, torn at the end, or damaged.

A torn tail is what a crash leaves of a flush that was never acknowledged: it may be dropped. Damage to
what was acknowledged never may: whoever rested an act on it would act again. The last flush alone
cannot tell the two apart, so the mark does, and what can be told without the mark is told too:

    at the first fault, at offset o, where sequence number s was expected
    the mark says that s was synced                                  damaged
    a later header proves that its flush began behind s              damaged
      (so does one of a later flush, where the header at o is good)
    the bytes verify but are of a kind this version does not know    refused like damage
    anything else: zeros, garbage, the end, records of that flush    torn

Rule: pure; the same verdict for recovery, `verify` and the tests that flip every bit.
Does not know: files, locks, what is done about a torn tail.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from evsrc.errors import LogCorrupt
from evsrc.log.base import Record
from evsrc.log.file.framing import (
    ALIGNMENT,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    SEGMENT_HEADER_BYTES,
    Cursor,
    Fault,
    RecordHeader,
    read_record_header,
)
from evsrc.log.file.mark import Mark
from evsrc.log.file.segments import Segment
from evsrc.log.file.walk import SegmentWalk

Visit = Callable[[Record], None]


class Torn(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes at the end that were never acknowledged, and are not part of the log."""

    segment: str
    offset: int
    sequence: int
    bytes: int
    reason: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A log that may be used: where it ends, and what lies behind the end."""

    segment: Segment
    """The last one."""
    end: Cursor
    position: int
    torn: Torn | None
    closed: bool
    """The last record is a close that the mark knows: nothing was in flight."""

    @property
    def empty(self) -> bool:
        """The last segment holds no byte but its header, which was synced before its name was."""
        return self.end.offset == SEGMENT_HEADER_BYTES and self.torn is None


def judge(segments: Sequence[Segment], mark: Mark, visit: Visit) -> Judgement:
    """Walk a whole log, calling `visit` for every record of it in order.

    `segments` are as `chain` returns them, at least one. `visit` may raise ValueError to refuse a
    record that verifies but cannot be.

    Raises: LogCorrupt: with segment, offset and sequence of the damage, and the evidence.
    """
    if not segments:
        raise LogCorrupt("no segment is left", segment="*.evlog", offset=0, sequence=1)
    if mark.log_id != segments[0].header.log_id:
        raise LogCorrupt(
            f"the mark is of log {mark.log_id.hex()}, the segments of"
            f" {segments[0].header.log_id.hex()}",
            segment=segments[0].name,
            offset=0,
            sequence=1,
        )
    if not 1 <= mark.segment <= len(segments):
        last = segments[-1]
        raise LogCorrupt(
            f"the mark says that segment {mark.segment} exists, the last one is {len(segments)}",
            segment=last.name,
            offset=0,
            sequence=mark.last_sequence,
        )
    for segment, following in pairwise(segments):
        _inner(segment, following, mark, visit)
    return _last(segments[-1], mark, visit)


def evidence(data: bytes, fault: Fault, salt: bytes) -> str:
    """Say what proves that the record missing at `fault` had been synced; empty if nothing does.

    `data` is the whole segment.
    """
    at = data.find(RECORD_MAGIC, fault.offset + 1)
    while at >= 0:
        header = read_record_header(data, at, salt=salt) if at % ALIGNMENT == 0 else None
        if header is not None and _began_behind(data, fault, header):
            return f"the flush of sequence {header.sequence} at offset {at} began behind it"
        at = data.find(RECORD_MAGIC, at + 1)
    return ""


def _began_behind(data: bytes, fault: Fault, header: RecordHeader) -> bool:
    """Whether a later header's flush began behind the fault, and there is room for so many records."""
    room = (len(data) - fault.offset) // RECORD_HEADER_BYTES
    return header.sequence - fault.sequence <= room and (
        header.sequence - header.flush_index > fault.sequence
    )


def _inner(segment: Segment, following: Segment, mark: Mark, visit: Visit) -> None:
    """Judge a segment that another one follows: it must be good up to the end that one gives it."""
    said = following.header
    walk, data = _walk(segment, mark, visit, said.previous_end_offset)
    if walk.fault is not None:
        raise _corrupt(segment, walk.fault, "a later segment exists")
    end, size = walk.end, len(data)
    found = (end.offset, end.sequence, end.digest, walk.end_position + 1, end.sequence + 1)
    if found != (
        said.previous_end_offset,
        said.previous_last_sequence,
        said.previous_digest,
        said.base_position,
        said.base_sequence,
    ):
        raise LogCorrupt(
            f"segment {said.number} says that this one ends at offset {said.previous_end_offset}"
            f" with sequence {said.previous_last_sequence}; found offset {end.offset} of {size},"
            f" sequence {end.sequence}, or another digest",
            segment=segment.name,
            offset=end.offset,
            sequence=end.sequence + 1,
        )
    _check_mark(segment, walk, mark)


def _last(segment: Segment, mark: Mark, visit: Visit) -> Judgement:
    walk, data = _walk(segment, mark, visit, None)
    fault, end = walk.fault, walk.end
    if fault is not None:
        if fault.intact:
            raise _corrupt(segment, fault, "its bytes verify")
        if mark.segment == segment.header.number and mark.last_sequence >= fault.sequence:
            raise _corrupt(segment, fault, f"the mark says {mark.last_sequence} was synced")
        proof = evidence(data, fault, segment.header.salt)
        if proof:
            raise _corrupt(segment, fault, proof)
    _check_mark(segment, walk, mark)
    torn = None
    if end.offset < len(data):
        torn = Torn(
            segment=segment.name,
            offset=end.offset,
            sequence=end.sequence + 1,
            bytes=len(data) - end.offset,
            reason=fault.reason if fault else "a group of records does not end",
        )
    marked = (mark.segment, mark.end_offset) == (segment.header.number, end.offset)
    return Judgement(
        segment=segment,
        end=end,
        position=walk.end_position,
        torn=torn,
        closed=walk.ends_with_close and marked and torn is None,
    )


def _walk(
    segment: Segment, mark: Mark, visit: Visit, end_offset: int | None
) -> tuple[SegmentWalk, bytes]:
    data = segment.load()[:end_offset]
    watch = mark.end_offset if mark.segment == segment.header.number else -1
    walk = SegmentWalk(segment.header, watch_offset=watch)
    for record in walk.read(data):
        try:
            visit(record)
        except ValueError as error:
            cursor = walk.cursor
            raise LogCorrupt(
                f"position {record.position} does not fit its stream: {error}",
                segment=segment.name,
                offset=cursor.offset,
                sequence=cursor.sequence,
            ) from error
    return walk, data


def _check_mark(segment: Segment, walk: SegmentWalk, mark: Mark) -> None:
    """Compare what the mark says with what is there, in the one segment that it speaks of."""
    if mark.segment != segment.header.number:
        return
    end = walk.end
    if end.offset < mark.end_offset or end.sequence < mark.last_sequence:
        raise LogCorrupt(
            f"the mark says that sequence {mark.last_sequence} was synced up to offset"
            f" {mark.end_offset}, the log ends with {end.sequence} at {end.offset}",
            segment=segment.name,
            offset=end.offset,
            sequence=end.sequence + 1,
        )
    if walk.watched != (mark.last_sequence, mark.digest):
        raise LogCorrupt(
            f"what stands at offset {mark.end_offset} is not what was synced there: the log was"
            " rolled back or replaced",
            segment=segment.name,
            offset=mark.end_offset,
            sequence=mark.last_sequence,
        )


def _corrupt(segment: Segment, fault: Fault, proof: str) -> LogCorrupt:
    return LogCorrupt(
        f"{fault.reason}; {proof}",
        segment=segment.name,
        offset=fault.offset,
        sequence=fault.sequence,
    )
