"""Checkpoints: what is reused after a restart or a change, what an act pins, and what a person is asked."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import NodeOutput, QuestionAsked
from evsrc.core.state import fold
from evsrc.log.base import Log
from evsrc.projections.checkpoints import Checkpoints
from evsrc.runtime.plan import Planner
from tests.runtime.desk import Desk, cut, events, kinds, of_kind
from tests.runtime.flows import Seen, counted, go, heard, keep, load, ran


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each test counts its own bodies."""
    ran()


PLAYBOOK = """
import evsrc
from tests.runtime.flows import heard

LIMIT = 3

def helper(value: int) -> int:
    return value + 1

def build(params, reads):
    flow = evsrc.Flow("playbook", input=int)

    @flow.node
    async def constant(start: int) -> int:
        heard("constant")
        return LIMIT

    @flow.node
    async def helped(start: int) -> int:
        heard("helped")
        return helper(start)

    @flow.node(params=params)
    async def parameter(start: int, limit: int) -> int:
        heard("parameter")
        return limit

    @flow.node(reads=reads)
    async def file(start: int) -> str:
        heard("file")
        with open(reads[0]) as feed:
            return feed.read()

    @flow.node
    async def below(constant: int, file: str) -> str:
        heard("below")
        return f"{constant}{file}"

    @flow.node
    async def last(below: str, helped: int, parameter: int) -> str:
        heard("last")
        return f"{below}{helped}{parameter}"

    return flow
"""

NODES = ("constant", "helped", "parameter", "file", "below", "last")


class Case:
    """The playbook as it is now: its text, its parameter, its feed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.text = PLAYBOOK
        self.params = {"limit": 1}
        self.feed = folder / "feed"
        self.feed.write_text("v1")

    def flow(self) -> evsrc.Flow[int]:
        """Import it anew and build it."""
        made: evsrc.Flow[int] = load(self.folder, self.text).build(self.params, [str(self.feed)])
        return made


async def ended_before_completion(log: Log) -> evsrc.MemoryLog:
    """The same run, killed when all its nodes were done."""
    return await cut(log, before="RunCompleted")


# ---- restarts and changes ------------------------------------------------------------------------


async def test_nothing_runs_again_under_the_same_code(tmp_path: Path) -> None:
    """After a crash at any record, exactly the nodes without an output run, and the result is the same."""
    case, log = Case(tmp_path), evsrc.MemoryLog()
    outcome = await go(log, case.flow(), 1)
    assert counted() == dict.fromkeys(NODES, 1)
    for records in range(1, log.last_position):
        left = await cut(log, records)
        done = {output.node for output in of_kind(left, NodeOutput)}
        again = await go(left, case.flow(), 1)
        assert again.value == outcome.value
        assert counted() == dict.fromkeys(set(NODES) - done, 1)


CHANGES: dict[str, tuple[tuple[str, str], set[str]]] = {
    "a constant": (("LIMIT = 3", "LIMIT = 4"), {"constant", "below", "last"}),
    "a helper": (("value + 1", "value + 2"), {"helped", "last"}),
    "the code": (('return f"{constant}{file}"', 'return f"{file}{constant}"'), {"below", "last"}),
    "a comment": (("    async def below", "    # why\n    async def below"), set()),
    "a docstring": (("    return value + 1", '    """Why."""\n    return value + 1'), set()),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_of_code_runs_exactly_what_it_affects(tmp_path: Path, change: str) -> None:
    """A constant, a helper or a body: the nodes that name it and all below; comments count for nothing."""
    case, log = Case(tmp_path), evsrc.MemoryLog()
    await go(log, case.flow(), 1)
    ran()
    (before, after), affected = CHANGES[change]
    assert case.text.count(before) == 1
    case.text = case.text.replace(before, after)
    left = await ended_before_completion(log)
    assert isinstance(await go(left, case.flow(), 1), evsrc.Completed)
    assert counted() == dict.fromkeys(affected, 1)


async def test_a_changed_parameter_or_file_runs_exactly_what_it_affects(tmp_path: Path) -> None:
    """The parameter's node and all below; then the file's readers and all below."""
    case, log = Case(tmp_path), evsrc.MemoryLog()
    await go(log, case.flow(), 1)
    ran()
    left = await ended_before_completion(log)
    case.params = {"limit": 2}
    await go(left, case.flow(), 1)
    assert counted() == {"parameter": 1, "last": 1}
    left = await ended_before_completion(left)
    case.feed.write_text("v2")
    outcome = await go(left, case.flow(), 1)
    assert counted() == {"file": 1, "below": 1, "last": 1}
    assert outcome.value["last"] == "3v222"


async def test_another_input_is_another_key() -> None:
    """Nodes that take the input run for each input; under reuse="log" the others do not."""
    flow, log = two_readers(), evsrc.MemoryLog()
    await go(log, flow, 1, run_id="a")
    await go(log, flow, 2, run_id="b")
    assert counted() == {"takes": 2, "constant": 1, "below": 2}


def two_readers() -> evsrc.Flow[int]:
    """A flow that shares checkpoints over the log: one node takes the input, one does not."""
    flow = evsrc.Flow("shared", input=int, reuse="log")

    @flow.node(version="1")
    async def takes(start: int) -> int:
        heard("takes")
        return start

    @flow.node(version="1")
    async def constant() -> int:
        heard("constant")
        return 7

    @flow.node(version="1")
    async def below(takes: int, constant: int) -> int:
        heard("below")
        return takes + constant

    return flow


# ---- across runs ---------------------------------------------------------------------------------


def acting(desk: Desk, reuse: Any) -> evsrc.Flow[int]:
    """Two nodes that only compute, one that acts, one below it."""
    flow = evsrc.Flow("acting", input=int, reuse=reuse)

    @flow.node(version="1")
    async def pure(start: int) -> int:
        heard("pure")
        return start

    @flow.each(double := flow.node(version="1")(_pair), key=str, version="1")
    async def item(one: int) -> int:
        heard("item")
        return one

    @flow.node(version="1")
    async def act(run: evsrc.Run, pure: int) -> str:
        heard("act")
        return await run.call(desk.note, f"n{pure}")

    @flow.node(version="1")
    async def below(act: str, item: list[int]) -> str:
        heard("below")
        return act

    assert double is _pair
    return flow


async def _pair(pure: int) -> list[int]:
    return [pure, pure + 1]


async def test_checkpoints_of_the_log_are_reused_but_never_acts() -> None:
    """With reuse="log" another run adopts what was computed, items too; what acts, or is below, runs."""
    desk, log, seen = Desk(), evsrc.MemoryLog(), Seen()
    flow = acting(desk, "log")
    await go(log, flow, 1, run_id="a", tools=desk.all_tools)
    ran()
    outcome = await go(log, flow, 1, run_id="b", tools=desk.all_tools, observers=[seen])
    assert isinstance(outcome, evsrc.Completed)
    assert counted() == {"act": 1, "below": 1}
    assert desk.effects("n1") == 2
    assert sorted(seen.of("node_reused")) == ["_pair", "item[1]", "item[2]", "pure"]
    adopted = [o for o in of_kind(log, NodeOutput, "b") if o.source_run]
    assert {(o.node, o.source_run) for o in adopted} == {
        (name, "a") for name in ("pure", "_pair", "item")
    }


async def test_by_default_checkpoints_are_of_their_own_run() -> None:
    """Without reuse="log" another run computes everything itself."""
    desk, log = Desk(), evsrc.MemoryLog()
    flow = acting(desk, "run")
    await go(log, flow, 1, run_id="a", tools=desk.all_tools)
    ran()
    await go(log, flow, 1, run_id="b", tools=desk.all_tools)
    assert counted() == {"pure": 1, "item": 2, "act": 1, "below": 1}


def counting(numbers: Iterator[int], version: str, reuse: Any, *, whole: bool = True) -> Any:
    """A node that never gives the same output twice, and one below it."""
    flow = evsrc.Flow("counting", input=int, reuse=reuse)

    @flow.node(version=version)
    async def up(start: int) -> int:
        return next(numbers)

    if whole:

        @flow.node(version="1")
        async def below(up: int) -> int:
            heard("below")
            return up * 10

    return flow


async def test_an_output_is_admitted_by_what_it_was_computed_from() -> None:
    """A roll-back finds the old key and another output above it: the old output below is not reused."""
    log, numbers = evsrc.MemoryLog(), count(1)
    await go(log, counting(numbers, "1", "run"), 1)
    left = await cut(log, before="RunCompleted")
    await go(left, counting(numbers, "2", "run"), 1)
    outputs = [i for i, kind in enumerate(kinds(left)) if kind == "NodeOutput"]
    left = await cut(left, outputs[2] + 1)
    ran()
    outcome = await go(left, counting(numbers, "1", "run"), 1)
    assert outcome.value == {"up": 3, "below": 30}
    assert ran() == ["below"]


async def test_an_output_of_another_run_is_admitted_by_what_it_was_computed_from() -> None:
    """The newest output above comes from one run, the one below was computed in another: it runs."""
    log, numbers = evsrc.MemoryLog(), count(1)
    await go(log, counting(numbers, "1", "run"), 1, run_id="a")
    await go(log, counting(numbers, "1", "run", whole=False), 1, run_id="b")
    outcome = await go(log, counting(numbers, "1", "log"), 1, run_id="c")
    assert outcome.value == {"up": 2, "below": 20}


# ---- acts that rest on older evidence ------------------------------------------------------------


class Stale:
    """A feed, its reputation per address, a verdict, an act that rests on it, and a report."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk()
        self.feed = folder / "feed"
        self.feed.write_text("bad")
        self.version = "1"

    def flow(self) -> evsrc.Flow[int]:
        """The flow, of the current version of `verdict`."""
        flow, feed, desk = evsrc.Flow("stale", input=int), self.feed, self.desk

        @flow.node(version="1")
        async def addresses(start: int) -> list[str]:
            heard("addresses")
            return ["a", "b"]

        @flow.each(addresses, key=str, reads=[feed], version="1")
        async def reputation(one: str) -> str:
            heard(f"reputation {one}")
            return feed.read_text()

        @flow.node(version=self.version)
        async def verdict(reputation: list[str]) -> str:
            heard("verdict")
            return ",".join(reputation)

        @flow.node(version="1")
        async def block(run: evsrc.Run, verdict: str) -> str | None:
            heard("block")
            return await run.call(desk.block, "host", "why") if "bad" in verdict else None

        @flow.node(version="1")
        async def report(verdict: str, block: str | None) -> str:
            heard("report")
            return f"{verdict} {block}"

        return flow

    async def acted(self, *, before: str = "RunCompleted") -> evsrc.MemoryLog:
        """A log of a run that blocked, cut somewhere; then the feed changes."""
        log = evsrc.MemoryLog()
        await go(log, self.flow(), 1, tools=self.desk.all_tools)
        ran()
        self.feed.write_text("good")
        return await cut(log, before=before)

    def plan(self, log: Log) -> dict[str, tuple[str, tuple[str, ...]]]:
        """The plan of the run, by node."""
        return plan_of(self.flow(), log)


def plan_of(flow: Any, log: Log) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The plan of run r, by node."""
    lines = Planner(flow, "r", 1, fold("r", events(log)), Checkpoints()).plan()
    return {f"{p.node}[{p.item}]" if p.item else p.node: (p.status, p.why) for p in lines}


async def test_a_stale_feed_without_an_act_is_simply_computed_again(tmp_path: Path) -> None:
    """Nothing acted yet: no question; the act that the new feed does not ask for never happens."""
    case = Stale(tmp_path)
    left = await case.acted(before="IntentRecorded")
    outcome = await go(left, case.flow(), 1, tools=case.desk.all_tools)
    assert outcome.value["report"] == "good,good None"
    assert counted() == {
        "reputation a": 1, "reputation b": 1, "verdict": 1, "block": 1, "report": 1
    }  # fmt: skip
    assert of_kind(left, QuestionAsked) == []


async def test_an_act_on_a_stale_feed_is_asked_about_once(tmp_path: Path) -> None:
    """One question for all items, which names the file; what descends waits; nothing runs or is sent."""
    case = Stale(tmp_path)
    left = await case.acted()
    for _ in range(2):
        outcome = await go(left, case.flow(), 1, tools=case.desk.all_tools)
        assert isinstance(outcome, evsrc.Suspended)
        (question,) = outcome.questions
        assert (question.kind, question.subject) == ("pinned", "reputation")
        assert f"file:{case.feed}" in question.text
    assert ran() == []
    assert len(of_kind(left, QuestionAsked)) == 1
    assert case.desk.effects("host") == 1


async def test_keep_goes_on_with_the_older_evidence(tmp_path: Path) -> None:
    """Nothing is computed again, nothing is sent again, and the run completes; also over a restart."""
    case = Stale(tmp_path)
    left = await case.acted()
    outcome = await keep(left, case.flow(), 1, tools=case.desk.all_tools)
    assert outcome.value["report"] == "bad,bad host-1"
    assert ran() == []
    assert case.desk.effects("host") == 1
    kept = await cut(left, before="RunCompleted")
    assert isinstance(await go(kept, case.flow(), 1, tools=case.desk.all_tools), evsrc.Completed)
    assert len(of_kind(kept, QuestionAsked)) == 1


async def test_a_further_change_is_a_further_question(tmp_path: Path) -> None:
    """Keep was said of one change only."""
    case = Stale(tmp_path)
    left = await case.acted()
    await keep(left, case.flow(), 1, tools=case.desk.all_tools)
    kept = await cut(left, before="RunCompleted")
    case.feed.write_text("other")
    outcome = await go(kept, case.flow(), 1, tools=case.desk.all_tools)
    assert isinstance(outcome, evsrc.Suspended)


async def test_changed_code_under_an_act_is_asked_about_too(tmp_path: Path) -> None:
    """The node whose code changed is the subject; what does not descend from it is untouched."""
    case = Stale(tmp_path)
    left = await case.acted()
    case.feed.write_text("bad")
    case.version = "2"
    outcome = await go(left, case.flow(), 1, tools=case.desk.all_tools)
    assert isinstance(outcome, evsrc.Suspended)
    (question,) = outcome.questions
    assert (question.subject, "code changed" in question.text) == ("verdict", True)
    assert case.plan(left)["verdict"] == ("pinned", ("code",))
    assert case.plan(left)["reputation[a]"] == ("pinned", ())


async def test_an_unfinished_act_settles_first_and_is_then_replayed(tmp_path: Path) -> None:
    """Killed between intent and output, under the same code: it goes on and acts once."""
    case = Stale(tmp_path)
    left = await case.acted(before="ResultRecorded")
    case.feed.write_text("bad")
    assert case.plan(left)["block"] == ("pinned", ("unfinished",))
    outcome = await go(left, case.flow(), 1, tools=case.desk.all_tools)
    assert outcome.value["report"] == "bad,bad host-1"
    assert counted() == {"block": 1, "report": 1}
    assert case.desk.effects("host") == 1


async def test_an_unfinished_act_on_changed_evidence_asks_and_then_settles(tmp_path: Path) -> None:
    """The evidence is pinned although the act has no output yet; keep lets it finish on the old feed."""
    case = Stale(tmp_path)
    left = await case.acted(before="ResultRecorded")
    outcome = await go(left, case.flow(), 1, tools=case.desk.all_tools)
    assert [q.subject for q in outcome.questions] == ["reputation"]
    outcome = await keep(left, case.flow(), 1, tools=case.desk.all_tools)
    assert outcome.value["report"] == "bad,bad host-1"
    assert case.desk.effects("host") == 1


async def test_an_act_of_newer_evidence_is_not_given_an_older_output(tmp_path: Path) -> None:
    """First nothing was to be done; on a new feed it acted and was killed: that act goes on."""
    case = Stale(tmp_path)
    case.feed.write_text("good")
    log = evsrc.MemoryLog()
    await go(log, case.flow(), 1, tools=case.desk.all_tools)
    left = await cut(log, before="RunCompleted")
    case.feed.write_text("bad")
    await go(left, case.flow(), 1, tools=case.desk.all_tools)
    assert case.desk.effects("host") == 1
    killed = await cut(left, 1 + kinds(left).index("ResultRecorded"))
    assert kinds(killed)[-1] == "ResultRecorded"
    ran()
    outcome = await go(killed, case.flow(), 1, tools=case.desk.all_tools)
    assert outcome.value["report"] == "bad,bad host-1"
    assert counted() == {"block": 1, "report": 1}
    assert case.desk.effects("host") == 1


async def test_old_and_new_feed_above_one_node_raise_the_question(tmp_path: Path) -> None:
    """An item that acted is pinned on the old feed, another is computed on the new one: a person decides."""
    desk, feed = Desk(), tmp_path / "feed"
    feed.write_text("old")
    flow = evsrc.Flow("mixed", input=int)

    @flow.node(version="1")
    async def source(start: int) -> list[str]:
        return ["acts", "reads"]

    @flow.each(source, key=str, reads=[feed], version="1")
    async def item(one: str, run: evsrc.Run) -> str:
        if one == "acts":
            await run.call(desk.note, one)
        else:
            await anyio.sleep(0.03)
        return feed.read_text()

    @flow.node(version="1")
    async def total(item: list[str]) -> str:
        return ",".join(item)

    @flow.node(version="1")
    async def below(total: str) -> str:
        return total

    log = evsrc.MemoryLog()
    await go(log, flow, 1, tools=desk.all_tools)
    outputs = [i for i, kind in enumerate(kinds(log)) if kind == "NodeOutput"]
    left = await cut(log, outputs[2])
    assert [o.item for o in of_kind(left, NodeOutput)] == ["", "acts"]
    feed.write_text("new")
    assert plan_of(flow, left)["total"] == (
        "run",
        ("no checkpoint", f"file:{feed} in two versions"),
    )

    outcome = await keep(left, flow, 1, tools=desk.all_tools)
    asked = [(q.subject, "in two versions" in q.text) for q in of_kind(left, QuestionAsked)]
    assert asked == [("item", False), ("total", True)]
    assert outcome.value["below"] == "old,new"
    assert desk.effects("acts") == 1


async def test_the_plan_of_a_stale_feed_names_the_file(tmp_path: Path) -> None:
    """Pinned nodes name what changed; what rests on them unchanged is pinned or reused without reason."""
    case = Stale(tmp_path)
    plan = case.plan(await case.acted())
    changed = (f"file:{case.feed}",)
    assert plan == {
        "addresses": ("pinned", ()),
        "reputation[a]": ("pinned", changed),
        "reputation[b]": ("pinned", changed),
        "verdict": ("pinned", ()),
        "block": ("pinned", ()),
        "report": ("reuse", ()),
    }
