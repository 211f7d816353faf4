"""The plan: what a run would reuse, run or leave pinned, and why, before anything runs."""

from pathlib import Path
from typing import Any

import pytest

import evsrc
from evsrc.core.events import Event
from evsrc.core.nodes import Planned
from evsrc.errors import DefinitionError, InputMismatch
from tests.runtime.desk import Desk, cut
from tests.runtime.flows import go, ran


class Shop:
    """A flow with everything that can be in a key: parameter, file, fan-out, an act, and what descends."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk()
        self.feed = folder / "feed"
        self.feed.write_text("v1")
        self.values = ["a", "b"]
        self.version = "1"

    def flow(self, **options: Any) -> evsrc.Flow[int]:
        """The flow as it is now."""
        flow, feed, desk = evsrc.Flow("shop", input=int, **options), self.feed, self.desk

        @flow.node(params={"values": self.values}, version="1")
        async def source(start: int, values: list[str]) -> list[str]:
            return values

        @flow.each(source, key=str, reads=[feed], version="1")
        async def item(one: str) -> str:
            return one + feed.read_text()

        @flow.node(version=self.version)
        async def total(item: list[str]) -> str:
            return ",".join(item)

        @flow.node(version="1")
        async def act(run: evsrc.Run, start: int) -> str:
            return await run.call(desk.note, str(start))

        @flow.node(version="1")
        async def last(total: str, act: str) -> str:
            return total + act

        return flow

    async def log(self, path: Path, *, before: str = "RunCompleted", run_id: str = "r") -> Path:
        """A log on disk of a run that was killed before that event."""
        memory = evsrc.MemoryLog()
        await go(memory, self.flow(), 1, run_id=run_id, tools=self.desk.all_tools)
        left = await cut(memory, before=before)
        async with evsrc.open_runtime(path, resume=False) as runtime:
            for record in left.records():
                await runtime.journal(record.stream).log.append(
                    record.stream, record.body, count=record.count
                )
        return path


def shown(lines: list[Planned]) -> dict[str, Any]:
    """The plan by node: its status, or status and why."""
    return {
        f"{line.node}[{line.item}]" if line.item else line.node: (
            (line.status, *line.why) if line.why else line.status
        )
        for line in lines
    }


async def test_the_plan_of_a_fresh_run(tmp_path: Path) -> None:
    """Everything runs; a fan-out whose items are not known is one line."""
    shop = Shop(tmp_path)
    path = await shop.log(tmp_path / "log")
    lines = shop.flow().plan(path, 1, run_id="other")
    assert shown(lines) == dict.fromkeys(
        ("source", "act", "item", "total", "last"), ("run", "no checkpoint")
    )
    assert [line.node for line in lines] == ["source", "act", "item", "total", "last"]


async def test_the_plan_after_a_crash(tmp_path: Path) -> None:
    """What has an output is reused; what acted and has none is pinned and unfinished."""
    shop = Shop(tmp_path)
    path = await shop.log(tmp_path / "log", before="ResultRecorded")
    planned = shown(shop.flow().plan(path, 1, run_id="r"))
    assert planned["act"] == ("pinned", "unfinished")
    assert planned["source"] == "reuse"
    assert planned["last"] == ("run", "no checkpoint")
    assert ran() == []


async def test_the_plan_of_an_unchanged_run(tmp_path: Path) -> None:
    """All is reused, and what acted is pinned without a reason."""
    shop = Shop(tmp_path)
    path = await shop.log(tmp_path / "log")
    assert shown(shop.flow().plan(path, 1, run_id="r")) == {
        "source": "reuse",
        "act": "pinned",
        "item[a]": "reuse",
        "item[b]": "reuse",
        "total": "reuse",
        "last": "reuse",
    }


async def test_the_plan_names_what_differs(tmp_path: Path) -> None:
    """A changed file, code, parameter: each node that runs names the parts of its key that changed."""
    shop = Shop(tmp_path)
    path = await shop.log(tmp_path / "log")
    shop.feed.write_text("v2")
    planned = shown(shop.flow().plan(path, 1, run_id="r"))
    assert planned["item[a]"] == ("run", f"file:{shop.feed}")
    assert planned["total"] == ("run", "upstream:item")
    assert planned["last"] == ("run", "upstream:total")
    assert planned["source"] == "reuse"
    shop.feed.write_text("v1")
    shop.version = "2"
    planned = shown(shop.flow().plan(path, 1, run_id="r"))
    assert planned["item[a]"] == "reuse"
    assert planned["total"] == ("run", "code")
    shop.values = ["a", "c"]
    planned = shown(shop.flow().plan(path, 1, run_id="r"))
    assert planned["source"] == ("run", "params")
    assert planned["item"] == ("run", "no checkpoint")
    assert planned["total"] == ("run", "code", "upstream:item")


@pytest.mark.parametrize("change", ["feed", "values", "version", "nothing"])
async def test_the_plan_says_what_the_run_does(tmp_path: Path, change: str) -> None:
    """Exactly the nodes that the plan lets run are run, and the others reused."""
    shop = Shop(tmp_path)
    path = await shop.log(tmp_path / "log")
    match change:
        case "feed":
            shop.feed.write_text("v2")
        case "values":
            shop.values = ["a", "c"]
        case "version":
            shop.version = "2"
        case _:
            pass
    planned = shop.flow().plan(path, 1, run_id="r")
    starts: set[str] = set()

    class Starts:
        def on(self, moment: evsrc.Moment, /) -> None:
            if moment.name == "node_start":
                starts.add(moment.node)

    outcome = await go(str(path), shop.flow(), 1, tools=shop.desk.all_tools, observers=[Starts()])
    assert isinstance(outcome, evsrc.Completed)
    assert starts == {line.node for line in planned if line.status == "run"}


async def test_the_plan_finds_checkpoints_of_other_runs(tmp_path: Path) -> None:
    """With reuse="log" it names the run that an output comes from; what acts runs."""
    shop = Shop(tmp_path)
    path = await shop.log(tmp_path / "log", run_id="first")
    lines = shop.flow(reuse="log").plan(path, 1, run_id="second")
    by_node = {line.node: (line.status, line.source_run) for line in lines}
    assert by_node == {
        "source": ("reuse", "first"),
        "item": ("reuse", "first"),
        "total": ("reuse", "first"),
        "act": ("run", ""),
        "last": ("run", ""),
    }


async def test_the_plan_derives_the_run_as_the_runtime_does(tmp_path: Path) -> None:
    """Without run_id: the flow's own function, else the digest of name and input."""
    shop = Shop(tmp_path)
    path = await shop.log(tmp_path / "log", run_id="run-1")
    planned = shop.flow(run_id=lambda start: f"run-{start}").plan(path, 1)
    assert shown(planned)["total"] == "reuse"
    async with evsrc.open_runtime(tmp_path / "derived", tools=shop.desk.all_tools) as runtime:
        await runtime.run(shop.flow(), 1)
    assert shown(shop.flow().plan(tmp_path / "derived", 1))["total"] == "reuse"


async def test_the_plan_writes_nothing_and_needs_no_lock(tmp_path: Path) -> None:
    """Made beside the process that holds the log; no file changes."""
    shop = Shop(tmp_path)
    path = await shop.log(tmp_path / "log")
    async with evsrc.open_runtime(path):
        before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
        shop.flow().plan(path, 1, run_id="r")
        assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


async def test_a_plan_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """No log, another input under the run's id, a file that is missing."""
    shop = Shop(tmp_path)
    with pytest.raises(FileNotFoundError, match="no log at"):
        shop.flow().plan(tmp_path / "nowhere", 1)
    path = await shop.log(tmp_path / "log")
    with pytest.raises(InputMismatch, match="another input"):
        shop.flow().plan(path, 2, run_id="r")
    shop.feed.unlink()
    with pytest.raises(DefinitionError, match="feed"):
        shop.flow().plan(path, 1, run_id="r")


def test_planning_an_event_is_no_event() -> None:
    """A line of the plan is derived, and never stored."""
    assert Planned not in Event.__args__
