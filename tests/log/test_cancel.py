"""H10: an append that is cancelled half-way is in memory and on disk, or in neither."""

import random
import time
from pathlib import Path

import anyio
import pytest

from evsrc.log.base import Record
from evsrc.log.file.log import FileLog
from tests.log.support import CountingFs


class SlowFs(CountingFs):
    """A disk that takes its time to sync."""

    def __init__(self, delay_s: float = 0.002) -> None:
        super().__init__()
        self.before = lambda call: time.sleep(delay_s) if call == "fdatasync" else None


async def _check(log: FileLog, folder: Path, landed: list[Record]) -> None:
    """What landed is what is there, unique and without gaps, now and after reopening."""
    assert list(log.records()) == landed
    assert [record.position for record in landed] == list(range(1, len(landed) + 1))
    counts = {record.stream: record.version + record.count for record in landed}
    assert all(log.version(stream) == count for stream, count in counts.items())
    await log.aclose()
    async with await FileLog.open(folder) as again:
        assert list(again.records()) == landed


async def test_h10_fifty_tasks_under_time_outs(tmp_path: Path) -> None:
    """Fifty tasks append under time-outs of 0 to 5 ms, durable or not: live equals reopened."""
    log = await FileLog.open(tmp_path / "log", fs=SlowFs())
    landed: list[Record] = []
    late: list[str] = []
    draws = random.Random(1)

    async def some(name: str) -> None:
        for number in range(6):
            before = log.version(name)
            with anyio.move_on_after(draws.uniform(0, 0.005)):
                await log.append(name, b"x", durable=number % 2 == 0, landed=landed.append)
            # The caller can learn it: the version moved exactly if it was handed over, and then it
            # has landed by now.
            here = [record for record in landed if record.stream == name]
            if len(here) != log.version(name) or log.version(name) - before not in (0, 1):
                late.append(name)

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(some, f"s{number}")
    assert late == []
    assert len(landed) > 50
    await _check(log, tmp_path / "log", landed)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_h10_under_asyncio_timeout(anyio_backend: str, tmp_path: Path) -> None:
    """asyncio's own time-out goes through anyio's shield; it is held until the record landed."""
    import asyncio

    log = await FileLog.open(tmp_path / "log", fs=SlowFs())
    landed: list[Record] = []
    outcomes: set[str] = set()
    draws = random.Random(2)

    async def some(name: str) -> None:
        for _ in range(6):
            try:
                async with asyncio.timeout(draws.uniform(0, 0.005)):
                    await log.append(name, b"x", landed=landed.append)
                outcomes.add("returned")
            except TimeoutError:
                outcomes.add("timed out")
            assert log.version(name) == sum(record.stream == name for record in landed)

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(some(f"s{number}"))
    assert outcomes == {"returned", "timed out"}
    await _check(log, tmp_path / "log", landed)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_second_cancel_leaves_at_once(anyio_backend: str, tmp_path: Path) -> None:
    """Cancelled twice the caller leaves before the landing; the record lands all the same."""
    import asyncio

    log = await FileLog.open(tmp_path / "log", fs=SlowFs(0.1))
    landed: list[Record] = []
    task = asyncio.create_task(log.append("s", b"x", landed=landed.append))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done(), "the first cancel is held"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert landed == []
    assert log.version("s") == 1
    await log.sync()
    assert len(landed) == 1
    await _check(log, tmp_path / "log", landed)


async def test_a_failing_sibling_loses_nothing(tmp_path: Path) -> None:
    """When a task group is torn down by a sibling, the append that was on its way has landed."""
    log = await FileLog.open(tmp_path / "log", fs=SlowFs(0.02))
    landed: list[Record] = []

    async def fail() -> None:
        await anyio.sleep(0.005)
        raise ValueError("sibling")

    async def append() -> None:
        await log.append("s", b"x", landed=landed.append)

    with pytest.raises(ExceptionGroup):
        async with anyio.create_task_group() as group:
            group.start_soon(append)
            group.start_soon(fail)
    assert len(landed) == 1
    await _check(log, tmp_path / "log", landed)


async def test_cancelled_while_waiting_for_room_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is bounded; who waits for room can be cancelled, and then did nothing."""
    monkeypatch.setattr("evsrc.log.file.writer.QUEUE_BYTES_MAX", 3000)
    log = await FileLog.open(tmp_path / "log", fs=SlowFs(0.05))
    landed: list[Record] = []
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(_append, log, f"s{number}", landed)
        await anyio.sleep(0.01)
        waiting = sum(log.version(f"s{number}") == 0 for number in range(5))
        assert waiting == 3
        with anyio.move_on_after(0.01) as scope:
            await log.append("late", bytes(1000))
        assert scope.cancelled_caught
        assert log.version("late") == 0
    assert len(landed) == 5
    await _check(log, tmp_path / "log", landed)


async def _append(log: FileLog, name: str, landed: list[Record]) -> None:
    await log.append(name, bytes(1000), landed=landed.append)


async def test_opening_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    """Cancelled while it recovers, `open` ends, frees the lock, and the log can be opened."""
    fs = SlowFs(0.03)
    async with await FileLog.open(tmp_path / "log"):
        pass
    with anyio.move_on_after(0.005) as scope:
        await FileLog.open(tmp_path / "log", fs=fs)
    # A shielded wait that came to its end is not interrupted: the scope may or may not have caught.
    assert scope.cancel_called
    if scope.cancelled_caught:
        async with await FileLog.open(tmp_path / "log") as log:
            assert log.recovery.clean


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_opening_under_asyncio_timeout(anyio_backend: str, tmp_path: Path) -> None:
    """asyncio's time-out of an opening frees the lock before it is raised."""
    import asyncio

    async with await FileLog.open(tmp_path / "log"):
        pass
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
            await FileLog.open(tmp_path / "log", fs=SlowFs(0.03))
    async with await FileLog.open(tmp_path / "log") as log:
        assert log.recovery.clean
