"""The chain of segments: what order they have, and whether they are one log.

Rule: any break in the chain is damage. A segment appears by rename after its header was synced, so no
crash leaves one with a bad header, nor a gap between two.
Does not know: records inside segments.
"""

from collections.abc import Callable

import msgspec

from evsrc.errors import LogCorrupt
from evsrc.log.file.framing import SEGMENT_HEADER_BYTES, SegmentHeader, decode_segment_header
from evsrc.log.file.fs import Fs, read_file

SEGMENT_SUFFIX = ".evlog"

SEGMENT_BYTES_LIMIT = 64 * 1024 * 1024 * 1024
"""What is read of one segment at most; a segment is rolled long before."""


class Segment(msgspec.Struct, frozen=True):
    """One segment: its file name, its header, and how to get all its bytes."""

    name: str
    header: SegmentHeader
    load: Callable[[], bytes]


def segment_name(base_sequence: int, random: bytes) -> str:
    """Name a segment; the random part makes a name that is never used twice."""
    return f"{base_sequence:020}-{random.hex()}{SEGMENT_SUFFIX}"


def base_sequence_of(name: str) -> int:
    """First sequence number by the name, -1 if the name has none."""
    number = name.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else -1


def segment_names(fs: Fs, folder: str) -> list[str]:
    """Names of the segments in a folder, unordered. Raises OSError."""
    return [name for name in fs.list(folder) if name.endswith(SEGMENT_SUFFIX)]


def file_segments(fs: Fs, folder: str) -> list[Segment]:
    """Read all headers of a folder and return the segments in order.

    Raises: LogCorrupt: as `chain`, or a file cannot be read.
    """
    found = [file_segment(fs, folder, name) for name in segment_names(fs, folder)]
    return chain(found)


def file_segment(fs: Fs, folder: str, name: str) -> Segment:
    """Read one segment's header.

    Raises: LogCorrupt: the header does not verify or cannot be read.
    """
    path = f"{folder}/{name}"

    def load() -> bytes:
        try:
            return read_file(fs, path, SEGMENT_BYTES_LIMIT)
        except OSError as error:
            # A read error is never a torn tail: the bytes may be good.
            raise LogCorrupt(
                f"cannot be read: {error}", segment=name, offset=0, sequence=base_sequence_of(name)
            ) from error

    try:
        header = read_file(fs, path, SEGMENT_HEADER_BYTES)
    except OSError as error:
        raise LogCorrupt(
            f"cannot be read: {error}", segment=name, offset=0, sequence=base_sequence_of(name)
        ) from error
    return Segment(name, parse_header(name, header), load)


def parse_header(name: str, data: bytes) -> SegmentHeader:
    """Read a segment's header.

    Raises: LogCorrupt: it does not verify, or names another first sequence number than `name`.
    """
    base_sequence = base_sequence_of(name)
    try:
        header = decode_segment_header(data)
    except ValueError as error:
        raise LogCorrupt(str(error), segment=name, offset=0, sequence=base_sequence) from error
    if header.base_sequence != base_sequence:
        raise LogCorrupt(
            f"the header says first sequence {header.base_sequence}, the name {base_sequence}",
            segment=name,
            offset=0,
            sequence=base_sequence,
        )
    return header


def chain(segments: list[Segment]) -> list[Segment]:
    """Order segments by number and check that they are 1, 2, 3 ... of one log.

    Raises: LogCorrupt: a number is missing or there twice, or a segment is of another log.
    """
    ordered = sorted(segments, key=lambda s: (s.header.number, s.name))
    for expected, segment in enumerate(ordered, 1):
        header = segment.header
        if header.number != expected or header.previous_number != expected - 1:
            raise _break(segment, f"expected segment number {expected}, found {header.number}")
        if header.log_id != ordered[0].header.log_id:
            raise _break(segment, f"segment of another log, {header.log_id.hex()}")
    return ordered


def _break(segment: Segment, reason: str) -> LogCorrupt:
    return LogCorrupt(reason, segment=segment.name, offset=0, sequence=segment.header.base_sequence)
