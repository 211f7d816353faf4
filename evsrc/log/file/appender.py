"""The write side of format 1: payloads in, records on disk, one after the other.

Rule: plain and synchronous, called by one thread only. It owns offset, sequence number, chain digest
and flush number; nobody else ever touches them. After any error it must not be called again.
Does not know: tasks, threads, batches, who waits.

What is synced, in which order:

    append   write, fdatasync of the segment; then the mark, written and not synced: it may lag
    roll     fdatasync of the old segment; mark written and synced; the new segment's header written and
             synced under a temporary name, renamed, folder synced; only then is a record written to it
    close    a close record, fdatasync; mark written and synced
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from evsrc.log.file.framing import (
    CLOSE,
    DATA,
    LAST_OF_GROUP,
    SEGMENT_HEADER_BYTES,
    Cursor,
    RecordHeader,
    SegmentHeader,
    encode_record,
    encode_segment_header,
    start_of,
)
from evsrc.log.file.fs import Fs, new_file, write_all
from evsrc.log.file.lock import FolderLock
from evsrc.log.file.mark import MARK_NAME, Mark, encode_slot
from evsrc.log.file.segments import segment_name

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""A segment is rolled before it passes this: one is read whole in about a second."""


class Appender:
    """Appends to the last segment of a recovered log, and rolls it."""

    def __init__(
        self,
        fs: Fs,
        folder: str,
        *,
        header: SegmentHeader,
        segment: int,
        mark_file: int,
        end: Cursor,
        position: int,
        mark: Mark,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        lock: FolderLock,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        """Go on at `end`; `segment` and `mark_file` are open descriptors, closed by `release`."""
        self._lock = lock
        self._fs = fs
        self._folder = folder
        self._header = header
        self._segment = segment
        self._end = end
        self._mark = mark
        self._clock = clock
        self._entropy = entropy
        self._segment_bytes_max = segment_bytes_max
        self._mark_file = mark_file
        self.position = position
        self.durable_position = position
        self.unsynced = False
        self.dirty = False
        """The log does not end with a close record: one is owed."""
        self.records = self.writes = self.syncs = self.bytes_written = 0

    def write(self, payloads: Sequence[bytes]) -> None:
        """Append one data record per payload, with one write; durable after the next `sync`.

        Raises: OSError: nothing is known of the records; do not call again.
        """
        if not payloads:
            return
        room = sum(len(payload) + 72 for payload in payloads)
        if self._end.offset > SEGMENT_HEADER_BYTES and (
            self._end.offset + room > self._segment_bytes_max
        ):
            self._roll()
        self._write([(DATA, payload) for payload in payloads])
        self.position += len(payloads)
        self.records += len(payloads)

    def sync(self) -> None:
        """Make everything written durable, and mark it; nothing if it is.

        Raises: OSError: do not call again, a second sync would falsely succeed.
        """
        if not self.unsynced:
            return
        self._fs.fdatasync(self._segment)
        self.syncs += 1
        self.unsynced = False
        self._end = next_flush(self._end)
        self.durable_position = self.position
        self._write_mark()

    def close(self) -> None:
        """End cleanly: close record, sync, mark synced. Then call `release`. Raises OSError."""
        if not self.dirty:
            return
        self._write([(CLOSE, b"")])
        self.sync()
        self._fs.fsync(self._mark_file)

    def release(self) -> None:
        """Close the files, then free the lock. What had to be durable is, or its failure was raised."""
        for descriptor in (self._mark_file, self._segment):
            with suppress(OSError):
                self._fs.close(descriptor)
        self._lock.release()

    def _write(self, records: Sequence[tuple[int, bytes]]) -> None:
        end, pieces = self._end, list[bytes]()
        for kind, payload in records:
            end.sequence, end.flush_index = end.sequence + 1, end.flush_index + 1
            header = RecordHeader(
                len(payload),
                end.sequence,
                kind,
                LAST_OF_GROUP,
                end.flush,
                end.flush_index,
                end.digest,
            )
            piece, end.digest = encode_record(payload, header, salt=self._header.salt)
            pieces.append(piece)
        data = b"".join(pieces)
        # Set first: a write that fails half-way leaves bytes whose fate is unknown.
        self.unsynced = self.dirty = True
        self.writes += write_all(self._fs, self._segment, data)
        self.bytes_written += len(data)
        end.offset += len(data)

    def _write_mark(self) -> None:
        self._mark = Mark(
            log_id=self._header.log_id,
            counter=self._mark.counter + 1,
            segment=self._header.number,
            end_offset=self._end.offset,
            last_sequence=self._end.sequence,
            digest=self._end.digest,
        )
        slot = encode_slot(self._mark)
        if self._fs.pwrite(self._mark_file, slot, self._mark.slot_offset) != len(slot):
            raise OSError(f"{MARK_NAME}: short write")

    def mark(self) -> None:
        """Write the mark for where the log ends now, and sync it. Raises OSError."""
        self._write_mark()
        self._fs.fsync(self._mark_file)

    def _roll(self) -> None:
        self.sync()
        self._fs.fsync(self._mark_file)
        header = following(
            self._header,
            self._end,
            position=self.position,
            salt=self._entropy(16),
            created_ns=self._clock(),
        )
        descriptor = create_segment(self._fs, self._folder, header, self._entropy(4))
        # Replaced before it is closed: `release` must never close one number twice.
        old, self._segment = self._segment, descriptor
        self._header, self._end = header, next_flush(start_of(header))
        self._fs.close(old)


def next_flush(end: Cursor) -> Cursor:
    """Turn where a reader stands into where a writer goes on: its next record opens a flush."""
    return Cursor(end.offset, end.sequence, end.digest, end.flush + 1, -1)


def following(
    previous: SegmentHeader, end: Cursor, *, position: int, salt: bytes, created_ns: int
) -> SegmentHeader:
    """Return the header of the segment that follows `previous`, which ends at `end`."""
    return SegmentHeader(
        log_id=previous.log_id,
        number=previous.number + 1,
        base_sequence=end.sequence + 1,
        salt=salt,
        created_ns=created_ns,
        previous_number=previous.number,
        previous_end_offset=end.offset,
        previous_last_sequence=end.sequence,
        previous_digest=end.digest,
        base_position=position + 1,
    )


def create_segment(fs: Fs, folder: str, header: SegmentHeader, random: bytes) -> int:
    """Create a segment and return it, open for appending. Raises OSError."""
    name = segment_name(header.base_sequence, random)
    return new_file(fs, folder, name, encode_segment_header(header))
