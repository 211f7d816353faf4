"""Making, naming and reopening a log."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from evsrc.errors import CallerError, LimitExceeded, LogCorrupt
from evsrc.log.file.fs import RealFs
from evsrc.log.file.log import FileLog
from evsrc.log.file.mark import MARK_NAME
from evsrc.log.file.meta import META_NAME
from tests.log.support import ROOT, files_of, put_files

FORGOTTEN = """
import sys, anyio
from evsrc.log.file.log import FileLog
async def main():
    log = await FileLog.open(sys.argv[1], lazy_sync_s=None)
    await log.append("s", b"x", durable=False)
anyio.run(main)
"""


def _segments(folder: Path) -> int:
    return len(list(folder.glob("*.evlog")))


async def test_the_namespace_is_kept(tmp_path: Path) -> None:
    """The namespace is chosen once; another one later is refused, for every key would differ."""
    async with await FileLog.open(tmp_path / "log", namespace="soc/\u00e9") as log:
        log_id = log.log_id
        assert (log.namespace, log.recovery.created) == ("soc/\u00e9", True)
    for namespace in (None, "soc/\u00e9"):
        async with await FileLog.open(tmp_path / "log", namespace=namespace) as log:
            assert (log.namespace, log.log_id) == ("soc/\u00e9", log_id)
            assert not log.recovery.created
    with pytest.raises(CallerError, match="has namespace"):
        await FileLog.open(tmp_path / "log", namespace="other")
    for namespace in ("", "n" * 201, "\ud800"):
        with pytest.raises(LimitExceeded, match="namespace"):
            await FileLog.open(tmp_path / "log", namespace=namespace)


async def test_two_logs_differ(tmp_path: Path) -> None:
    """Ids and namespaces that nobody chose are drawn."""
    async with (
        await FileLog.open(tmp_path / "one") as one,
        await FileLog.open(tmp_path / "two") as two,
    ):
        assert one.log_id != two.log_id
        assert one.namespace != two.namespace


async def test_reopening_goes_on_where_it_is_safe(tmp_path: Path) -> None:
    """After a clean close the segment goes on; after a kill a new one is begun; an empty one is used."""
    folder = tmp_path / "log"
    async with await FileLog.open(folder) as log:
        await log.append("s", b"1")
    async with await FileLog.open(folder) as log:
        assert log.recovery.clean
        await log.append("s", b"2", expected=1)
        killed = files_of(folder)
    assert _segments(folder) == 1
    for _ in range(3):
        put_files(folder, killed)
        log = await FileLog.open(folder)
        assert not log.recovery.clean
        assert _segments(folder) == 2
        killed = files_of(folder)
        await log.aclose()
    async with await FileLog.open(folder) as log:
        assert log.recovery.clean
        assert (await log.append("s", b"3", expected=2)).position == 3


async def test_records_say_who_came_before(tmp_path: Path) -> None:
    """Version and predecessor of a stream go on over reopening and over segments."""
    last = b""
    for opening in range(4):
        async with await FileLog.open(tmp_path / "log", segment_bytes_max=500) as log:
            for number in range(3):
                version = opening * 6 + number * 2
                record = await log.append("s", b"x", count=2, expected=version)
                assert (record.version, record.previous) == (version, last)
                last = record.id
    assert _segments(tmp_path / "log") > 3


async def test_a_lost_log_meta_is_not_a_new_log(tmp_path: Path) -> None:
    """Records without `log.meta` are damage; an empty log without it is a creation that was killed."""
    folder = tmp_path / "log"
    log = await FileLog.open(folder)
    empty = files_of(folder)
    await log.append("s", b"x")
    full = files_of(folder)
    await log.aclose()
    del full[META_NAME], empty[META_NAME]
    put_files(folder, full)
    with pytest.raises(LogCorrupt, match=r"log\.meta is missing"):
        await FileLog.open(folder)
    assert files_of(folder) == full
    put_files(folder, empty)
    async with await FileLog.open(folder) as log:
        assert log.recovery.created
        assert log.last_position == 0
    assert _segments(folder) == 1


async def test_files_of_two_logs_do_not_mix(tmp_path: Path) -> None:
    """`log.meta` of another log, and a folder with no segment left, are refused."""
    for name in ("one", "two"):
        async with await FileLog.open(tmp_path / name) as log:
            await log.append("s", b"x")
    files = files_of(tmp_path / "one")
    put_files(tmp_path / "one", {**files, META_NAME: files_of(tmp_path / "two")[META_NAME]})
    with pytest.raises(LogCorrupt, match=r"log\.meta says log"):
        await FileLog.open(tmp_path / "one")
    put_files(tmp_path / "one", {name: files[name] for name in (META_NAME, MARK_NAME)})
    with pytest.raises(LogCorrupt, match="no segment"):
        await FileLog.open(tmp_path / "one")


async def test_a_read_error_is_never_a_torn_tail(tmp_path: Path) -> None:
    """A disk that cannot read stops the opening; nothing is dropped."""

    class UnreadableFs(RealFs):
        def read(self, descriptor: int, offset: int, size: int) -> bytes:
            if size > 100_000:
                raise OSError(errno.EIO, "as the test wants it")
            return super().read(descriptor, offset, size)

    async with await FileLog.open(tmp_path / "log") as log:
        await log.append("s", b"x")
    before = files_of(tmp_path / "log")
    with pytest.raises(LogCorrupt, match="cannot be read: .*as the test wants it"):
        await FileLog.open(tmp_path / "log", fs=UnreadableFs())
    assert files_of(tmp_path / "log") == before


def test_a_log_that_nobody_closed_ends_with_the_interpreter(tmp_path: Path) -> None:
    """A forgotten `aclose` neither hangs the process nor loses what was written."""
    for loops in (1, 2):
        subprocess.run(
            [sys.executable, "-c", FORGOTTEN, str(tmp_path / "log")],
            check=True,
            timeout=20,
            cwd=ROOT,
        )
        reader = subprocess.run(
            [sys.executable, "-m", "evsrc.verify", str(tmp_path / "log"), "--json"],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert f'"last_position":{loops}' in reader.stdout
        assert '"closed":true' in reader.stdout
