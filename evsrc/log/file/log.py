"""`FileLog`: the local file log. One folder, one writer, any number of readers.

Rule: an append is decided on the loop in one stretch, written by one thread, and seen by nobody before
it landed. State that must follow the log is changed in `landed`, never behind the caller's await.
Does not know: what a body means. The format is told in framing.py, opening in recovery.py, group commit
in writer.py.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Self

from anyio.lowlevel import checkpoint_if_cancelled

from evsrc.errors import Closed, InternalError, LogPoisoned
from evsrc.log.base import Guarantees, Landed, Log, LogStatistics, Record
from evsrc.log.file.appender import SEGMENT_BYTES_MAX, Appender
from evsrc.log.file.fs import Fs, RealFs
from evsrc.log.file.reader import LogReader
from evsrc.log.file.recovery import Opened, Recovery, Settings, open_folder
from evsrc.log.file.writer import Batch, Pending, Writer, hold
from evsrc.log.streams import check_limits

LAZY_SYNC_S = 0.01
"""How long what nobody waits for may stay unsynced: short against a person, long against a sync."""


class FileLog(Log):
    """A log in a folder, in format 1. Open it with `FileLog.open`; it belongs to that event loop."""

    def __init__(self, settings: Settings, lazy_sync_s: float | None) -> None:
        """Use `FileLog.open`: this only starts the thread that recovers and writes."""
        self._settings = settings
        self._pid = os.getpid()
        self._box: list[Opened] = []
        self._writer = Writer(self._start, lazy_sync_s=lazy_sync_s)

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        namespace: str | None = None,
        clock: Callable[[], int] = time.time_ns,
        entropy: Callable[[int], bytes] = os.urandom,
        fs: Fs | None = None,
        lazy_sync_s: float | None = LAZY_SYNC_S,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> Self:
        """Open the log in folder `path` for writing; create it, with `namespace`, if it is not there.

        Recovers first; `log.recovery` tells what it found. `lazy_sync_s`: seconds after which appends
        that were not `durable` are synced, None for never by itself. `clock` gives nanoseconds since
        1970, `entropy` that many random bytes. Cancelled, it leaves nothing open.

        Raises:
            LogLocked: another process, or this one, has it open for writing; names the holder.
            LogCorrupt: acknowledged data is damaged or missing; nothing was changed.
            CallerError: the log was made with another namespace.
            LimitExceeded: the namespace is too long.
            OSError: the folder cannot be used.
        """
        settings = Settings(
            folder=os.fspath(path),
            fs=RealFs() if fs is None else fs,
            namespace=namespace,
            clock=clock,
            entropy=entropy,
            segment_bytes_max=segment_bytes_max,
        )
        await checkpoint_if_cancelled()
        log = cls(settings, lazy_sync_s)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(log.aclose)
            await hold(log._writer.opened)
            undo.pop_all()
        if not log._box:
            raise log._writer.error or InternalError("the log neither opened nor failed")
        log._writer.last_position = log._opened.recovery.records
        log._writer.durable_position = log._writer.last_position
        return log

    @property
    def path(self) -> str:
        """The folder, as it was given."""
        return self._settings.folder

    @property
    def log_id(self) -> str:
        """Hex id of this copy of the log."""
        return self._opened.meta.log_id

    @property
    def namespace(self) -> str:
        """What idempotency keys are derived under."""
        return self._opened.meta.namespace

    @property
    def recovery(self) -> Recovery:
        """What opening found: new, clean, or a torn tail, with its place and where it was kept."""
        return self._opened.recovery

    @property
    def last_position(self) -> int:
        """Position of the last record that landed, 0 if none."""
        return self._writer.last_position

    @property
    def durable_position(self) -> int:
        """Every record up to here survives a kill and the loss of power."""
        return min(self._writer.durable_position, self._writer.last_position)

    def version(self, stream: str) -> int:
        """How many events the stream holds, handed-over appends included; 0 if unknown."""
        return self._opened.heads.version(stream)

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
        """Append one record and return it once it landed; see `Log.append`.

        `essential` changes nothing yet: a full disk poisons the log like any failed write.
        """
        check_limits(stream, body, count)
        await checkpoint_if_cancelled()
        self._check_usable()
        while not self._writer.has_room(len(body)):
            await self._writer.wait_room()
            self._check_usable()
        record, payload = self._opened.heads.next(
            stream, body, count=count, expected=expected, time_ns=self._settings.clock()
        )
        pending = Pending(record, payload, landed)
        await self._landing(self._writer.hand_over(pending, durable=durable))
        if pending.failure is not None:
            message = f"`landed` raised for position {record.position}, which is in the log"
            raise InternalError(message) from pending.failure
        return record

    async def sync(self) -> None:
        """Return once everything handed over is durable; see `Log.sync`."""
        await checkpoint_if_cancelled()
        self._check_usable()
        if self.durable_position < self._opened.heads.position:
            await self._landing(self._writer.request_sync())

    def records(self, *, after: int = 0, stream: str | None = None) -> Iterator[Record]:
        """Landed records with position > `after`, in order, read from the files; see `Log.records`.

        Reads and blocks the loop meanwhile: about 100,000 records a second. Works after `aclose` too.
        """
        last_position = self.last_position
        reader = LogReader(self._settings.folder, fs=self._settings.fs, after=after, stream=stream)
        return reader.read_landed(last_position)

    def guarantees(self) -> Guarantees:
        """One writer; records survive a kill when written, the loss of power when synced."""
        return Guarantees(
            survives_kill=True, survives_power_loss=True, single_writer=True, shared=False
        )

    def statistics(self) -> LogStatistics:
        """Counters of the thread since the log was opened: a sync is one fdatasync of a segment."""
        appender = self._opened.appender
        return LogStatistics(
            records=appender.records,
            writes=appender.writes,
            syncs=appender.syncs,
            bytes_written=appender.bytes_written,
        )

    async def aclose(self) -> None:
        """Land what was handed over, make it durable, release the log. Idempotent.

        In a forked child it does nothing: the log is the parent's.

        Raises: LogPoisoned: closing itself failed, so what nobody waited for may not be durable.
        """
        if os.getpid() != self._pid:
            return
        failed_before = self._writer.error is not None or self._writer.closing
        self._writer.close()
        await hold(self._writer.closed)
        self._writer.thread.join()
        if self._box and self._writer.error is not None and not failed_before:
            raise self._poisoned(self._writer.error)

    @property
    def _opened(self) -> Opened:
        return self._box[0]

    def _start(self) -> Appender:
        opened = open_folder(self._settings)
        self._box.append(opened)
        return opened.appender

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise Closed(f"log opened in process {self._pid}, used in {os.getpid()}: open it anew")
        if self._writer.closing:
            raise Closed("the log is closed: open it anew")
        if self._writer.error is not None:
            raise self._poisoned(self._writer.error)

    async def _landing(self, batch: Batch) -> None:
        assert batch.event is not None, "a batch that the loop made has an event"
        await hold(batch.event)
        if batch.error is not None:
            raise self._poisoned(batch.error)

    def _poisoned(self, cause: BaseException) -> LogPoisoned:
        error = LogPoisoned(
            f"a write or sync of log {self._settings.folder} failed ({cause!r}): nothing is written"
            " any more by this handle; open the log anew, which rereads what is there"
        )
        error.__cause__ = cause
        return error
