"""Lock-free reading: any number of readers, beside a living writer or without one.

Rule: a reader changes nothing, takes no lock and trusts no byte that does not verify. Damage in a
segment that another one follows raises; at the end of the log reading stops and `report` says why,
since a record that is being written, one that a crash tore and one that rotted look alike from here.
Does not know: the mark. Whether the end is all that was acknowledged is `evsrc.verify`'s question.
"""

import os
from collections.abc import Iterator
from typing import Literal

import msgspec

from evsrc.errors import LogCorrupt
from evsrc.log.base import Record
from evsrc.log.file.framing import SegmentHeader
from evsrc.log.file.fs import Fs, RealFs, read_file
from evsrc.log.file.judge import evidence
from evsrc.log.file.segments import (
    SEGMENT_BYTES_LIMIT,
    Segment,
    chain,
    file_segment,
    segment_names,
)
from evsrc.log.file.walk import SegmentWalk


class ReadReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the last read ended."""

    state: Literal["end", "unfinished", "corrupt"]
    """At the end of a record; inside one (being written, or torn); at what was once synced."""
    reason: str = ""
    segment: str = ""
    offset: int = -1
    sequence: int = -1


class LogReader:
    """Reads a log from the beginning, as far as it is written; call `advance` again for more."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fs: Fs | None = None,
        after: int = 0,
        stream: str | None = None,
    ) -> None:
        """Give records with position > `after`, of one stream if `stream` is given."""
        self.report = ReadReport(state="end")
        self._folder = os.fspath(path)
        self._fs: Fs = RealFs() if fs is None else fs
        self._after = after
        self._stream = stream
        self._segments: dict[str, Segment] = {}
        self._number = 0
        self._walk: SegmentWalk | None = None

    def advance(self) -> Iterator[Record]:
        """Yield what was not yielded yet, and set `report`.

        Raises:
            LogCorrupt: a segment that another one follows is damaged, or the chain is broken.
            OSError: the folder cannot be read.
        """
        for record in self._all_streams():
            if self._stream is None or record.stream == self._stream:
                yield record

    def read_landed(self, last_position: int) -> Iterator[Record]:
        """Yield up to `last_position`, which must be there.

        Raises: LogCorrupt: as `advance`, or reading ended before. OSError.
        """
        if last_position <= self._after:
            return
        for record in self._all_streams():
            if self._stream is None or record.stream == self._stream:
                yield record
            if record.position == last_position:
                return
        raise LogCorrupt(
            f"position {last_position} had landed and is not there: {self.report.reason or 'gone'}",
            segment=self.report.segment,
            offset=self.report.offset,
            sequence=self.report.sequence,
        )

    def _all_streams(self) -> Iterator[Record]:
        ordered = self._refresh()
        if not ordered:
            return
        if self._walk is None:
            first = self._first(ordered)
            self._number, self._walk = first.header.number, SegmentWalk(first.header)
        while True:
            segment = ordered[self._number - 1]
            following = ordered[self._number] if self._number < len(ordered) else None
            yield from self._read(segment, self._walk, following)
            if following is None:
                return
            self._number, self._walk = following.header.number, SegmentWalk(following.header)

    def _refresh(self) -> list[Segment]:
        """List segments, reading only headers not seen before: a header never changes."""
        for name in segment_names(self._fs, self._folder):
            if name not in self._segments:
                self._segments[name] = file_segment(self._fs, self._folder, name)
        return chain(list(self._segments.values()))

    def _first(self, ordered: list[Segment]) -> Segment:
        """Return the segment to begin with: those that end at or before `after` are not read."""
        first = ordered[0]
        for segment in ordered:
            if segment.header.base_position > self._after + 1:
                break
            first = segment
        return first

    def _read(
        self, segment: Segment, walk: SegmentWalk, following: Segment | None
    ) -> Iterator[Record]:
        base = walk.cursor.offset
        end = SEGMENT_BYTES_LIMIT if following is None else following.header.previous_end_offset
        data = self._load(segment, base, max(end - base, 0))
        for record in walk.read(data, base):
            if record.position > self._after:
                yield record
        if following is not None:
            _check_joint(segment, walk, following.header)
        self._report(segment, walk, base + len(data))

    def _load(self, segment: Segment, base: int, size: int) -> bytes:
        try:
            return read_file(self._fs, f"{self._folder}/{segment.name}", size, base)
        except OSError as error:
            raise LogCorrupt(
                f"cannot be read: {error}",
                segment=segment.name,
                offset=base,
                sequence=segment.header.base_sequence,
            ) from error

    def _report(self, segment: Segment, walk: SegmentWalk, size: int) -> None:
        fault, end = walk.fault, walk.end
        if fault is None and end.offset == size:
            self.report = ReadReport(state="end")
            return
        proof = ""
        if fault is not None:
            proof = evidence(segment.load(), fault, segment.header.salt)
            proof = proof or ("its bytes verify" if fault.intact else "")
        reason = fault.reason if fault else "a group of records does not end"
        self.report = ReadReport(
            state="corrupt" if proof else "unfinished",
            reason=f"{reason}; {proof}" if proof else reason,
            segment=segment.name,
            offset=end.offset,
            sequence=end.sequence + 1,
        )


def read_records(
    path: str | os.PathLike[str],
    *,
    fs: Fs | None = None,
    after: int = 0,
    stream: str | None = None,
) -> Iterator[Record]:
    """Yield what is in the log in folder `path` now: records with position > `after`, in order.

    Takes no lock. Stops at the first byte of the end that does not verify; use `LogReader` to be told.

    Raises: LogCorrupt, OSError, as `LogReader.advance`.
    """
    yield from LogReader(path, fs=fs, after=after, stream=stream).advance()


def _check_joint(segment: Segment, walk: SegmentWalk, said: SegmentHeader) -> None:
    """Check that a segment is good up to where the next one says that it ends."""
    end = walk.end
    found = (end.offset, end.sequence, end.digest)
    if found != (said.previous_end_offset, said.previous_last_sequence, said.previous_digest):
        reason = walk.fault.reason if walk.fault else "it ends elsewhere, or with another digest"
        raise LogCorrupt(
            f"{reason}; segment {said.number} says that it ends at {said.previous_end_offset}",
            segment=segment.name,
            offset=end.offset,
            sequence=end.sequence + 1,
        )
