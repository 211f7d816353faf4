"""H08: a torn tail is dropped once, told once, and nothing acknowledged is ever lost behind it."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from evsrc.errors import LogCorrupt
from evsrc.log.file.judge import Torn, judge
from evsrc.log.file.log import FileLog
from evsrc.log.file.mark import MARK_NAME
from evsrc.log.file.recovery import QUARANTINE_BYTES_MAX
from evsrc.log.streams import Heads
from evsrc.verify import main, verify
from tests.log.support import child, files_of, fixed_entropy, mark_of, put_files, segments_of

# Opens every log below the folder, appends C and D to each, tells so, and waits to be killed.
OWNER = """
import sys, anyio
from pathlib import Path
from evsrc.log.file.log import FileLog
async def main():
    logs = []
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        log = await FileLog.open(folder)
        logs.append(log)
        torn = log.recovery.torn
        print(folder.name, *(("-", "-") if torn is None else (torn.offset, torn.bytes)))
        await log.append("s", b"C")
        await log.append("s", b"D")
    print("acknowledged")
    await anyio.sleep_forever()
anyio.run(main)
"""


async def _log_with_tail(folder: Path, *, acknowledged: bool) -> tuple[dict[str, bytes], str, int]:
    """A log with A, and B behind it; returns its files, the segment's name, and where B begins."""
    log = await FileLog.open(folder, lazy_sync_s=None, entropy=fixed_entropy())
    await log.append("s", b"A")
    segment = next(folder.glob("*.evlog"))
    start = segment.stat().st_size
    await log.append("s", b"B", durable=acknowledged)
    files = files_of(folder)  # as a kill would leave them: the mark does not know B, or it does
    await log.aclose()
    return files, segment.name, start


def _zeros(size: int) -> bytes:
    return bytes(size)


def _noise(size: int) -> bytes:
    return bytes(b ^ 0x5A for b in fixed_entropy()(size))


PADS: dict[str, Callable[[int], bytes]] = {"cut": lambda size: b"", "zero": _zeros, "noise": _noise}


@pytest.mark.parametrize("pad", PADS)
def test_h08_torn_at_every_byte_then_killed_again(pad: str, tmp_path: Path) -> None:
    """Cut anywhere inside an unacknowledged record, appended to, killed: A, C, D are there."""
    made = anyio.run(lambda: _log_with_tail(tmp_path / "made", acknowledged=False))
    files, name, start = made
    whole = files[name]
    logs = tmp_path / "logs"
    logs.mkdir()
    for cut in range(start, len(whole)):
        data = whole[:cut] + PADS[pad](len(whole) - cut)
        if data == whole:
            continue  # zeros in the place of padding: B is whole, and stays
        put_files(logs / f"{cut:05}", {**files, name: data})

    told = _run_owner_and_kill(logs)

    assert len(told) == len(list(logs.iterdir())) >= len(whole) - start - 8
    for cut, offset, size in told:
        left = len(whole) - start if pad != "cut" else int(cut) - start
        assert (offset, size) == ((str(start), str(left)) if left else ("-", "-"))
    anyio.run(_check_reopened, logs)


def _run_owner_and_kill(logs: Path) -> list[list[str]]:
    owner = child(OWNER, str(logs))
    told: list[list[str]] = []
    assert owner.stdout is not None
    for line in owner.stdout:
        if line.startswith("acknowledged"):
            break
        told.append(line.split())
    owner.kill()
    assert owner.wait() == -9
    owner.communicate()
    return told


async def _check_reopened(logs: Path) -> None:
    for folder in logs.iterdir():
        async with await FileLog.open(folder) as log:
            assert log.recovery.torn is None, "the drop was reported a second time"
            assert [record.body for record in log.records()] == [b"A", b"C", b"D"]
            assert [record.position for record in log.records()] == [1, 2, 3]


@pytest.mark.parametrize("pad", PADS)
async def test_the_same_cut_under_a_mark_that_covers_it(pad: str, tmp_path: Path) -> None:
    """Cut anywhere inside an acknowledged record the log is refused, and says where."""
    files, name, start = await _log_with_tail(tmp_path / "log", acknowledged=True)
    put_files(tmp_path / "log", files)
    mark, whole = mark_of(tmp_path / "log"), files[name]
    for cut in range(start, len(whole)):
        data = whole[:cut] + PADS[pad](len(whole) - cut)
        if data == whole:
            continue  # zeros in the place of padding: nothing is lost
        with pytest.raises(LogCorrupt) as damage:
            judge(segments_of({name: data}), mark, Heads().admit)
        assert (damage.value.segment, damage.value.offset) == (name, start)
        assert damage.value.sequence == 2


async def test_a_covered_cut_is_refused_by_all_doors(tmp_path: Path) -> None:
    """Opening and `verify` (status 4) refuse it, and refusing changes no byte and frees the lock."""
    files, name, _ = await _log_with_tail(tmp_path / "log", acknowledged=True)
    put_files(tmp_path / "log", {**files, name: files[name][:-1]})
    before = files_of(tmp_path / "log")
    for _ in range(2):
        with pytest.raises(LogCorrupt, match="mark says 2 was synced"):
            await FileLog.open(tmp_path / "log")
    assert files_of(tmp_path / "log") == before
    assert main([str(tmp_path / "log")]) == 4


async def test_whole_records_that_nobody_waited_for_are_kept(tmp_path: Path) -> None:
    """What was written whole survives the kill, and from its recovery on it counts as synced."""
    files, name, _ = await _log_with_tail(tmp_path / "log", acknowledged=False)
    put_files(tmp_path / "log", files)
    async with await FileLog.open(tmp_path / "log") as log:
        assert (log.recovery.clean, log.recovery.torn, log.last_position) == (False, None, 2)
        assert log.durable_position == 2
        kept = files_of(tmp_path / "log")
    put_files(tmp_path / "log", {**kept, name: kept[name][:-1]})
    with pytest.raises(LogCorrupt):
        await FileLog.open(tmp_path / "log")


async def test_torn_bytes_are_kept_aside_and_not_cut(tmp_path: Path) -> None:
    """The torn bytes stay where they are, and a bounded copy lies in quarantine/."""
    files, name, start = await _log_with_tail(tmp_path / "log", acknowledged=False)
    torn = files[name][start:-20] + b"\x01" * (QUARANTINE_BYTES_MAX + 10)
    put_files(tmp_path / "log", {**files, name: files[name][:start] + torn})
    assert verify(tmp_path / "log").state == "torn"
    assert main([str(tmp_path / "log")]) == 0
    async with await FileLog.open(tmp_path / "log") as log:
        assert log.recovery.torn == Torn(
            segment=name,
            offset=start,
            sequence=2,
            bytes=len(torn),
            reason="the chain digest does not fit",
        )
        aside = (tmp_path / "log" / log.recovery.quarantine).read_bytes()
        assert aside == torn[:QUARANTINE_BYTES_MAX]
    assert (tmp_path / "log" / name).read_bytes() == files[name][:start] + torn
    assert verify(tmp_path / "log").state == "clean"


async def test_recovery_killed_in_its_middle_repeats(tmp_path: Path) -> None:
    """A recovery that made its copy and its *.tmp, and was killed, is done again with one result."""
    files, name, start = await _log_with_tail(tmp_path / "log", acknowledged=False)
    put_files(tmp_path / "log", {**files, name: files[name][:-1], "x.evlog.tmp": b"half"})
    aside = tmp_path / "log" / "quarantine"
    aside.mkdir()
    (aside / f"{name}.{start}.torn").write_bytes(b"earlier")
    (aside / f"{name}.{start}.torn.tmp").write_bytes(b"half")
    async with await FileLog.open(tmp_path / "log") as log:
        assert (tmp_path / "log" / log.recovery.quarantine).read_bytes() == files[name][start:-1]
    assert sorted(p.suffix for p in aside.iterdir()) == [".torn"]
    assert list((tmp_path / "log").glob("*.tmp")) == []


async def test_a_lost_mark_is_damage(tmp_path: Path) -> None:
    """The mark was made with the log: missing, or with both slots bad, the log is refused."""
    files, _, _ = await _log_with_tail(tmp_path / "log", acknowledged=True)
    mark = bytearray(files[MARK_NAME])
    mark[100] ^= 1
    put_files(tmp_path / "log", {**files, MARK_NAME: bytes(mark)})
    async with await FileLog.open(tmp_path / "log") as log:
        assert log.last_position == 2, "one bad slot is a torn write of the mark"
    mark[4096 + 100] ^= 1
    for lost in (
        {**files, MARK_NAME: bytes(mark)},
        {n: d for n, d in files.items() if n != MARK_NAME},
    ):
        put_files(tmp_path / "log", lost)
        with pytest.raises(LogCorrupt, match="mark is missing or both"):
            await FileLog.open(tmp_path / "log")
