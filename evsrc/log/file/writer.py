"""Group commit: one thread writes, everybody who waits meanwhile shares the next sync.

    loop                                            thread
    hand_over: into the newest batch  ── queue ──▶  take the oldest batch
                                                    one write, one fdatasync if anybody waits for it
    settle: landed calls, then waiters ◀── one wake-up per batch

There is no timer in group commit: what is handed over while a sync runs is the next batch, and an idle
log pays one sync. The thread's only time-out is `lazy_sync_s`, after which it syncs what nobody waits
for. A dedicated thread was chosen over one worker call per append (three times slower, and a limiter
that others may have used up) and over a task (native asyncio cancellation reaches every task).

Rule: after any error of the file system nothing is written, and nothing acknowledged, ever again.
Does not know: the format of what it writes, nor what an append means.
"""

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import anyio
from anyio.lowlevel import current_token

from evsrc.log.base import Landed, Record

BATCH_RECORDS_MAX = 1024
BATCH_BYTES_MAX = 1024 * 1024
"""One write() up to this size was never seen torn by a killed process."""

OVERHEAD_BYTES = 72
"""What a record takes besides its payload, at most: header and padding."""

QUEUE_BYTES_MAX = 8 * 1024 * 1024
"""What may wait in memory: half a second of a slow disk."""


DRAIN_S = 5.0
"""How long the interpreter's end waits for a log that nobody closed: many slow syncs."""


class Sink(Protocol):
    """What the thread writes to; called by the thread only."""

    @property
    def durable_position(self) -> int:
        """Position of the last record that a sync has covered."""
        ...

    @property
    def unsynced(self) -> bool:
        """Whether anything written is not synced."""
        ...

    def write(self, payloads: Sequence[bytes]) -> None:
        """Write, not sync."""
        ...

    def sync(self) -> None:
        """Make durable what was written."""
        ...

    def close(self) -> None:
        """End cleanly: write and sync what a clean end needs."""
        ...

    def release(self) -> None:
        """Let go of files and locks, whatever happened before."""
        ...


class Pending:
    """One append on its way."""

    __slots__ = ("failure", "landed", "payload", "record")

    def __init__(self, record: Record, payload: bytes, landed: Landed | None) -> None:
        self.record = record
        self.payload = payload
        self.landed = landed
        self.failure: Exception | None = None
        """What `landed` raised, against its contract."""


class Batch:
    """Appends that share one write; `event` is set when they have landed or failed."""

    __slots__ = ("bytes", "durable", "durable_position", "error", "event", "pendings")

    def __init__(self, event: anyio.Event | None) -> None:
        self.pendings: list[Pending] = []
        self.bytes = 0
        self.durable = False
        self.durable_position = 0
        self.error: BaseException | None = None
        self.event = event

    def has_room(self, size: int) -> bool:
        """Whether one more append of `size` bytes shares this write."""
        return len(self.pendings) < BATCH_RECORDS_MAX and self.bytes + size <= BATCH_BYTES_MAX


class Writer:
    """The thread, and the loop's side of it. Made on the loop; `start` runs first in the thread."""

    def __init__(self, start: Callable[[], Sink], *, lazy_sync_s: float | None) -> None:
        self.last_position = 0
        self.durable_position = 0
        self.opened = anyio.Event()
        self.closed = anyio.Event()
        self.error: BaseException | None = None
        """What poisoned the writer, or what `start` raised."""
        self._start = start
        self._lazy_sync_s = lazy_sync_s
        self._lazy_due: float | None = None
        self._post = _poster()
        self._turn = threading.Condition()
        self._queue: deque[Batch] = deque()
        self._settling: deque[Batch] = deque()
        self._queued_bytes = 0
        self._room = anyio.Event()
        self.closing = False
        self._pid = os.getpid()
        _live.add(self)
        # A daemon, so that a log nobody closed does not hang the interpreter's end; see `_drain`.
        self.thread = threading.Thread(target=self._main, name="evsrc-log-writer", daemon=True)
        self.thread.start()

    # ---- on the loop ----------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Whether the queue takes an append of `size` bytes; an empty one takes any."""
        return not self._queued_bytes or self._queued_bytes + size <= QUEUE_BYTES_MAX

    async def wait_room(self) -> None:
        """Wait until something has left the queue, or the writer is closing. Cancellable."""
        await self._room.wait()

    def hand_over(self, pending: Pending, *, durable: bool) -> Batch:
        """Queue an append. From here on it lands or fails, whoever is cancelled."""
        size = len(pending.payload) + OVERHEAD_BYTES
        with self._turn:
            batch = self._newest(size)
            batch.pendings.append(pending)
            batch.bytes += size
            batch.durable |= durable
            self._turn.notify()
        self._queued_bytes += size
        return batch

    def request_sync(self) -> Batch:
        """Queue a sync of everything handed over so far."""
        with self._turn:
            batch = self._newest(0)
            batch.durable = True
            self._turn.notify()
        return batch

    def close(self) -> None:
        """Take nothing more, land what is queued, end. `closed` is set when files and locks are free."""
        with self._turn:
            self.closing = True
            self._turn.notify()
        self._open_room()

    def drain(self) -> None:
        """Close without a loop, at the interpreter's end; not in a forked child, which has no thread."""
        if os.getpid() == self._pid:
            with self._turn:
                self.closing = True
                self._turn.notify()
            self.thread.join(DRAIN_S)

    def _newest(self, size: int) -> Batch:
        if self._queue and self._queue[-1].has_room(size):
            return self._queue[-1]
        batch = Batch(anyio.Event())
        self._queue.append(batch)
        return batch

    def _settle(self) -> None:
        """Tell the loop's side what happened, in log order; runs on the loop, posted by the thread."""
        while self._settling:
            batch = self._settling.popleft()
            self._queued_bytes -= batch.bytes
            if batch.error is None:
                self.durable_position = batch.durable_position
                for pending in batch.pendings:
                    self._land(pending)
            if batch.event is not None:
                batch.event.set()
        self._open_room()

    def _land(self, pending: Pending) -> None:
        self.last_position = pending.record.position
        if pending.landed is None:
            return
        try:
            pending.landed(pending.record)
        except Exception as error:  # noqa: BLE001 - kept for its appender; the others' records land
            pending.failure = error

    def _open_room(self) -> None:
        room, self._room = self._room, anyio.Event()
        room.set()

    # ---- in the thread --------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            sink = self._start()
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for `opened`
            self.error = error
            self._wake(self.opened.set, self.closed.set)
            return
        self._wake(self.opened.set)
        while (batch := self._take(sink)) is not None:
            self._commit(sink, batch)
        self._end(sink)

    def _take(self, sink: Sink) -> Batch | None:
        """Wait for work: the oldest batch, an empty one when a lazy sync is due, None at the end."""
        with self._turn:
            while not self._queue:
                if self.closing:
                    return None
                rest_s = self._lazy_rest_s(sink)
                if rest_s is not None and rest_s <= 0:
                    return Batch(None)
                self._turn.wait(rest_s)
            return self._queue.popleft()

    def _lazy_rest_s(self, sink: Sink) -> float | None:
        """Seconds until a sync is due that nobody asked for; None if none is.

        Counted from the first unsynced write, not from the last: a steady stream of writes that wait
        for nothing would otherwise never be made durable.
        """
        if self._lazy_sync_s is None or not sink.unsynced or self.error is not None:
            self._lazy_due = None
            return None
        if self._lazy_due is None:
            self._lazy_due = time.monotonic() + self._lazy_sync_s
        return self._lazy_due - time.monotonic()

    def _commit(self, sink: Sink, batch: Batch) -> None:
        try:
            if self.error is not None:
                raise self.error
            sink.write([pending.payload for pending in batch.pendings])
            rest_s = self._lazy_rest_s(sink)
            if batch.durable or (rest_s is not None and rest_s <= 0):
                sink.sync()
                self._lazy_due = None
        except BaseException as error:  # noqa: BLE001 - poison: kept for this and every later append
            self.error = batch.error = error
        batch.durable_position = sink.durable_position
        self._settling.append(batch)
        self._wake(self._settle)

    def _end(self, sink: Sink) -> None:
        try:
            if self.error is None:
                sink.close()
        except BaseException as error:  # noqa: BLE001 - raised by whoever closes the log
            self.error = error
        sink.release()
        durable_position = sink.durable_position

        def settle() -> None:
            self.durable_position = durable_position
            self.closed.set()

        self._wake(settle)

    def _wake(self, *callbacks: Callable[[], None]) -> None:
        """Run callbacks on the loop, without waiting for it."""
        try:
            for callback in callbacks:
                self._post(callback)
        except RuntimeError:
            # The loop is gone (asyncio: closed; trio: RunFinishedError), so nobody waits or will come:
            # end, and free the lock.
            self.closing = True


_live: "weakref.WeakSet[Writer]" = weakref.WeakSet()


@atexit.register
def _drain() -> None:
    """Land what was handed over by tasks that did not wait for it, before daemon threads are frozen."""
    for writer in list(_live):
        writer.drain()


def _poster() -> Callable[[Callable[[], None]], object]:
    """How a foreign thread runs a callback on the current loop; neither loop is imported for it."""
    native: Any = current_token().native_token  # an asyncio loop, or a TrioToken
    post: Callable[[Callable[[], None]], object] = (
        getattr(native, "run_sync_soon", None) or native.call_soon_threadsafe
    )
    return post


async def hold(event: anyio.Event) -> None:
    """Wait for `event` through the first cancellation, then re-raise it; a second one leaves at once.

    anyio and trio scopes are kept out by the shield. It does not stop asyncio's own cancellation
    (`asyncio.timeout`, `wait_for`, `task.cancel()`), nor trio's Ctrl-C: these are held once.
    """
    held: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not event.is_set():
            try:
                await event.wait()
            except BaseException as error:
                if held is not None:
                    raise
                held = error
    if held is not None:
        raise held
