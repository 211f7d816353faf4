"""The Log contract: an ordered, append-only store of records, each the property of one stream.

Rule: a record is the unit of atomicity: it is there whole, in its place, or not at all. What a backend
promises beyond that is said by `guarantees()`, and the contract suite tests exactly what is claimed.
Does not know: what a body means. Imports errors only.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import msgspec

BODY_BYTES_MAX = 1024 * 1024
"""Largest body of one record: one write() of this size was never seen torn by a killed process."""

STREAM_BYTES_MAX = 200
"""Longest stream name in UTF-8: ids come from alerts, which attackers write."""


class Record(msgspec.Struct, frozen=True):
    """One record as stored. `id` is the SHA-256 of the envelope's bytes; `previous` that of its stream."""

    position: int
    """1, 2, 3 ... over the whole log, without gaps."""
    stream: str
    version: int
    """How many events the stream held before this record."""
    count: int
    """How many events the body holds, at least 1."""
    time_ns: int
    previous: bytes
    """Record id of the stream's record before this one; empty for the first."""
    body: bytes
    id: bytes
    epoch: int = 0
    token: str = ""


class Guarantees(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend promises; the contract suite is gated by these."""

    survives_kill: bool
    survives_power_loss: bool
    single_writer: bool
    """A second writer is refused while the first lives."""
    shared: bool
    """Several processes may write, fenced by epoch and token."""
    ordered_reads: bool = True
    body_bytes_max: int = BODY_BYTES_MAX


class LogStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the log was opened."""

    records: int
    writes: int
    syncs: int
    bytes_written: int


Landed = Callable[[Record], None]


class Log(ABC):
    """An append-only log of records in streams. Use as an async context manager; owned by one event loop."""

    @property
    @abstractmethod
    def log_id(self) -> str:
        """Hex id of this copy of the log."""

    @property
    @abstractmethod
    def namespace(self) -> str:
        """What idempotency keys are derived under; kept by backups and copies, unlike `log_id`."""

    @property
    @abstractmethod
    def last_position(self) -> int:
        """Position of the last record that landed, 0 if none."""

    @property
    @abstractmethod
    def durable_position(self) -> int:
        """Every record up to here survives what `guarantees()` says."""

    @abstractmethod
    def version(self, stream: str) -> int:
        """How many events the stream holds, handed-over appends included; 0 if unknown."""

    @abstractmethod
    async def append(
        self,
        stream: str,
        body: bytes,
        *,
        count: int = 1,
        expected: int | None = None,
        durable: bool = True,
        essential: bool = False,
        landed: Landed | None = None,
    ) -> Record:
        """Append one record and return it once it landed.

        `durable=True` lands when synced, together with everything before it; `durable=False` when
        written: it survives a kill, and power loss once a later sync covers it. `landed` runs on the
        event loop, in log order over all streams, before any waiter of `append` wakes; it must not
        raise. `essential` records (results, settlements) are still written when room is short.

        Cancellation: before the hand-over nothing happened; after it, this waits for the landing once
        and re-raises the first exception; a second one leaves at once and the record still lands.

        Raises:
            PositionConflict: `expected` is given and the stream is not at that version.
            LimitExceeded: stream name or body is over its limit, or count is below 1.
            LogFull: room is short and the record is not essential.
            LogPoisoned: a write or sync failed now or earlier; nothing is acknowledged.
            Closed: the log is closed, or was opened in another process.
        """

    @abstractmethod
    async def sync(self) -> None:
        """Return once everything that landed is durable. Costs nothing if it already is.

        Raises: LogPoisoned, Closed, as `append`.
        """

    @abstractmethod
    def records(self, *, after: int = 0, stream: str | None = None) -> Iterator[Record]:
        """Landed records with position > `after`, in order, optionally of one stream.

        Raises:
            LogCorrupt: a record does not verify.
        """

    @abstractmethod
    def guarantees(self) -> Guarantees:
        """What this backend promises."""

    @abstractmethod
    def statistics(self) -> LogStatistics:
        """Counters since the log was opened."""

    @abstractmethod
    async def aclose(self) -> None:
        """Land what was handed over, make it durable, release the log. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()
