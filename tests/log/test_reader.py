"""Reading takes no lock, harms nobody, and never raises for the end of a log that is being written."""

import os
import threading
from pathlib import Path

import anyio
import pytest

from evsrc.errors import LogCorrupt
from evsrc.log.base import Record
from evsrc.log.file.framing import decode_segment_header
from evsrc.log.file.log import FileLog
from evsrc.log.file.reader import LogReader, ReadReport, read_records
from tests.log.support import CountingFs, files_of, put_files


async def _fill(log: FileLog, start: int, count: int) -> None:
    for number in range(start, start + count):
        await log.append("ab"[number % 2], b"%d" % number, durable=False)


async def test_a_follower_sees_everything_once(tmp_path: Path) -> None:
    """Over appends, rolled segments, a close and a new opening each record is given once, in order."""
    seen: list[Record] = []
    async with await FileLog.open(tmp_path / "log", segment_bytes_max=700) as log:
        follower = LogReader(tmp_path / "log")
        assert list(follower.advance()) == []
        for start in range(0, 30, 3):
            await _fill(log, start, 3)
            seen += list(follower.advance())
            assert len(seen) == start + 3
        assert list(follower.advance()) == []
    async with await FileLog.open(tmp_path / "log") as log:
        await _fill(log, 30, 2)
        seen += list(follower.advance())
        assert seen == list(log.records())
    assert follower.report == ReadReport(state="end")


async def test_selection(tmp_path: Path) -> None:
    """`after` and `stream` select, and segments that lie before `after` are not even read."""
    fs = CountingFs()
    async with await FileLog.open(tmp_path / "log", segment_bytes_max=700) as log:
        await _fill(log, 0, 30)
        everything = list(log.records())
    assert list(read_records(tmp_path / "log")) == everything
    for after in range(31):
        assert list(read_records(tmp_path / "log", after=after)) == everything[after:]
        some = list(read_records(tmp_path / "log", after=after, stream="b"))
        assert some == [r for r in everything[after:] if r.stream == "b"]
    first, second, *_ = sorted((tmp_path / "log").glob("*.evlog"))
    last_of_first = decode_segment_header(second.read_bytes()).base_position - 1
    data = bytearray(first.read_bytes())
    data[300] ^= 1
    first.write_bytes(data)
    for after in (last_of_first, 29):
        assert list(read_records(tmp_path / "log", after=after, fs=fs)) == everything[after:]
    with pytest.raises(LogCorrupt):
        list(read_records(tmp_path / "log", fs=fs))


async def test_a_live_tail_never_raises(tmp_path: Path) -> None:
    """At each state that a write passes through, the reader gives what is whole, and goes on later."""
    log = await FileLog.open(tmp_path / "made", lazy_sync_s=None)
    await log.append("s", b"one")
    short = files_of(tmp_path / "made")
    await log.append("s", b"two", durable=False)
    whole = files_of(tmp_path / "made")
    await log.aclose()
    (name,) = [name for name in whole if name.endswith(".evlog")]
    folder = tmp_path / "live"
    put_files(folder, short)
    follower = LogReader(folder)
    assert [record.body for record in list(follower.advance())] == [b"one"]
    for size in range(len(short[name]), len(whole[name])):
        (folder / name).write_bytes(whole[name][:size])
        assert list(follower.advance()) == []
        at_end = size == len(short[name])
        assert follower.report.state == ("end" if at_end else "unfinished")
        assert at_end or (follower.report.segment, follower.report.sequence) == (name, 2)
    (folder / name).write_bytes(whole[name])
    assert [record.body for record in list(follower.advance())] == [b"two"]
    assert follower.report.state == "end"


async def test_damage_at_the_end_is_reported(tmp_path: Path) -> None:
    """In the last segment reading stops at damage and says what proves that it is damage."""
    async with await FileLog.open(tmp_path / "log") as log:
        for number in range(4):
            await log.append("s", b"%d" % number)
    name = next((tmp_path / "log").glob("*.evlog"))
    data = bytearray(name.read_bytes())
    data[400] ^= 1
    name.write_bytes(data)
    reader = LogReader(tmp_path / "log")
    assert [record.body for record in reader.advance()] == [b"0"]
    assert (reader.report.state, reader.report.sequence) == ("corrupt", 2)
    assert "began behind it" in reader.report.reason


async def test_records_of_an_open_log_raise_for_damage(tmp_path: Path) -> None:
    """What has landed must be there: the log's own `records` raises, and does not end early."""
    async with await FileLog.open(tmp_path / "log") as log:
        for number in range(3):
            await log.append("s", b"%d" % number)
        name = next((tmp_path / "log").glob("*.evlog"))
        whole = name.read_bytes()
        for at in (400, len(whole) - 1):
            with open(name, "r+b") as file:
                os.pwrite(file.fileno(), bytes([whole[at] ^ 1]), at)
            with pytest.raises(LogCorrupt):
                list(log.records())
            with open(name, "r+b") as file:
                os.pwrite(file.fileno(), whole[at : at + 1], at)
        assert len(list(log.records())) == 3


async def test_a_reader_in_another_thread(tmp_path: Path) -> None:
    """A follower that polls without rest beside a writer sees each record once and no fault."""
    seen: list[int] = []
    stop = threading.Event()
    errors: list[BaseException] = []

    def follow() -> None:
        follower = LogReader(tmp_path / "log")
        try:
            while not stop.is_set():
                seen.extend(record.position for record in list(follower.advance()))
                assert follower.report.state != "corrupt"
            seen.extend(record.position for record in list(follower.advance()))
        except BaseException as error:  # noqa: BLE001 - raised nowhere else, a thread has no caller
            errors.append(error)

    async with await FileLog.open(tmp_path / "log", segment_bytes_max=20_000) as log:
        thread = threading.Thread(target=follow)
        thread.start()
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(_fill, log, number, 30)
        stop.set()
        thread.join()
    assert errors == []
    assert seen == list(range(1, 601))


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    """A folder that is not there is an error; one without segments holds no records."""
    assert list(read_records(tmp_path)) == []
    with pytest.raises(FileNotFoundError):
        list(read_records(tmp_path / "nothing"))


async def test_a_broken_chain_is_noticed_by_readers(tmp_path: Path) -> None:
    """A segment lost in the middle, or shortened, stops every reader by raising."""
    async with await FileLog.open(tmp_path / "log", segment_bytes_max=700) as log:
        await _fill(log, 0, 20)
    names = sorted((tmp_path / "log").glob("*.evlog"))
    whole = names[1].read_bytes()
    names[1].write_bytes(whole[:-8])
    with pytest.raises(LogCorrupt, match="says that it ends at"):
        list(read_records(tmp_path / "log"))
    names[1].unlink()
    with pytest.raises(LogCorrupt, match="expected segment number 2, found 3"):
        list(read_records(tmp_path / "log"))
