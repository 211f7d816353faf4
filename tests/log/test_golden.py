"""The golden log: format 1 as it was first written. Its files are never made again."""

import shutil
import subprocess
import sys
from pathlib import Path

import anyio

from evsrc.log.base import Log
from evsrc.log.file.log import FileLog
from evsrc.log.file.reader import LogReader, read_records
from evsrc.log.file.recovery import Recovery
from evsrc.verify import verify
from tests.log.support import GOLDEN, ROOT, files_of, fixed_clock, fixed_entropy

BODIES = [b"", b"one", bytes(range(256)), b"\xf5evr" * 20, b"EVSRLOG1" + bytes(300)]


async def make(folder: Path) -> list[Recovery]:
    """Write the golden log: three openings, rolled segments, a close inside, dead bytes."""
    clock, entropy, found = fixed_clock(), fixed_entropy(), list[Recovery]()

    async def open_log() -> FileLog:
        return await FileLog.open(
            folder,
            namespace="golden",
            clock=clock,
            entropy=entropy,
            lazy_sync_s=None,
            segment_bytes_max=1500,
        )

    async def fill(log: Log) -> None:
        for number, body in enumerate(BODIES):
            stream = f"run-{number % 2}-\u00e9"
            await log.append(stream, body, count=number + 1, durable=number % 3 == 0)

    for opening in range(3):
        async with await open_log() as log:
            found.append(log.recovery)
            await fill(log)
        if opening == 1:
            last = max(folder.glob("*.evlog"))
            last.write_bytes(last.read_bytes() + b"\0" * 24 + b"torn")
    return found


async def test_writing_it_again_gives_the_same_bytes(tmp_path: Path) -> None:
    """With the same clock and entropy today's writer writes what the first one wrote."""
    found = await make(tmp_path / "log")
    assert [(r.created, r.clean, r.torn is not None) for r in found] == [
        (True, True, False),
        (False, True, False),
        (False, False, True),
    ]
    assert files_of(tmp_path / "log") == files_of(GOLDEN)


def test_a_stranger_can_read_it() -> None:
    """The reader written from the header comment finds what our reader finds, bytes and digests."""
    lines = _read_as_stranger(GOLDEN).stdout.splitlines()
    records = list(read_records(GOLDEN))
    assert len(lines) == len(records) == 3 * len(BODIES)
    for line, record in zip(lines, records, strict=True):
        position, length, _, payload = line.split()
        data = bytes.fromhex(payload)
        assert (int(position), int(length)) == (record.position, len(data))
        assert data.startswith(record.id)
        assert data.endswith(record.body)
    assert verify(GOLDEN).records == len(lines)


def test_the_stranger_notices_damage(tmp_path: Path) -> None:
    """One flipped bit in any segment stops the stranger's reader too."""
    for name in sorted(path.name for path in GOLDEN.glob("*.evlog"))[:-1]:
        folder = tmp_path / name
        shutil.copytree(GOLDEN, folder)
        data = bytearray((folder / name).read_bytes())
        data[300] ^= 4
        (folder / name).write_bytes(data)
        assert _read_as_stranger(folder, check=False).returncode == 1


def test_its_content_is_known() -> None:
    """Streams, counts, times and bodies are those that were appended."""
    records = list(read_records(GOLDEN))
    assert [r.body for r in records] == BODIES * 3
    assert [r.count for r in records] == [1, 2, 3, 4, 5] * 3
    assert {r.stream for r in records} == {"run-0-\u00e9", "run-1-\u00e9"}
    assert [r.version for r in records if r.stream == "run-1-\u00e9"] == [0, 2, 6, 8, 12, 14]
    assert all(r.time_ns % 1_000_000_000 == 0 for r in records)


async def test_it_can_be_continued(tmp_path: Path) -> None:
    """A log of the first format is opened, appended to and read back by this version."""
    shutil.copytree(GOLDEN, tmp_path / "log")
    async with await FileLog.open(tmp_path / "log", namespace="golden") as log:
        assert log.recovery.clean
        record = await log.append("run-0-\u00e9", b"more", expected=log.version("run-0-\u00e9"))
    assert record.position == 3 * len(BODIES) + 1
    assert verify(tmp_path / "log").state == "clean"
    reader = LogReader(tmp_path / "log", after=record.position - 1)
    assert list(reader.advance()) == [record]


def _read_as_stranger(folder: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
    script = ROOT / "tests" / "log" / "independent_reader.py"
    # -I: nothing but the standard library is importable.
    return subprocess.run(
        [sys.executable, "-I", script, folder], capture_output=True, text=True, check=check
    )


if __name__ == "__main__":  # run once, when the format was made
    anyio.run(make, GOLDEN)
