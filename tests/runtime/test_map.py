"""Maps: each item is a scope of its own, named by its key, wherever its code runs."""

from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest

import evsrc
from evsrc.core.events import IntentRecorded
from evsrc.errors import AmbiguousCall, KeyReuseError, LimitExceeded, Rejected
from tests.runtime.desk import Desk, cut, kinds, of_kind

pytestmark = pytest.mark.anyio


async def run(log: evsrc.Log, flow: Any, desk: Desk) -> Any:
    """Open, run as "r", close."""
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        return await runtime.run(flow, "disk", run_id="r")


async def test_results_come_in_the_order_of_the_items() -> None:
    """Whichever item is done first, the results stand in the items' order, on replay too."""
    desk, log = Desk(), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> list[str]:
        async def one(number: int) -> str:
            await anyio.sleep(0.01 * (3 - number))
            return await run.call(desk.ticket, f"item {number}")

        return await run.map(one, range(4), key=str)

    value = (await run(log, flow, desk)).value
    assert [v.split("-")[0] for v in value] == [f"item {n}" for n in range(4)]
    assert [s for _, s in desk.rows] != sorted(s for _, s in desk.rows)
    again = await cut(log, before="RunCompleted")
    assert (await run(again, flow, desk)).value == value
    assert len(desk.sent) == 4


async def test_the_scope_follows_the_task() -> None:
    """A closure over `run`, a partial, and a child task of an item call in that item's scope."""
    desk, log = Desk(), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        def closed() -> Any:
            return partial(run.call, desk.ticket)

        call = closed()

        async def one(name: str) -> None:
            await call(name)
            async with anyio.create_task_group() as group:
                group.start_soon(run.call, desk.note, name)

        await run.map(one, ["a", "b"], key=str)
        await run.call(desk.ticket, "outside")
        return len(desk.rows)

    await run(log, flow, desk)
    scopes = {(i.scope[-1] if i.scope else "", i.tool) for i in of_kind(log, IntentRecorded)}
    assert scopes == {
        *((f"item:{n}", tool) for n in "ab" for tool in ("ticket", "note")),
        ("", "ticket"),
    }
    assert {i.ordinal for i in of_kind(log, IntentRecorded)} == {1}


async def test_the_scope_follows_into_threads() -> None:
    """Code in a worker thread that comes back to the loop calls in the scope that it left from."""
    desk, log = Desk(), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        async def one(name: str) -> None:
            def work() -> str:
                return anyio.from_thread.run(run.call, desk.ticket, name)

            await anyio.to_thread.run_sync(work)

        await run.map(one, ["a", "b"], key=str)
        return len(desk.rows)

    assert (await run(log, flow, desk)).value == 2
    assert {i.scope[-1] for i in of_kind(log, IntentRecorded)} == {"item:a", "item:b"}


async def test_a_new_item_does_not_shift_the_others() -> None:
    """An item added in front finds the others' recorded calls under their keys."""
    desk, log, items = Desk(), evsrc.MemoryLog(), ["b", "c"]

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        async def one(name: str) -> None:
            await run.call(desk.ticket, name)

        await run.map(one, items, key=str)
        return len(items)

    await run(log, flow, desk)
    again = await cut(log, before="RunCompleted")
    items.insert(0, "a")
    assert (await run(again, flow, desk)).value == 3
    assert sorted(s for _, s in desk.rows) == ["a", "b", "c"]


async def test_duplicate_keys_are_refused() -> None:
    """Two items of one key are refused before any of them starts."""
    desk, log = Desk(), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        async def one(name: str) -> None:
            await run.call(desk.ticket, name)

        with pytest.raises(LimitExceeded):
            await run.map(one, ["x" * 201], key=str)
        with pytest.raises(KeyReuseError, match="'a'"):
            await run.map(one, ["a", "A"], key=str.lower)
        return 0

    await run(log, flow, desk)
    assert desk.sent == []


async def test_two_maps_at_once_need_labels() -> None:
    """Unlabelled maps of one scope are numbered in order, so two at once are refused; labels name them."""
    desk = Desk()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, labels: list[str]) -> int:
        async def one(name: str) -> None:
            await anyio.sleep(0.01)
            await run.call(desk.ticket, name)

        async def all_of(label: str) -> None:
            await run.options(label=label).map(one, [f"a{label}", f"b{label}"], key=str)

        async with anyio.create_task_group() as group:
            for label in labels:
                group.start_soon(all_of, label)
        return len(desk.rows)

    async with evsrc.open_runtime(evsrc.MemoryLog(), tools=desk.all_tools) as runtime:
        assert (await runtime.run(flow, ["x", "y", ""])).value == 6
        with pytest.raises(AmbiguousCall):
            await runtime.run(flow, ["", ""])
        with pytest.raises(KeyReuseError):
            await runtime.run(flow, ["x", "x"])


async def test_maps_one_after_another_are_told_apart() -> None:
    """Maps that follow each other with the same items are different scopes, a label "#1" too."""
    desk, log = Desk(), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        async def one(name: str) -> None:
            await run.call(desk.ticket, name)

        await run.map(one, ["a"], key=str)
        await run.map(one, ["a"], key=str)
        await run.options(label="#1").map(one, ["a"], key=str)
        return len(desk.rows)

    assert (await run(log, flow, desk)).value == 3
    assert len({i.scope for i in of_kind(log, IntentRecorded)}) == 3


async def test_a_failing_item_does_not_stop_the_others() -> None:
    """All items end and are recorded; then the first failure in item order is raised."""
    desk, log = Desk("reject"), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def one(name: str) -> str:
            return await run.call(desk.ticket, name)

        try:
            await run.map(one, ["a", "b", "c"], key=str, at_once=1)
        except Rejected as error:
            return str(error)
        return "no error"

    assert (await run(log, flow, desk)).value == "no such queue"
    assert len(desk.rows) == 2


async def test_at_once_bounds_the_items() -> None:
    """No more than `at_once` items run at a time."""
    now, most = 0, 0

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        async def one(number: int) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await anyio.sleep(0.003)
            now -= 1

        await run.map(one, range(10), key=str, at_once=3)
        return most

    assert (await run(evsrc.MemoryLog(), flow, Desk())).value == 3


async def test_an_item_that_waits_for_a_person_holds_up_no_other() -> None:
    """A parked item gives its slot back: the others are done before the run is suspended."""
    desk, log = Desk("lose"), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        async def one(name: str) -> str:
            return await run.call(desk.page, name)

        return len(await run.map(one, ["a", "b", "c"], key=str, at_once=1))

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        outcome = await runtime.run(flow, "disk", run_id="r")
        assert isinstance(outcome, evsrc.Suspended)
        assert kinds(log).count("ResultRecorded") == 2
        await runtime.answers.answer(
            "r", outcome.questions[0].subject, "happened", by="a", value=""
        )
        assert (await runtime.run(flow, "disk", run_id="r")).value == 3
    assert len(desk.sent) == 3
