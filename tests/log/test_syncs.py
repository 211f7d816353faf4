"""How often the disk is waited for: counted at the seam, and once by the kernel's own account."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from evsrc.log.file.framing import Frame, decode_segment_header, next_frame, start_of
from evsrc.log.file.log import FileLog
from tests.log.support import ROOT, CountingFs, wait_until

COUNTED = """
import sys, anyio
from evsrc.log.file.log import FileLog
async def main():
    log = await FileLog.open(sys.argv[1], lazy_sync_s=None)
    for _ in range(10):
        await log.append("s", b"x")
    for _ in range(10):
        await log.append("s", b"x", durable=False)
    await log.aclose()
    print(log.statistics().syncs)
anyio.run(main)
"""


async def test_one_durable_append_is_one_sync(tmp_path: Path) -> None:
    """A durable append waits for the disk once, for the log; the mark is written, not synced."""
    fs = CountingFs()
    async with await FileLog.open(tmp_path / "log", fs=fs, lazy_sync_s=None) as log:
        fs.calls.clear()
        await log.append("s", b"x")
        assert fs.calls == ["write", "fdatasync", "pwrite"]


async def test_an_append_that_is_not_durable_syncs_nothing(tmp_path: Path) -> None:
    """What needs no sync gets none of its own; the next durable append takes it along."""
    fs = CountingFs()
    async with await FileLog.open(tmp_path / "log", fs=fs, lazy_sync_s=None) as log:
        fs.calls.clear()
        for _ in range(20):
            await log.append("s", b"x", durable=False)
        assert fs.calls == ["write"] * 20
        assert log.durable_position == 0
        await log.append("s", b"x")
        assert (fs.syncs, log.durable_position) == (1, 21)


async def test_group_commit(tmp_path: Path) -> None:
    """2,000 durable appends of 200 tasks need at most 100 syncs, on a disk that syncs in 3 ms."""
    fs = CountingFs()
    # A batch is as large as the sync before it is long: microseconds would measure the scheduler.
    fs.before = lambda call: time.sleep(0.003) if call == "fdatasync" else None
    async with await FileLog.open(tmp_path / "log", fs=fs, lazy_sync_s=None) as log:
        fs.calls.clear()

        async def some(name: str) -> None:
            for _ in range(10):
                await log.append(name, b"x" * 100)

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(some, f"s{number}")
        assert log.last_position == log.durable_position == 2000
        assert fs.syncs == log.statistics().syncs
        assert fs.syncs <= 100


async def test_one_wake_up_per_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread wakes the loop once per write, however many appends share it."""
    log = await FileLog.open(tmp_path / "log", lazy_sync_s=None)
    wakes: list[int] = []
    wake = log._writer._wake
    monkeypatch.setattr(log._writer, "_wake", lambda *calls: (wakes.append(1), wake(*calls)))
    async with anyio.create_task_group() as group:
        for number in range(300):
            group.start_soon(log.append, f"s{number}", b"x")
    assert len(wakes) == log.statistics().writes <= 10
    await log.aclose()


async def test_lazy_sync(tmp_path: Path) -> None:
    """After `lazy_sync_s` what nobody waits for is synced, once, also under a steady stream."""
    fs = CountingFs()
    async with await FileLog.open(tmp_path / "log", fs=fs, lazy_sync_s=0.02) as log:
        fs.calls.clear()
        await log.append("s", b"x", durable=False)
        assert (fs.syncs, log.durable_position) == (0, 0)
        await wait_until(lambda: log.durable_position == 1)
        await anyio.sleep(0.05)
        assert fs.syncs == 1
        with anyio.fail_after(5):
            while log.durable_position < 2:
                await log.append("s", b"x", durable=False)
        assert fs.syncs == 2


async def test_a_roll_syncs_in_the_right_order(tmp_path: Path) -> None:
    """Old segment, mark, then the new header under a temporary name, its name, and only then records."""
    fs = CountingFs()
    async with await FileLog.open(
        tmp_path / "log", fs=fs, lazy_sync_s=None, segment_bytes_max=300
    ) as log:
        await log.append("s", b"x", durable=False)
        fs.calls.clear()
        await log.append("s", b"x")
    old = ["fdatasync", "pwrite", "fsync"]
    new = ["write", "fsync", "rename", "fsync_dir"]
    assert fs.calls[:10] == [*old, *new, "write", "fdatasync", "pwrite"]
    close = ["write", "fdatasync", "pwrite", "fsync"]
    assert fs.calls[10:] == close


async def test_a_flush_is_what_one_sync_made_durable(tmp_path: Path) -> None:
    """The flush number moves only after an fdatasync; the index goes on over several writes."""
    async with await FileLog.open(tmp_path / "log", lazy_sync_s=None) as log:
        for durable in (False, False, True, True, False):
            await log.append("s", b"x", durable=durable)
        await log.sync()
        await log.sync()
        await log.append("s", b"x")
    data = next((tmp_path / "log").glob("*.evlog")).read_bytes()
    cursor, found = start_of(header := decode_segment_header(data)), list[tuple[int, int]]()
    while isinstance(frame := next_frame(data, 0, cursor, salt=header.salt), Frame):
        found.append((frame.header.flush, frame.header.flush_index))
    assert found == [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (4, 0), (5, 0)]


async def test_opening_and_closing_a_clean_log_writes_nothing(tmp_path: Path) -> None:
    """Who only looks leaves no trace in a log that was closed, and makes no segment."""
    async with await FileLog.open(tmp_path / "log") as log:
        await log.append("s", b"x")
    fs = CountingFs()
    async with await FileLog.open(tmp_path / "log", fs=fs):
        pass
    assert set(fs.calls) == {"fdatasync", "fsync_dir", "pwrite"}  # pwrite: the text in LOCK
    assert fs.calls.count("pwrite") == 1


def test_the_kernel_counts_the_same(tmp_path: Path) -> None:
    """strace sees one fdatasync per durable append, one of the close and one of the opening."""
    strace = shutil.which("strace")
    if strace is None:
        reason = "strace is missing: apt-get install strace"
        assert os.environ.get("EVSRC_REQUIRE_TOOLS") != "1", reason
        pytest.skip(reason)
    trace = tmp_path / "trace"
    done = subprocess.run(
        [strace, "-f", "-o", trace, "-e", "trace=fdatasync", sys.executable, "-c", COUNTED]
        + [str(tmp_path / "log")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    if done.returncode != 0 and "ptrace" in done.stderr:
        assert os.environ.get("EVSRC_REQUIRE_TOOLS") != "1", done.stderr
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    calls = [line for line in trace.read_text().splitlines() if "fdatasync(" in line]
    assert done.stdout == "11\n"
    assert len(calls) == 12
