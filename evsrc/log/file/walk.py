"""A walk over the records of one segment: frames in, whole groups of records out.

Rule: pure; a record is yielded only when its group is whole, in order, once. At the first fault the
walk stops, keeps its place, and says why in `fault`.
Does not know: files, other segments, what a fault means (see recovery.py).
"""

from collections.abc import Iterator

from evsrc.log.base import Record
from evsrc.log.envelope import unseal
from evsrc.log.file.framing import (
    CLOSE,
    DATA,
    LAST_OF_GROUP,
    Cursor,
    Fault,
    Frame,
    SegmentHeader,
    next_frame,
    start_of,
)


class SegmentWalk:
    """Where a reader stands in one segment."""

    def __init__(self, header: SegmentHeader, *, watch_offset: int = -1) -> None:
        """Start at the first record; `watched` will tell what stood at `watch_offset`."""
        self.header = header
        self.cursor = start_of(header)
        self.position = header.base_position - 1
        self.fault: Fault | None = None
        self.ends_with_close = False
        self.watched: tuple[int, bytes] | None = None
        self._watch_offset = watch_offset
        self._group: list[Record] = []
        self._group_start: Cursor | None = None
        self._watch()

    @property
    def end(self) -> Cursor:
        """Behind the last whole group: where the log ends if nothing more is good."""
        return self._group_start or self.cursor

    @property
    def end_position(self) -> int:
        """Position of the last record in a whole group."""
        return self.position - len(self._group)

    def read(self, data: bytes, base: int = 0) -> Iterator[Record]:
        """Yield the records of `data`, which are the segment's bytes from offset `base` on."""
        self.fault = None
        while True:
            digest, flush, index = self.cursor.digest, self.cursor.flush, self.cursor.flush_index
            frame = next_frame(data, base, self.cursor, salt=self.header.salt)
            if frame is None:
                return
            if isinstance(frame, Fault):
                self.fault = frame
                return
            self._watch()
            start = Cursor(frame.offset, frame.header.sequence - 1, digest, flush, index)
            if not self._take(frame, start):
                return
            if self._group_start is None and self._group:
                group, self._group = self._group, []
                yield from group

    def _take(self, frame: Frame, start: Cursor) -> bool:
        """Put a frame into the current group; False if it holds what cannot be read."""
        last = bool(frame.header.flags & LAST_OF_GROUP)
        self.ends_with_close = frame.header.kind == CLOSE
        if frame.header.kind == DATA:
            try:
                self._group.append(unseal(frame.payload, self.position + 1))
            except ValueError as error:
                reason = f"the payload is not an envelope: {error}"
                self.fault = Fault(
                    frame.offset, frame.header.sequence, reason, frame.header, intact=True
                )
                self.cursor = start
                return False
            self.position += 1
        if last:
            self._group_start = None
        elif self._group_start is None:
            self._group_start = start
        return True

    def _watch(self) -> None:
        if self.cursor.offset == self._watch_offset:
            self.watched = (self.cursor.sequence, self.cursor.digest)
