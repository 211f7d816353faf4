"""What the log's tests share: a log made of fixed bytes, disks that count or fail, whole copies."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import anyio

from evsrc.log.file.fs import RealFs, read_file
from evsrc.log.file.mark import MARK_BYTES, MARK_NAME, Mark, decode_file
from evsrc.log.file.segments import Segment, chain, parse_header

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "format1"


def fixed_clock() -> Callable[[], int]:
    """A clock that moves on by one second per question."""
    ticks = count(1_700_000_000_000_000_000, 1_000_000_000)
    return lambda: next(ticks)


def fixed_entropy() -> Callable[[int], bytes]:
    """Bytes that look drawn and are the same each time."""
    state: Iterator[int] = count(1)
    return lambda size: bytes((next(state) * 37 + 11) % 256 for _ in range(size))


class CountingFs(RealFs):
    """A disk that counts its syncs, and can be made to fail or to wait at one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda call: None

    def write(self, descriptor: int, data: memoryview) -> int:
        self._count("write")
        return super().write(descriptor, data)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        self._count("pwrite")
        return super().pwrite(descriptor, data, offset)

    def fdatasync(self, descriptor: int) -> None:
        self._count("fdatasync")
        super().fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        self._count("fsync")
        super().fsync(descriptor)

    def fsync_dir(self, path: str) -> None:
        self._count("fsync_dir")
        super().fsync_dir(path)

    def rename(self, source: str, target: str) -> None:
        self._count("rename")
        super().rename(source, target)

    @property
    def syncs(self) -> int:
        """Calls that wait for the disk."""
        return sum(call in ("fdatasync", "fsync", "fsync_dir") for call in self.calls)

    def _count(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)


async def wait_until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does, five seconds at most."""
    with anyio.fail_after(5):
        while not true():  # noqa: ASYNC110 - the thread under test knows no event of ours
            await anyio.sleep(0.001)


def files_of(folder: Path) -> dict[str, bytes]:
    """Bytes of what is the log in a folder; not of LOCK, which names a process."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != "LOCK"
    }


def put_files(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder that holds exactly these files, besides subfolders."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.is_file() and path.name not in files:
            path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def segments_of(files: dict[str, bytes]) -> list[Segment]:
    """Segments for `judge`, from bytes."""
    return chain(
        [
            Segment(name, parse_header(name, data), lambda data=data: data)
            for name, data in files.items()
            if name.endswith(".evlog")
        ]
    )


def mark_of(folder: Path) -> Mark:
    """The mark of a log that has one."""
    mark = decode_file(read_file(RealFs(), str(folder / MARK_NAME), MARK_BYTES))
    assert mark is not None
    return mark


def child(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start Python on `code`, with this repository's package, and talk to it by lines."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        cwd=ROOT,
    )
