"""The reference log: the contract in its shortest form, and the fake for users' tests.

Rule: whatever the contract lets a caller see, it shows in the same order as the file log.
Does not know: files, threads. Nothing survives the process.
"""

import os
import time
from collections.abc import Callable, Iterator

from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled

from evsrc.errors import Closed, InternalError
from evsrc.log.base import Guarantees, Landed, Log, LogStatistics, Record
from evsrc.log.streams import Heads, check_limits


class MemoryLog(Log):
    """A log in a list. `namespace` is drawn from `entropy` if not given; `clock` gives nanoseconds."""

    def __init__(
        self,
        *,
        namespace: str | None = None,
        clock: Callable[[], int] = time.time_ns,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._log_id = entropy(16).hex()
        self._namespace = entropy(16).hex() if namespace is None else namespace
        self._clock = clock
        self._heads = Heads()
        self._records: list[Record] = []
        self._durable_position = 0
        self._syncs = 0
        self._bytes = 0
        self._closed = False

    @property
    def log_id(self) -> str:
        """Hex id of this log, drawn when it was made."""
        return self._log_id

    @property
    def namespace(self) -> str:
        """What idempotency keys are derived under."""
        return self._namespace

    @property
    def last_position(self) -> int:
        """Position of the last record, 0 if none."""
        return len(self._records)

    @property
    def durable_position(self) -> int:
        """Moves as a file log's would, so that a test sees what is not yet synced."""
        return self._durable_position

    def version(self, stream: str) -> int:
        """How many events the stream holds; 0 if unknown."""
        return self._heads.version(stream)

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
        """Append one record; see `Log.append`. Never raises LogFull or LogPoisoned."""
        self._check_open()
        check_limits(stream, body, count)
        await checkpoint_if_cancelled()
        record, payload = self._heads.next(
            stream, body, count=count, expected=expected, time_ns=self._clock()
        )
        self._records.append(record)
        self._bytes += len(payload)
        if durable:
            self._sync()
        failure = _call(landed, record)
        # The other half of one checkpoint. It stands behind the landing, as the file log's wait does.
        await cancel_shielded_checkpoint()
        if failure is not None:
            raise InternalError(f"`landed` raised for position {record.position}") from failure
        return record

    async def sync(self) -> None:
        """Count what landed as durable.

        Raises: Closed: the log is closed.
        """
        self._check_open()
        await checkpoint_if_cancelled()
        self._sync()
        await cancel_shielded_checkpoint()

    def records(self, *, after: int = 0, stream: str | None = None) -> Iterator[Record]:
        """Landed records with position > `after`, in order; works on a closed log too."""
        for record in self._records[max(after, 0) : self.last_position]:
            if stream is None or record.stream == stream:
                yield record

    def guarantees(self) -> Guarantees:
        """Nothing survives; there is no second writer to refuse."""
        return Guarantees(
            survives_kill=False, survives_power_loss=False, single_writer=False, shared=False
        )

    def statistics(self) -> LogStatistics:
        """Counters; a sync is what a file log would have synced."""
        records = len(self._records)
        return LogStatistics(
            records=records, writes=records, syncs=self._syncs, bytes_written=self._bytes
        )

    async def aclose(self) -> None:
        """Close for appends. Idempotent."""
        if not self._closed:
            self._sync()
            self._closed = True
        await cancel_shielded_checkpoint()

    def _sync(self) -> None:
        if self._durable_position < self.last_position:
            self._durable_position = self.last_position
            self._syncs += 1

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log is closed: open it anew")


def _call(landed: Landed | None, record: Record) -> Exception | None:
    """Run `landed`; what it raises, against its contract, goes to the appender and to nobody else."""
    if landed is None:
        return None
    try:
        landed(record)
    except Exception as error:  # noqa: BLE001 - handed to the appender as InternalError
        return error
    return None
