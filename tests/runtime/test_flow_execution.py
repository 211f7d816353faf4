"""Running a flow: waves, budget, waiting for people, failures, retries, fan-outs, and what blocks a run."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import NodeFailed, NodeOutput, NodeStarted, RunFailed
from evsrc.errors import DefinitionError, DivergenceError, KeyReuseError, LimitExceeded, Transient
from tests.runtime.desk import Desk, SlowLog, cut, kinds, of_kind, until
from tests.runtime.flows import Seen, counted, go, heard, keep, ran

BIG_WAVE = 10_000
BIG_WAVE_S_MAX = 60.0
"""Far above what it takes (4 s), far below what a scan of all nodes for each node would take."""


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each test counts its own bodies."""
    ran()


def flow(**options: Any) -> evsrc.Flow[int]:
    """An empty flow over a number."""
    return evsrc.Flow("flow", input=int, **options)


class Busy:
    """Counts how many bodies are at work at one time."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    @asynccontextmanager
    async def work(self, seconds: float = 0.005) -> AsyncIterator[None]:
        """A body is at work."""
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await anyio.sleep(seconds)
            yield
        finally:
            self.now -= 1


# ---- waves, ready, budget ------------------------------------------------------------------------


def two_waves(schedule: Any) -> evsrc.Flow[int]:
    """A slow and a quick node, and one below the quick one."""
    declared = flow(schedule=schedule)

    @declared.node(version="1")
    async def slow(start: int) -> int:
        await anyio.sleep(0.05)
        heard("slow")
        return start

    @declared.node(version="1")
    async def quick(start: int) -> int:
        heard("quick")
        return start

    @declared.node(version="1")
    async def below(quick: int) -> int:
        heard("below")
        return quick

    return declared


async def test_waves_run_one_after_the_other() -> None:
    """Under waves a node waits for all of the wave before it, also for those that it does not need."""
    outcome = await go(evsrc.MemoryLog(), two_waves("waves"), 1)
    assert isinstance(outcome, evsrc.Completed)
    assert ran() == ["quick", "slow", "below"]


async def test_ready_starts_a_node_as_soon_as_its_needs_are_met() -> None:
    """Under ready it waits for its own needs only."""
    await go(evsrc.MemoryLog(), two_waves("ready"), 1)
    assert ran() == ["quick", "below", "slow"]


async def test_never_more_than_the_budget_runs_at_once() -> None:
    """Plain nodes and items of a fan-out share one budget, and use all of it."""
    busy, declared = Busy(), flow(at_once=3)

    def make(number: int) -> Callable[..., Any]:
        async def node(start: int) -> int:
            async with busy.work():
                return number

        node.__name__ = f"node{number}"
        return node

    for number in range(5):
        declared.node(version="1")(make(number))

    @declared.node(version="1")
    async def items(start: int) -> list[int]:
        return list(range(8))

    @declared.each(items, key=str, version="1")
    async def item(one: int) -> int:
        async with busy.work():
            return one

    outcome = await go(evsrc.MemoryLog(), declared, 1)
    assert outcome[item] == list(range(8))
    assert busy.most == 3


async def test_a_node_that_waits_for_a_human_gives_its_slot_back() -> None:
    """With one slot the next node runs meanwhile; after the answer the first goes on only with a slot."""
    desk, busy, declared = Desk("lose"), Busy(), flow(at_once=1, schedule="ready")
    release = anyio.Event()

    @declared.node(version="1")
    async def asks(run: evsrc.Run) -> str:
        ref = await run.call(desk.page, "p")
        async with busy.work():
            heard("asks goes on")
            return ref

    @declared.node(version="1")
    async def first(start: int) -> int:
        return start

    @declared.node(version="1")
    async def other(first: int) -> int:
        async with busy.work():
            heard("other")
            await release.wait()
            heard("other ends")
            return first

    log = evsrc.MemoryLog()
    async with (
        evsrc.open_runtime(log, workflows=[declared], tools=desk.all_tools) as runtime,
        anyio.create_task_group() as group,
    ):
        group.start_soon(runtime.run, declared, 1)
        await until(lambda: len(runtime.questions()) == 1 and busy.now == 1)
        run_id, question = runtime.questions()[0]
        await runtime.answers.answer(run_id, question.question, "happened", by="ada", value="P-1")
        await anyio.sleep(0.03)
        assert ran() == ["other"]
        release.set()
        outcome = await (await runtime.start(declared, 1)).wait()
        assert outcome[asks] == "P-1"
    assert ran() == ["other ends", "asks goes on"]
    assert busy.most == 1


@pytest.mark.parametrize("schedule", ["waves", "ready"])
async def test_an_open_question_holds_up_what_depends_on_it_only(schedule: Any) -> None:
    """The rest of the flow goes on, later waves too; then the run is suspended, and an answer ends it."""
    desk, declared = Desk("lose"), flow(schedule=schedule)

    @declared.node(version="1")
    async def asks(run: evsrc.Run) -> str:
        return await run.call(desk.page, "p")

    @declared.node(version="1")
    async def quick(start: int) -> int:
        return start

    @declared.node(version="1")
    async def below_asks(asks: str) -> str:
        heard("below_asks")
        return asks

    @declared.node(version="1")
    async def below_quick(quick: int) -> int:
        heard("below_quick")
        return quick

    @declared.node(version="1")
    async def last(below_quick: int) -> int:
        heard("last")
        return below_quick

    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log, workflows=[declared], tools=desk.all_tools) as runtime:
        outcome = await runtime.run(declared, 1, run_id="r")
        assert isinstance(outcome, evsrc.Suspended)
        assert ran() == ["below_quick", "last"]
        (question,) = outcome.questions
        await runtime.answers.answer("r", question.question, "happened", by="ada", value="P-1")
        outcome = await runtime.run(declared, 1, run_id="r")
        assert outcome[below_asks] == "P-1"
    assert ran() == ["below_asks"]


async def test_blocking_nodes_run_in_threads() -> None:
    """A plain function does not hold up the event loop."""
    declared, here = flow(), threading.get_ident()

    @declared.node(version="1")
    def blocking(start: int) -> bool:
        return threading.get_ident() != here

    @declared.each(blocking_list := declared.node(version="1")(_two_items), key=str, version="1")  # type: ignore[arg-type]
    def item(one: int) -> bool:
        return threading.get_ident() != here

    outcome = await go(evsrc.MemoryLog(), declared, 1)
    assert outcome[blocking] is True
    assert outcome[item] == [True, True]
    assert outcome[blocking_list] == [1, 2]


def _two_items(start: int) -> list[int]:
    return [1, 2]


async def test_a_wave_of_ten_thousand_runs() -> None:
    """No step costs as much as the wave is wide."""
    declared = flow(at_once=64)
    for number in range(BIG_WAVE):
        scope: dict[str, Any] = {}
        exec(f"async def node{number}(start: int) -> int: return start", scope)
        declared.node(version="1")(scope[f"node{number}"])
    with anyio.fail_after(BIG_WAVE_S_MAX):
        outcome = await go(evsrc.MemoryLog(), declared, 1)
    assert len(outcome.value) == BIG_WAVE


# ---- failures and retries ------------------------------------------------------------------------


def with_a_failure(error: Exception, **options: Any) -> evsrc.Flow[int]:
    """A node that fails, a slow sibling, and nodes below each."""
    declared = flow(**options)

    @declared.node(version="1")
    async def fails(start: int) -> int:
        heard("fails")
        raise error

    @declared.node(version="1")
    async def sibling(start: int) -> int:
        await anyio.sleep(0.02)
        heard("sibling")
        return start

    @declared.node(version="1")
    async def later(sibling: int) -> int:
        heard("later")
        return sibling

    return declared


@pytest.mark.parametrize("schedule", ["waves", "ready"])
async def test_a_failed_node_does_not_cancel_its_siblings(schedule: Any) -> None:
    """They finish and are recorded; nothing later starts; the run fails with the recorded error."""
    log, declared = evsrc.MemoryLog(), with_a_failure(ValueError("no"), schedule=schedule)
    outcome = await go(log, declared, 1)
    assert isinstance(outcome, evsrc.Failed)
    assert (outcome.error.type, outcome.error.message) == ("ValueError", "no")
    assert ran() == ["fails", "sibling"]
    assert [o.node for o in of_kind(log, NodeOutput)] == ["sibling"]
    assert kinds(log)[-1] == "RunFailed"


async def test_a_failed_run_stays_failed() -> None:
    """After a restart it gives its recorded outcome, and nothing runs."""
    log = evsrc.MemoryLog()
    first = await go(log, with_a_failure(ValueError("no")), 1)
    ran()
    again = await go(log, with_a_failure(ValueError("other")), 1)
    assert (first.error, ran()) == (again.error, [])


async def test_giving_up_survives_a_crash_before_the_run_failed() -> None:
    """The node's last failure is in the log: it is not run again, the run fails with it."""
    log = evsrc.MemoryLog()
    await go(log, with_a_failure(ValueError("no")), 1)
    ran()
    left = await cut(log, before="RunFailed")
    outcome = await go(left, with_a_failure(ValueError("other")), 1)
    assert (outcome.error.message, ran()) == ("no", [])
    assert len(of_kind(left, RunFailed)) == 1


class Flaky:
    """Raises what it is given, in order, and then works."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)

    def __call__(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def retried(flaky: Flaky, retry: evsrc.Retry) -> evsrc.Flow[int]:
    """One node with a budget of attempts."""
    declared = flow()

    @declared.node(version="1", retry=retry)
    async def node(start: int) -> int:
        heard("node")
        flaky()
        return start

    return declared


async def test_transient_errors_are_retried() -> None:
    """ConnectionError, TimeoutError, evsrc's Transient, and what Retry(on=...) names; others are not."""
    flaky = Flaky(ConnectionResetError(), TimeoutError(), Transient("busy"), KeyError("k"))
    retry = evsrc.Retry(attempts=5, pause_s=0, on=(KeyError,))
    log = evsrc.MemoryLog()
    assert isinstance(await go(log, retried(flaky, retry), 1), evsrc.Completed)
    assert [e.attempt for e in of_kind(log, NodeStarted)] == [1, 2, 3, 4, 5]
    ran()
    hard = await go(evsrc.MemoryLog(), retried(Flaky(KeyError("k")), evsrc.Retry(attempts=5)), 1)
    assert isinstance(hard, evsrc.Failed)
    assert ran() == ["node"]


async def test_attempts_survive_a_restart() -> None:
    """After a crash between two attempts the count goes on: three in all, not three more."""
    retry = evsrc.Retry(attempts=3, pause_s=0)
    always = Flaky(*(ConnectionResetError(str(n)) for n in range(9)))
    log = evsrc.MemoryLog()
    await go(log, retried(always, retry), 1)
    assert ran() == ["node"] * 3
    started = [i for i, kind in enumerate(kinds(log)) if kind == "NodeStarted"]
    left = await cut(log, started[1])  # before the second start
    outcome = await go(left, retried(always, retry), 1)
    assert isinstance(outcome, evsrc.Failed)
    assert ran() == ["node"] * 2
    assert [e.attempt for e in of_kind(left, NodeFailed)] == [1, 2, 3]


async def test_an_attempt_that_a_crash_cut_is_not_counted_twice() -> None:
    """Started and not ended: the same attempt goes on, without a second start in the log."""
    log = evsrc.MemoryLog()
    await go(log, retried(Flaky(), evsrc.Retry()), 1)
    left = await cut(log, before="NodeOutput")
    assert isinstance(await go(left, retried(Flaky(), evsrc.Retry()), 1), evsrc.Completed)
    assert [e.attempt for e in of_kind(left, NodeStarted)] == [1]


@pytest.mark.parametrize(("value", "error"), [("text", "UnusableValue"), ("x" * 800_000, "")])
async def test_an_output_that_cannot_be_recorded_fails_the_node(value: str, error: str) -> None:
    """Another type than declared, or too large: a failure of the node that names it."""
    declared = flow()

    @declared.node(version="1")
    async def node(start: int) -> Any:
        return object() if error else value

    outcome = await go(evsrc.MemoryLog(), declared, 1)
    assert isinstance(outcome, evsrc.Failed)
    assert outcome.error.type == (error or "LimitExceeded")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("own", [True, False])
async def test_a_stray_cancellation_is_a_failure_of_the_node(own: bool) -> None:
    """Awaiting what somebody cancelled, or cancelling itself, fails the node and nobody else."""
    import asyncio

    declared = with_a_failure(ValueError())

    @declared.node(version="1")
    async def cancelled(start: int) -> int:
        if own:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        other = asyncio.ensure_future(asyncio.sleep(1))
        other.cancel()
        await other
        return start

    log = evsrc.MemoryLog()
    outcome = await go(log, declared, 1)
    assert isinstance(outcome, evsrc.Failed)
    failures = {e.node: e.error.type for e in of_kind(log, NodeFailed)}
    assert failures == {"fails": "ValueError", "cancelled": "CancelledError"}
    assert ran() == ["fails", "sibling"]


async def test_what_a_node_does_to_its_arguments_is_seen_by_nobody() -> None:
    """Siblings, items and the next attempt get the values as recorded, as they would after a crash."""
    declared, params = evsrc.Flow("own", input=list[int]), {"limits": [1]}
    flaky = Flaky(ConnectionResetError(), ConnectionResetError())

    @declared.node(version="1")
    async def rows(start: list[int]) -> list[list[int]]:
        start.clear()
        return [[1], [2]]

    @declared.node(version="1", params=params, retry=evsrc.Retry(attempts=2, pause_s=0))
    async def spoils(rows: list[list[int]], start: list[int], limits: list[int]) -> list[Any]:
        seen = [len(rows), list(start), list(limits)]
        for value in (*rows, rows, start, limits):
            value.clear()
        flaky()
        return seen

    @declared.each(rows, key=lambda row: str(row[0]), version="1", retry=evsrc.Retry(2, 0))
    async def item(row: list[int]) -> int:
        value = row.pop()
        flaky()
        return value

    @declared.node(version="1")
    async def reads(rows: list[list[int]], start: list[int]) -> list[Any]:
        return [*rows, start]

    outcome = await go(evsrc.MemoryLog(), declared, [7])
    assert outcome[spoils] == [2, [7], [1]]
    assert outcome[item] == [1, 2]
    assert outcome[reads] == [[1], [2], [7]]
    assert params == {"limits": [1]}


# ---- fan-outs ------------------------------------------------------------------------------------


def fan_out(values: list[int], *, key: Callable[[int], Any] = str, **options: Any) -> Any:
    """A list and an item node that sleeps longer for the first items."""
    declared = flow(**options)

    @declared.node(params={"values": values}, version="1")
    async def source(start: int, values: list[int]) -> list[int]:
        return values

    @declared.each(source, key=key, version="1")
    async def item(one: int) -> int:
        heard(f"item {one}")
        await anyio.sleep(0.01 / (1 + abs(one)))
        if one < 0:
            raise ValueError(str(one))
        return one * 10

    @declared.node(version="1")
    async def total(item: list[int]) -> int:
        heard("total")
        return sum(item)

    return declared, item, total


async def test_a_fan_out_gives_its_results_in_the_order_of_the_items() -> None:
    """Whatever order they end in, and after a restart too."""
    declared, item, total = fan_out([3, 1, 2])
    log = evsrc.MemoryLog()
    outcome = await go(log, declared, 1)
    assert (outcome[item], outcome[total]) == ([30, 10, 20], 60)
    again = await go(log, declared, 1)
    assert again.value == outcome.value


async def test_one_changed_item_reruns_one_item() -> None:
    """Items have keys of their own: the rest of a list that grew or changed is reused."""
    log = evsrc.MemoryLog()
    await go(log, fan_out([1, 2, 3])[0], 1)
    left = await cut(log, before="RunCompleted")
    ran()
    declared, item, _ = fan_out([2, 4, 1, 3])
    outcome = await go(left, declared, 1)
    assert outcome[item] == [20, 40, 10, 30]
    assert ran() == ["item 4", "total"]


async def test_a_fan_out_over_nothing_gives_an_empty_list() -> None:
    """Zero items are done at once, and the node below sees an empty list."""
    declared, item, total = fan_out([])
    outcome = await go(evsrc.MemoryLog(), declared, 1)
    assert (outcome[item], outcome[total]) == ([], 0)


async def test_a_failed_item_does_not_cancel_the_others() -> None:
    """All items end; the run fails with the first failure in the order of the items."""
    log, declared = evsrc.MemoryLog(), fan_out([-1, 5, -2])[0]
    outcome = await go(log, declared, 1)
    assert isinstance(outcome, evsrc.Failed)
    assert outcome.error.message == "-1"
    assert counted() == {"item -1": 1, "item 5": 1, "item -2": 1}
    assert [o.item for o in of_kind(log, NodeOutput) if o.node == "item"] == ["5"]


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (lambda one: "same", KeyReuseError, "two items have the key 'same'"),
        (lambda one: "", LimitExceeded, "an item key is empty"),
        (lambda one: "x" * 201, LimitExceeded, "201 bytes"),
        (lambda one: one, DefinitionError, "key= gave 1"),
        (lambda one: {}[one], DefinitionError, "key= failed for item 0: KeyError"),
    ],
)
async def test_keys_that_do_not_name_items_block_the_run(
    key: Callable[[int], Any], error: type[Exception], text: str
) -> None:
    """No item runs, nothing ends the run, other runs go on, and fitting code completes it."""
    log, bad = evsrc.MemoryLog(), fan_out([1, 2], key=key)[0]
    async with evsrc.open_runtime(log, workflows=[bad]) as runtime:
        with pytest.raises(error, match=text):
            await runtime.run(bad, 1, run_id="r")
        assert list(runtime.blocked) == ["r"]
        other = evsrc.Flow("other", input=int)
        other.node(version="1")(_two_items)
        assert isinstance(await runtime.run(other, 1), evsrc.Completed)
    assert ran() == []
    assert kinds(log) == ["RunStarted", "NodeStarted", "NodeOutput"]
    assert isinstance(await go(log, fan_out([1, 2])[0], 1), evsrc.Completed)


async def test_a_fan_out_of_a_fan_out() -> None:
    """Items of items: each in the order of its source."""
    declared, item, _ = fan_out([1, 2])

    @declared.each(item, key=str, version="1")
    async def again(one: int) -> str:
        return f"<{one}>"

    assert (await go(evsrc.MemoryLog(), declared, 1))[again] == ["<10>", "<20>"]


async def test_an_item_that_takes_the_whole_list_depends_on_it() -> None:
    """Its key holds the list's key: another list runs it again."""

    def declare(values: list[int]) -> Any:
        declared = flow()

        @declared.node(params={"values": values}, version="1")
        async def source(start: int, values: list[int]) -> list[int]:
            return values

        @declared.each(source, key=str, version="1")
        async def share(one: int, source: list[int]) -> float:
            return one / sum(source)

        return declared, share

    log = evsrc.MemoryLog()
    declared, share = declare([1, 3])
    assert (await go(log, declared, 1))[share] == [0.25, 0.75]
    declared, share = declare([1, 3, 4])
    left = await cut(log, before="RunCompleted")
    assert (await go(left, declared, 1))[share] == [0.125, 0.375, 0.5]


# ---- what blocks a run ---------------------------------------------------------------------------


def acting(desk: Desk, *asked: str, fails: Exception | None = None, **options: Any) -> Any:
    """A node that acts, and one below it."""
    declared = flow()

    @declared.node(**{"version": "1", **options})
    async def act(run: evsrc.Run) -> str:
        for subject in asked:
            await run.options(label=subject).call(desk.note, subject)
        if fails is not None:
            raise fails
        return ",".join(asked)

    @declared.node(version="1")
    async def below(act: str) -> str:
        heard("below")
        return act

    return declared


async def test_code_that_no_longer_asks_for_a_recorded_call_blocks_the_run() -> None:
    """In the attempt that recorded it: no terminal event, nothing sent, and fitting code goes on."""
    desk, log = Desk(), evsrc.MemoryLog()
    tools = desk.all_tools
    await go(log, acting(desk, "a"), 1, tools=tools)
    left = await cut(log, before="NodeOutput")
    ran()
    with pytest.raises(DivergenceError, match="note 'a' in act.*Nothing was sent"):
        await go(left, acting(desk), 1, tools=tools)
    assert kinds(left) == kinds(await cut(log, before="NodeOutput"))
    assert isinstance(await go(left, acting(desk, "a"), 1, tools=tools), evsrc.Completed)
    assert (desk.effects("a"), ran()) == (1, ["below"])


async def test_an_act_that_a_later_attempt_does_not_ask_for_is_asked_about() -> None:
    """What descends waits; the question names the act; keep lets the output stand. Over restarts too."""
    desk, log = Desk(), evsrc.MemoryLog()
    tools, retry = desk.all_tools, evsrc.Retry(attempts=2, pause_s=0)
    failing = acting(desk, "a", fails=ConnectionResetError(), retry=retry)
    await go(log, failing, 1, tools=tools)
    started = [i for i, kind in enumerate(kinds(log)) if kind == "NodeStarted"]
    left = await cut(log, started[1])

    for _ in range(2):  # asked once, also by the next process
        outcome = await go(left, acting(desk, retry=retry), 1, tools=tools)
        assert isinstance(outcome, evsrc.Suspended)
        (question,) = outcome.questions
        assert (question.kind, question.subject) == ("pinned", "act")
        assert "without note 'a' in act" in question.text
    assert ran() == []

    outcome = await keep(left, acting(desk, retry=retry), 1, tools=tools)
    assert outcome.value == {"act": "", "below": ""}
    assert (desk.effects("a"), ran()) == (1, ["below"])


async def test_a_later_attempt_finds_the_acts_of_the_earlier_one() -> None:
    """It asks for them again and nothing is sent twice, nor asked."""
    desk, log = Desk(), evsrc.MemoryLog()
    tools, retry = desk.all_tools, evsrc.Retry(attempts=2, pause_s=0)
    await go(log, acting(desk, "a", fails=ConnectionResetError(), retry=retry), 1, tools=tools)
    started = [i for i, kind in enumerate(kinds(log)) if kind == "NodeStarted"]
    left = await cut(log, started[1])
    outcome = await go(left, acting(desk, "a", "b", retry=retry), 1, tools=tools)
    assert outcome.value["act"] == "a,b"
    assert (desk.effects("a"), desk.effects("b")) == (1, 1)


async def test_a_blocked_node_leaves_no_trace_in_its_siblings() -> None:
    """A sibling in the middle of a call is cut off, which is no giving up of its own: it goes on later."""
    desk, log = Desk(), evsrc.MemoryLog()
    desk.linger_s = 0.05

    def declare(label: str) -> evsrc.Flow[int]:
        declared = flow()

        @declared.node(version="1")
        async def sibling(run: evsrc.Run) -> str:
            return await run.call(desk.note, "s")

        @declared.node(version="1")
        async def misuse(run: evsrc.Run) -> str:
            await run.options(label="once").step(_one)
            await anyio.sleep(0.01)
            return str(await run.options(label=label).step(_one))

        return declared

    with pytest.raises(KeyReuseError, match="'once'"):
        await go(log, declare("once"), 1, tools=desk.all_tools)
    assert "WaitAbandoned" not in kinds(log)
    desk.linger_s = 0
    outcome = await go(log, declare("twice"), 1, tools=desk.all_tools)
    assert isinstance(outcome, evsrc.Completed)
    assert desk.effects("s") == 1


async def _one() -> int:
    return 1


# ---- files ---------------------------------------------------------------------------------------


def reader(path: Path, spoil: Callable[[], None], retry: evsrc.Retry) -> evsrc.Flow[int]:
    """A node that reads a file, and has it changed meanwhile."""
    declared = flow()

    @declared.node(reads=[path], version="1", retry=retry)
    async def node(start: int) -> str:
        heard("node")
        text = path.read_text()
        spoil()
        return text

    return declared


async def test_a_file_that_changes_while_its_node_runs_is_a_transient_failure(
    tmp_path: Path,
) -> None:
    """The output of half old, half new data is not recorded; the next attempt reads it anew."""
    feed = tmp_path / "feed"
    feed.write_text("old")
    log, retry = evsrc.MemoryLog(), evsrc.Retry(attempts=2, pause_s=0)
    outcome = await go(log, reader(feed, lambda: feed.write_text("new") and None, retry), 1)
    assert outcome.value == {"node": "new"}
    (failed,) = of_kind(log, NodeFailed)
    assert (failed.error.type, failed.error.transient) == ("ReadChanged", True)


async def test_a_file_that_never_rests_ends_the_attempts(tmp_path: Path) -> None:
    """Each change gives a new key; the budget of attempts holds all the same."""
    feed = tmp_path / "feed"
    feed.write_text("")
    retry = evsrc.Retry(attempts=3, pause_s=0)

    def grow() -> None:
        feed.write_text(feed.read_text() + "x")

    outcome = await go(evsrc.MemoryLog(), reader(feed, grow, retry), 1)
    assert isinstance(outcome, evsrc.Failed)
    assert (outcome.error.type, len(ran())) == ("ReadChanged", 3)


async def test_a_file_that_goes_away_while_its_node_runs_has_changed(tmp_path: Path) -> None:
    """It was there before; a file that is missing from the start is named and blocks the run."""
    feed = tmp_path / "feed"
    feed.write_text("old")
    log = evsrc.MemoryLog()
    with pytest.raises(DefinitionError, match="feed"):
        await go(log, reader(feed, feed.unlink, evsrc.Retry(attempts=2, pause_s=0)), 1)
    (failed,) = of_kind(log, NodeFailed)
    assert failed.error.type == "ReadChanged"
    assert "RunFailed" not in kinds(log)


# ---- observers -----------------------------------------------------------------------------------


async def test_observers_hear_each_moment_of_a_node_once() -> None:
    """Starts, outputs, failures, and what was reused."""
    log, seen = evsrc.MemoryLog(), Seen()
    retry = evsrc.Retry(attempts=2, pause_s=0)
    await go(log, retried(Flaky(ConnectionResetError()), retry), 1, observers=[seen])
    names = [name for name, _, _ in seen.moments]
    assert names == ["node_start", "node_failed", "node_start", "node_output"]
    again, left = Seen(), await cut(log, before="RunCompleted")
    await go(left, retried(Flaky(), retry), 1, observers=[again])
    assert again.moments == [("node_reused", "node", "")]


async def test_closing_the_runtime_in_the_middle_of_a_node_loses_nothing() -> None:
    """The node is not recorded as failed; the next runtime runs it."""
    log, declared, begun = SlowLog(), flow(), anyio.Event()
    long = [True]

    @declared.node(version="1")
    async def node(start: int) -> int:
        begun.set()
        await anyio.sleep(60 if long[0] else 0)
        return start

    async with evsrc.open_runtime(log, workflows=[declared]) as runtime:
        await runtime.start(declared, 1, run_id="r")
        await begun.wait()
    assert kinds(log) == ["RunStarted", "NodeStarted"]
    long[0] = False
    assert isinstance(await go(log, declared, 1), evsrc.Completed)
