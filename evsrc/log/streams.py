"""The heads of all streams: what decides the version, the predecessor and the position of an append.

Rule: decided at the hand-over, in one stretch without an await, so that two tasks can never be given
one place. Handed-over appends count although they have not landed: that is what `expected` is for.
Does not know: how a record is stored or when it lands.
"""

from evsrc.errors import LimitExceeded, PositionConflict
from evsrc.log.base import BODY_BYTES_MAX, STREAM_BYTES_MAX, Record
from evsrc.log.envelope import seal


def check_limits(stream: str, body: bytes, count: int) -> None:
    """Refuse what no backend stores.

    Raises: LimitExceeded: names the field, the limit and what was found.
    """
    try:
        stream_bytes = len(stream.encode())
    except UnicodeEncodeError as error:
        raise LimitExceeded("stream: must be encodable as UTF-8, found a lone surrogate") from error
    if not 1 <= stream_bytes <= STREAM_BYTES_MAX:
        raise LimitExceeded(f"stream: 1 to {STREAM_BYTES_MAX} bytes, found {stream_bytes}")
    if len(body) > BODY_BYTES_MAX:
        raise LimitExceeded(f"body: at most {BODY_BYTES_MAX} bytes, found {len(body)}")
    if count < 1:
        raise LimitExceeded(f"count: at least 1 event, found {count}")


class Heads:
    """Version and last record id of every stream, and the last position given out."""

    def __init__(self) -> None:
        self.position = 0
        self._heads: dict[str, tuple[int, bytes]] = {}

    def version(self, stream: str) -> int:
        """How many events the stream holds; 0 if unknown."""
        return self._heads.get(stream, (0, b""))[0]

    def next(
        self, stream: str, body: bytes, *, count: int, expected: int | None, time_ns: int
    ) -> tuple[Record, bytes]:
        """Give the next place to an append: the record and its payload bytes.

        Raises: PositionConflict: the stream is not at `expected`; nothing has changed.
        """
        version, previous = self._heads.get(stream, (0, b""))
        if expected is not None and expected != version:
            raise PositionConflict(
                f"stream {stream!r} is at version {version}, the append expected {expected}:"
                " read the stream again and decide again"
            )
        record, payload = seal(
            position=self.position + 1,
            stream=stream,
            version=version,
            count=count,
            time_ns=time_ns,
            previous=previous,
            body=body,
        )
        self.admit(record)
        return record, payload

    def admit(self, record: Record) -> None:
        """Take a record as the newest of its stream and of the log.

        Raises: ValueError: position, version or predecessor do not follow what is there.
        """
        version, previous = self._heads.get(record.stream, (0, b""))
        if record.position != self.position + 1:
            raise ValueError(f"position {record.position} follows {self.position}")
        if record.version != version or record.previous != previous:
            raise ValueError(
                f"record says version {record.version} of its stream, the stream is at {version}"
                if record.version != version
                else f"record follows {record.previous.hex()}, the stream's last is {previous.hex()}"
            )
        self.position = record.position
        self._heads[record.stream] = (version + record.count, record.id)
