"""Limits: one act on a target at a time, a tool's own bound, and names that alerts cannot blow up."""

from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import IntentRecorded
from evsrc.errors import LimitExceeded
from evsrc.runtime.unit import LABEL_BYTES_MAX, SCOPE_DEPTH_MAX
from tests.runtime.desk import Desk, events, kinds, of_kind, until

pytestmark = pytest.mark.anyio


def block_flow(desk: Desk) -> Any:
    """One act on a target; the input says why."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, why: str) -> str:
        return await run.call(desk.block, "srv", why)

    return flow


async def test_acts_on_one_target_follow_each_other() -> None:
    """Two runs that act on one target are never in flight together; other targets do not wait."""
    desk, log = Desk(), evsrc.MemoryLog()
    flow = block_flow(desk)
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(lambda n=number: runtime.run(flow, f"why {n}", run_id=f"r{n}"))
    assert desk.effects("srv") == 5
    order = [
        (type(e).__name__, r.stream)
        for r in log.records()
        for e in events_of(r)
        if type(e).__name__ in ("IntentRecorded", "ResultRecorded")
    ]
    for intent, result in zip(order[::2], order[1::2], strict=True):
        assert intent == ("IntentRecorded", result[1])


def events_of(record: evsrc.Record) -> Any:
    """The events of one record."""
    from evsrc.core.codec import decode_events

    return decode_events(record.body)


async def test_an_unsettled_act_holds_its_target() -> None:
    """While an act on a target is unknown no other intent on it is recorded; the answer sets it free."""
    desk, log = Desk("lose"), evsrc.MemoryLog(namespace="n")
    unseen: list[Any] = []

    @evsrc.tool(effect=evsrc.Effect.STATE, target=lambda host: f"host:{host}")
    async def isolate(call: evsrc.Call, host: str, why: str) -> str:
        unseen.append(why)
        if why == "first":
            raise ConnectionResetError
        return why

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, why: str) -> str:
        return await run.call(isolate, "srv", why)

    async with evsrc.open_runtime(log, tools=[isolate]) as runtime:
        first = await runtime.run(flow, "first", run_id="first")
        assert isinstance(first, evsrc.Suspended)
    # The next owner keeps the target reserved, with or without the tool at hand.
    async with evsrc.open_runtime(log, tools=[isolate]) as runtime:
        second = await runtime.start(flow, "second", run_id="second")
        await anyio.sleep(0.03)
        assert kinds(log, "second") == ["RunStarted"]
        await runtime.answers.answer(
            "first", first.questions[0].subject, "happened", by="ann", value="done"
        )
        with anyio.fail_after(2):
            assert (await second.wait()).value == "second"
    assert unseen == ["first", "second"]
    assert desk.sent == []


async def test_a_call_that_gave_up_does_not_hold_a_target_for_ever() -> None:
    """A caller that leaves while it waits for a target leaves no intent and blocks nobody."""
    desk, log = Desk(), evsrc.MemoryLog()
    desk.linger_s = 0.1

    flow = block_flow(desk)

    @evsrc.workflow(version="1")
    async def impatient(run: evsrc.Run, why: str) -> str:
        with anyio.move_on_after(0.03):
            return await run.call(desk.block, "srv", why)
        return "gave up"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        slow = await runtime.start(flow, "slow", run_id="slow")
        assert (await runtime.run(impatient, "quick", run_id="quick")).value == "gave up"
        assert (await slow.wait()).value == "srv-1"
        assert (await runtime.run(flow, "again", run_id="again")).value == "srv-2"
    assert "IntentRecorded" not in kinds(log, "quick")


async def test_a_given_up_act_that_might_be_repeated_frees_its_target_or_asks() -> None:
    """A fenced act whose caller left, unknown and absent, ends settled or as a question, never stuck."""
    log = evsrc.MemoryLog()

    @evsrc.tool(
        effect=evsrc.Effect.STATE,
        target=lambda host: host,
        fence=True,
        resend_safe=True,
        lag_s=0,
        late_s=0,
        history=True,
    )
    async def isolate(call: evsrc.Call, host: str, why: str) -> str:
        if why == "first":
            await anyio.sleep_forever()
        return why

    @isolate.probe
    async def look(call: evsrc.Call, host: str, why: str) -> evsrc.Verdict[str]:
        return evsrc.Absent(complete=True)

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, why: str) -> str:
        with anyio.move_on_after(0.03 if why == "first" else 5):
            return await run.call(isolate, "srv", why)
        return "gave up"

    async with evsrc.open_runtime(log, tools=[isolate]) as runtime:
        assert (await runtime.run(flow, "first", run_id="first")).value == "gave up"
        second = await runtime.start(flow, "second", run_id="second")
        await until(lambda: runtime.state("second").ended or bool(runtime.questions()), within_s=2)
        if runtime.state("second").ended:
            assert (await second.wait()).value == "second"


async def test_a_tool_s_own_bound_holds_over_all_runs() -> None:
    """`at_once` sends of a tool run at one time, over all runs of the process."""
    desk = Desk()
    desk.linger_s = 0.005

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, number: int) -> int:
        async def one(name: str) -> str:
            return await run.call(desk.note, name)

        return len(await run.map(one, [f"{number}{n}" for n in range(4)], key=str))

    async with evsrc.open_runtime(evsrc.MemoryLog(), tools=desk.all_tools) as runtime:
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(runtime.run, flow, number)
    assert len(desk.rows) == 12
    assert desk.at_once_max == 2


@pytest.mark.parametrize("what", ["label", "key", "item", "depth"])
async def test_names_have_limits(what: str) -> None:
    """Labels, keys and item keys of over 200 bytes, and scopes too deep, are refused before any send."""
    desk, log = Desk(), evsrc.MemoryLog()
    long = "ю" * (LABEL_BYTES_MAX // 2 + 1)

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def deeper(level: int) -> str:
            if level > SCOPE_DEPTH_MAX:
                return await run.call(desk.ticket, subject)
            return (await run.map(deeper, [level + 1], key=str))[0]

        async def one(name: str) -> str:
            return await run.call(desk.ticket, name)

        with pytest.raises(LimitExceeded):
            match what:
                case "label":
                    await run.options(label=long).call(desk.ticket, subject)
                case "key":
                    await run.options(key=long).call(desk.ticket, subject)
                case "item":
                    await run.map(one, [long], key=str)
                case _:
                    await deeper(0)
        return "refused"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "refused"
    assert desk.sent == []


async def test_a_large_argument_is_refused_before_the_intent() -> None:
    """Arguments over the limit are refused by name of the tool; the log holds nothing of them."""
    desk, log = Desk(), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        with pytest.raises(LimitExceeded, match="ticket"):
            await run.call(desk.ticket, "x" * 300_000)
        return "refused"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "refused"
    assert of_kind(log, IntentRecorded) == []
    assert log.statistics().bytes_written < 2000
    assert events(log)
