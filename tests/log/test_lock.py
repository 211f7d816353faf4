"""H11: one writer. Two openers, a killed holder, a deleted LOCK, a fork, LOCK with our own number."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from evsrc.errors import LogLocked
from evsrc.log.file.fs import RealFs
from evsrc.log.file.lock import LOCK_NAME, FolderLock
from evsrc.log.file.log import FileLog
from evsrc.log.file.reader import read_records
from tests.log.support import child

HOLDER = """
import sys, anyio
from evsrc.log.file.log import FileLog
async def main():
    log = await FileLog.open(sys.argv[1])
    await log.append("s", b"held")
    print("open", flush=True)
    await anyio.sleep_forever()
anyio.run(main)
"""

# The child of a fork keeps the descriptors that the parent has; it must not keep the lock. It leaves
# the parent's loop alone, and uses the log in a thread with a loop of its own.
FORKER = """
import os, sys, threading, anyio
from evsrc.errors import Closed
from evsrc.log.file.log import FileLog
async def use(log):
    try:
        await log.append("s", b"from the child")
    except Closed as error:
        os.write(1, f"child refused: {error}\\n".encode())
    await log.aclose()
    assert [record.position for record in log.records()] == [1]
async def main():
    log = await FileLog.open(sys.argv[1])
    await log.append("s", b"parent")
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.write(tell, b"x")
        thread = threading.Thread(target=anyio.run, args=(use, log))
        thread.start()
        thread.join()
        sys.stdin.read()
        os._exit(0)
    os.read(ready, 1)
    await log.append("s", b"parent after fork")
    await log.aclose()
    again = await FileLog.open(sys.argv[1])
    os.write(1, f"parent has it again: {again.last_position}\\n".encode())
    await again.aclose()
    sys.stdin.read()
    os.wait()
anyio.run(main)
"""


def _hold(folder: Path) -> "subprocess.Popen[str]":
    holder = child(HOLDER, str(folder))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    return holder


def _kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    assert process.wait() == -9
    process.communicate()


async def test_h11_the_second_opener_is_refused_and_told_who(tmp_path: Path) -> None:
    """Another process holds it: refused at once, with the holder's number; reading is allowed."""
    holder = _hold(tmp_path / "log")
    try:
        with pytest.raises(LogLocked, match=f"process {holder.pid} on {os.uname().nodename}"):
            await FileLog.open(tmp_path / "log")
        assert [record.body for record in read_records(tmp_path / "log")] == [b"held"]
    finally:
        _kill(holder)


async def test_h11_a_killed_holder_frees_it(tmp_path: Path) -> None:
    """After kill -9 of the holder the next opener gets it, without anybody's help."""
    _kill(_hold(tmp_path / "log"))
    async with await FileLog.open(tmp_path / "log") as log:
        assert not log.recovery.clean
        assert log.last_position == 1


async def test_h11_lock_text_with_our_own_number(tmp_path: Path) -> None:
    """What stands in LOCK is no lock: our own number, or rubbish, from an earlier life is passed."""
    async with await FileLog.open(tmp_path / "log"):
        pass
    for text in (json.dumps({"pid": os.getpid()}), "1\n", "\0" * 50):
        (tmp_path / "log" / LOCK_NAME).write_text(text)
        async with await FileLog.open(tmp_path / "log"):
            assert json.loads((tmp_path / "log" / LOCK_NAME).read_text())["pid"] == os.getpid()


async def test_h11_a_deleted_lock_frees_nobody(tmp_path: Path) -> None:
    """With LOCK deleted under a living holder, the folder's own lock refuses, and names it."""
    holder = _hold(tmp_path / "log")
    try:
        (tmp_path / "log" / LOCK_NAME).unlink()
        with pytest.raises(LogLocked, match=f"process {holder.pid} .*LOCK was deleted"):
            await FileLog.open(tmp_path / "log")
        (tmp_path / "log" / LOCK_NAME).write_text("{}")
        with pytest.raises(LogLocked, match=f"process {holder.pid} "):
            await FileLog.open(tmp_path / "log")
    finally:
        _kill(holder)


async def test_h11_twice_in_one_process(tmp_path: Path) -> None:
    """A second open in this process is refused, and leaves the first one unharmed."""
    async with await FileLog.open(tmp_path / "log") as log:
        with pytest.raises(LogLocked, match=f"process {os.getpid()} "):
            await FileLog.open(tmp_path / "log")
        assert (await log.append("s", b"x")).position == 1
    async with await FileLog.open(tmp_path / "log") as log:
        assert log.recovery.clean


async def test_only_lock_held_is_enough_to_refuse(tmp_path: Path) -> None:
    """A holder whose folder was moved away and put in place of another still has LOCK."""
    async with await FileLog.open(tmp_path / "log"):
        pass
    fs = RealFs()
    descriptor = fs.open_update(str(tmp_path / "log" / LOCK_NAME))
    assert fs.lock(descriptor)
    with pytest.raises(LogLocked):
        await FileLog.open(tmp_path / "log")
    fs.close(descriptor)
    FolderLock(fs, str(tmp_path / "log"), 0).release()


def test_h11_a_forked_child_has_neither_log_nor_lock(tmp_path: Path) -> None:
    """In a forked child the log is closed; the lock goes with the parent while the child lives on."""
    process = child(FORKER, str(tmp_path / "log"))
    assert process.stdout is not None
    said = {process.stdout.readline() for _ in range(2)}
    process.communicate("")
    assert any(line.startswith("child refused: log opened in process") for line in said)
    assert "parent has it again: 2\n" in said
    assert process.returncode == 0


async def test_files_are_nobody_elses(tmp_path: Path) -> None:
    """Folders have mode 0700 and files 0600."""
    async with await FileLog.open(tmp_path / "a" / "log") as log:
        await log.append("s", b"x")
    folder = tmp_path / "a" / "log"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
