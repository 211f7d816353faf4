"""The demo's flow against a real world: end to end, resumed, and on a feed that changed meanwhile."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evsrc
from evsrc.core.events import QuestionAsked
from evsrc.demo.corpus import feed_path, findings
from evsrc.demo.flow import all_tools, build_flow
from evsrc.demo.nodes import NODES, Report
from evsrc.demo.tools import WorldTools
from evsrc.demo.world import World
from evsrc.log.base import Log
from tests.runtime.desk import cut, of_kind

FINDING = findings()[0]
"""One of its addresses is bad in the first feed, and a false alarm in the second."""

ALL_NODES = Counter({**dict.fromkeys(NODES, 1), "reputation": 6})


class Desk:
    """One world, one feed file, and the flow over them; counts the bodies that run."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.feed = folder / "feed.json"
        self.change_feed(1)
        self.heard: Counter[str] = Counter()

    def change_feed(self, version: int) -> None:
        """Put that version of the feed in the one place."""
        self.feed.write_bytes(Path(feed_path(version)).read_bytes())

    def ran(self) -> Counter[str]:
        """Bodies that ran since the last time."""
        heard, self.heard = self.heard, Counter()
        return heard

    def effects(self) -> Counter[str]:
        """What the world holds, by kind."""
        return Counter(row.kind for row in self.world.rows())

    async def run(self, log: Log | Path, *, keep: bool = False) -> Any:
        """Run the flow for the finding; answer what is asked with keep, if told so."""
        async with WorldTools(self.world.url) as tools:
            flow = build_flow(tools, str(self.feed), heard=self._hear)
            async with evsrc.open_runtime(log, workflows=[flow], tools=all_tools(tools)) as runtime:
                outcome = await runtime.run(flow, FINDING)
                while keep and isinstance(outcome, evsrc.Suspended):
                    for question in outcome.questions:
                        await runtime.answers.answer(
                            outcome.run_id, question.question, "keep", by="ada"
                        )
                    outcome = await runtime.run(flow, FINDING)
                return outcome

    def _hear(self, node: str) -> None:
        self.heard[node] += 1


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A fresh world."""
    with World(tmp_path / "world.db") as world:
        yield Desk(world, tmp_path)


async def test_a_finding_from_end_to_end(desk: Desk, tmp_path: Path) -> None:
    """Each node runs once, each effect is there once, and the report names them; again from the log."""
    outcome = await desk.run(tmp_path / "log")
    report: Report = outcome.value["report"]
    assert desk.ran() == ALL_NODES
    assert desk.effects() == {"ticket": 1, "block": 1, "disable": 1, "page": 1}
    refs = {f"{row.kind}-{row.id}" for row in desk.world.rows()}
    assert {report.ticket, report.block, report.disable, report.page} == refs
    assert outcome.run_id == report.finding == FINDING.uid
    again = await desk.run(tmp_path / "log")
    assert again.value == outcome.value
    assert desk.ran() == Counter()
    assert sum(desk.effects().values()) == 4


async def test_a_stale_feed_on_which_nobody_acted_is_read_again(desk: Desk, tmp_path: Path) -> None:
    """Killed before the first act, the feed changes: exactly what rests on it runs."""
    log = evsrc.MemoryLog()
    await desk.run(log)
    left = await cut(log, before="IntentRecorded")
    desk.ran()
    desk.change_feed(2)
    with World(tmp_path / "later.db") as world:
        desk.world = world
        outcome = await desk.run(left)
        assert outcome.value["report"].block == ""
        assert desk.effects()["block"] == 0
        assert desk.effects()["ticket"] == 1
    ran = desk.ran()
    assert [ran[node] for node in ("triage", "indicators", "asset", "context")] == [0, 0, 0, 0]
    assert [ran[node] for node in ("reputation", "verdict", "ticket", "report")] == [6, 1, 1, 1]
    assert of_kind(left, QuestionAsked, FINDING.uid) == []


async def test_a_stale_feed_on_which_the_block_rests_is_asked_about(desk: Desk) -> None:
    """Killed after the acts, the feed changes: the block is not undone by itself; a person decides."""
    log = evsrc.MemoryLog()
    await desk.run(log)
    left = await cut(log, before="RunCompleted")
    desk.ran()
    desk.change_feed(2)
    outcome = await desk.run(left)
    assert isinstance(outcome, evsrc.Suspended)
    (question,) = outcome.questions
    assert (question.kind, question.subject) == ("pinned", "reputation")
    assert f"file:{desk.feed}" in question.text
    kept = await desk.run(left, keep=True)
    assert kept.value["report"].block.startswith("block-")
    assert desk.ran() == Counter()
    assert desk.effects() == {"ticket": 1, "block": 1, "disable": 1, "page": 1}
