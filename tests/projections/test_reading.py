"""Reading a log from its folder: typed events, beside whoever writes it."""

from pathlib import Path

import pytest

import evsrc
from evsrc.core.codec import encode_events
from evsrc.errors import LogCorrupt
from evsrc.events import NodeStarted, RunCompleted, RunStarted
from evsrc.log.file.log import FileLog

pytestmark = pytest.mark.anyio


async def write(folder: Path, times: list[int]) -> None:
    """Two runs in one log, with wall times from a list."""
    clock = iter(times)
    async with await FileLog.open(folder, clock=lambda: next(clock, 99)) as log:
        for run in ("a", "b"):
            await log.append(run, encode_events([RunStarted("flow", "1", b"\xc0", "d")]))
            await log.append(run, encode_events([NodeStarted("n", "k"), RunCompleted()]), count=2)


async def test_events_by_run_type_and_time(tmp_path: Path) -> None:
    """A reader selects by run, by event class, by time and by position."""
    await write(tmp_path / "log", [])
    reader = evsrc.open_log(tmp_path / "log")

    everything = list(reader.events())

    assert [type(s.event) for s in everything][:3] == [RunStarted, NodeStarted, RunCompleted]
    assert [s.run for s in everything] == ["a"] * 3 + ["b"] * 3
    assert [s.run for s in reader.events(types=[RunCompleted])] == ["a", "b"]
    assert {s.run for s in reader.events(run="b")} == {"b"}
    assert list(reader.events(since_ns=100)) == []
    assert [s.position for s in reader.events(after=3)] == [4, 4]


async def test_state_of_a_run(tmp_path: Path) -> None:
    """A reader folds one run without a runtime; an unknown run is new and empty."""
    await write(tmp_path / "log", [])
    reader = evsrc.open_log(tmp_path / "log")

    assert reader.state("a").status == "completed"
    assert reader.state("z").status == "new"


async def test_following_beside_a_writer(tmp_path: Path) -> None:
    """A follower gives what is there and goes on with what comes, without a lock."""
    async with await FileLog.open(tmp_path / "log") as log:
        await log.append("a", encode_events([RunStarted("flow", "1", b"\xc0", "d")]))
        events = evsrc.open_log(tmp_path / "log", follow=True).events()
        assert isinstance(next(events).event, RunStarted)
        await log.append("a", encode_events([RunCompleted()]))
        assert isinstance(next(events).event, RunCompleted)


def test_no_log_is_said_at_once(tmp_path: Path) -> None:
    """A folder that is not there is an error before anything is read."""
    with pytest.raises(FileNotFoundError, match="no log at"):
        evsrc.open_log(tmp_path / "nothing")


async def test_damage_before_the_tail_is_said(tmp_path: Path) -> None:
    """A reader that meets a flipped byte in the middle of the log stops with an error."""
    await write(tmp_path / "log", [])
    (segment,) = (tmp_path / "log").glob("*.evlog")
    data = bytearray(segment.read_bytes())
    data[192 + 64 + 40] ^= 1  # in the payload of the first record
    segment.write_bytes(data)

    with pytest.raises(LogCorrupt):
        list(evsrc.open_log(tmp_path / "log").events())
