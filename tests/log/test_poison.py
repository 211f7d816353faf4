"""H09: after one failed write or sync the handle never writes again; opening anew tells the truth."""

import errno
import threading
from pathlib import Path

import anyio
import pytest

from evsrc.errors import LogCorrupt, LogPoisoned
from evsrc.log.file.log import FileLog
from evsrc.verify import verify
from tests.log.support import CountingFs, wait_until


class Failing:
    """Fails the n-th call of the given names, once or from then on."""

    def __init__(
        self, nth: int, *names: str, error: int = errno.EIO, lasting: bool = False
    ) -> None:
        self.left = nth
        self.names = names
        self.error = error
        self.lasting = lasting
        self.failed = False

    def __call__(self, call: str) -> None:
        if call not in self.names and self.names:
            return
        self.left -= 1
        if self.left == 0 or (self.lasting and self.left < 0):
            self.failed = True
            raise OSError(self.error, "as the test wants it")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", ["write", "fdatasync", "pwrite"])
async def test_h09_the_sync_fails_then_works(call: str, error: int, tmp_path: Path) -> None:
    """Once a call failed, all on their way and all later fail, and nothing more is written."""
    fs = CountingFs()
    log = await FileLog.open(tmp_path / "log", fs=fs, lazy_sync_s=None)
    await log.append("s", b"good")
    failing = Failing(1, call, error=error)
    fs.before = failing
    outcomes: list[str] = []

    async def fail(name: str) -> None:
        with pytest.raises(LogPoisoned, match="as the test wants it") as poisoned:
            await log.append(name, b"X", landed=lambda record: outcomes.append("landed"))
        assert isinstance(poisoned.value.__cause__, OSError)
        outcomes.append("refused")

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(fail, f"s{number}")
    calls = len(fs.calls)
    for again in (log.append("s", b"Y"), log.append("s", b"Y", durable=False), log.sync()):
        with pytest.raises(LogPoisoned):
            await again
    assert outcomes == ["refused"] * 5
    assert (log.last_position, log.durable_position) == (1, 1)
    assert [record.body for record in log.records()] == [b"good"]
    await log.aclose()
    assert fs.calls[calls:] == [], "it touched the disk after the failure"

    async with await FileLog.open(tmp_path / "log") as again_log:
        bodies = [record.body for record in again_log.records()]
        # X is wholly there or wholly gone, and may not be acknowledged either way.
        assert bodies == [b"good"] + [b"X"] * (len(bodies) - 1)
        assert (await again_log.append("s", b"Z")).position == len(bodies) + 1
    assert verify(tmp_path / "log").state == "clean"


async def test_what_waits_behind_a_failure_is_not_written(tmp_path: Path) -> None:
    """Appends handed over while the failing sync was under way fail too, and leave no byte."""
    fs = CountingFs()
    log = await FileLog.open(tmp_path / "log", fs=fs, lazy_sync_s=None)
    failing = Failing(1, "fdatasync")
    entered, handed_over = threading.Event(), threading.Event()

    def fail_late(call: str) -> None:
        if call == "fdatasync":
            entered.set()
            assert handed_over.wait(5)
        failing(call)

    fs.before = fail_late

    async def fail(name: str) -> None:
        with pytest.raises(LogPoisoned):
            await log.append(name, b"x")

    async with anyio.create_task_group() as group:
        group.start_soon(fail, "first")
        await wait_until(entered.is_set)
        fs.calls.clear()
        group.start_soon(fail, "behind")
        await wait_until(lambda: log.version("behind") == 1)
        handed_over.set()
    await log.aclose()
    assert fs.calls == []


async def test_closing_that_fails_says_so(tmp_path: Path) -> None:
    """What nobody waited for may be lost when the last sync fails: closing raises, and frees the lock."""
    fs = CountingFs()
    log = await FileLog.open(tmp_path / "log", fs=fs, lazy_sync_s=None)
    await log.append("s", b"x", durable=False)
    fs.before = Failing(1, "fdatasync")
    with pytest.raises(LogPoisoned):
        await log.aclose()
    await log.aclose()
    async with await FileLog.open(tmp_path / "log") as again:
        assert not again.recovery.clean


async def test_a_lazy_sync_that_fails_poisons(tmp_path: Path) -> None:
    """A failed sync that nobody waited for is told to the next who asks."""
    fs = CountingFs()
    log = await FileLog.open(tmp_path / "log", fs=fs, lazy_sync_s=0.001)
    fs.before = Failing(1, "fdatasync")
    await log.append("s", b"x", durable=False)
    await wait_until(lambda: "fdatasync" in fs.calls[-1:])
    await anyio.sleep(0.005)
    with pytest.raises(LogPoisoned):
        await log.append("s", b"y")
    await log.aclose()


async def test_short_writes_are_continued(tmp_path: Path) -> None:
    """A disk that takes seven bytes at a time gets everything, in order."""

    class ShortFs(CountingFs):
        def write(self, descriptor: int, data: memoryview) -> int:
            return super().write(descriptor, data[:7])

    async with await FileLog.open(tmp_path / "log", fs=ShortFs()) as log:
        for number in range(5):
            await log.append("s", b"%d" % number)
    assert verify(tmp_path / "log").records == 5


@pytest.mark.parametrize("lasting", [False, True])
def test_an_error_or_a_crash_at_every_call(lasting: bool, tmp_path: Path) -> None:
    """Whichever call of opening, rolling, syncing or closing is the last one: a prefix, with all
    that was acknowledged, and never a refusal. (The files are what a kill at that call leaves.)"""
    for nth in range(1, 200):
        folder, fs = tmp_path / f"{nth}", CountingFs()
        failing = fs.before = Failing(nth, lasting=lasting)
        acknowledged = anyio.run(_use, folder, fs)
        anyio.run(_check, folder, acknowledged)
        if not failing.failed:
            assert nth > 60, "the scenario does less than it should"
            return
    raise AssertionError("the scenario never ended")


async def _use(folder: Path, fs: CountingFs) -> list[bytes]:
    """Two openings with rolled segments; returns what was acknowledged before the failure."""
    acknowledged: list[bytes] = []
    for opening in range(2):
        try:
            log = await FileLog.open(folder, fs=fs, lazy_sync_s=None, segment_bytes_max=600)
        except OSError:
            return acknowledged
        except LogCorrupt as halt:
            if "cannot be synced before it is read" not in halt.reason:
                raise
            return acknowledged
        try:
            for number in range(6):
                body = b"%d" % (opening * 6 + number)
                await log.append("s", body, durable=number % 2 == 1)
                if number % 2 == 1:
                    acknowledged = [b"%d" % n for n in range(opening * 6 + number + 1)]
            await log.aclose()
        except LogPoisoned:
            await log.aclose()
            return acknowledged
    return acknowledged


async def _check(folder: Path, acknowledged: list[bytes]) -> None:
    for _ in range(2):  # recovery twice is recovery once
        async with await FileLog.open(folder) as log:
            bodies = [record.body for record in log.records()]
            assert bodies[: len(acknowledged)] == acknowledged
            assert bodies == [b"%d" % n for n in range(len(bodies))]
    assert verify(folder).state == "clean"
