"""Replay: recorded outcomes in recorded order, nothing new before all of them, and code that does not fit."""

import random
from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import IntentRecorded, ResultRecorded
from evsrc.errors import DivergenceError, NotSent
from tests.runtime.desk import Desk, cut, kinds, of_kind, until

pytestmark = pytest.mark.anyio

Body = Any


def flow_of(body: Body) -> Any:
    """The workflow "flow" with that body: new code under an old name."""

    async def flow(run: evsrc.Run, subject: str) -> str:
        value: str = await body(run, subject)
        return value

    return evsrc.workflow(version="1")(flow)


async def run(log: evsrc.Log, body: Body, desk: Desk) -> Any:
    """Open, run as "r", close; replay gives up after 0.1 s."""
    async with evsrc.open_runtime(log, tools=desk.all_tools, replay_stall_s=0.1) as runtime:
        return await runtime.run(flow_of(body), "disk", run_id="r")


async def two_calls(desk: Desk) -> evsrc.MemoryLog:
    """A log that stops after two done calls."""

    async def body(run: evsrc.Run, subject: str) -> str:
        await run.call(desk.ticket, subject)
        return await run.call(desk.note, subject)

    log = evsrc.MemoryLog(namespace="n")
    await run(log, body, desk)
    return await cut(log, before="RunCompleted")


async def other_arguments(run: evsrc.Run, desk: Desk) -> str:
    await run.call(desk.ticket, "other")
    return await run.call(desk.note, "disk")


async def without_the_second(run: evsrc.Run, desk: Desk) -> str:
    return await run.call(desk.ticket, "disk")


async def fails_first(run: evsrc.Run, desk: Desk) -> str:
    raise ValueError("a bug of the new code")


async def a_call_before(run: evsrc.Run, desk: Desk) -> str:
    await run.call(desk.page, "new")
    return await without_the_second(run, desk)


async def a_step_before(run: evsrc.Run, desk: Desk) -> str:
    async def look() -> str:
        desk.sent.append(("a step ran", 0))
        return "x"

    return await run.step(look)


async def another_label(run: evsrc.Run, desk: Desk) -> str:
    await run.options(label="x").call(desk.ticket, "disk")
    return "never"


STRANGE = [
    other_arguments,
    without_the_second,
    fails_first,
    a_call_before,
    a_step_before,
    another_label,
]


@pytest.mark.parametrize("strange", STRANGE)
async def test_code_that_does_not_fit_blocks_the_run(strange: Any) -> None:
    """It sends and records nothing, the run gets no end, and code that fits goes on with it."""
    desk = Desk()
    log = await two_calls(desk)
    before = (list(desk.sent), kinds(log))

    async def body(run: evsrc.Run, subject: str) -> str:
        value: str = await strange(run, desk)
        return value

    with pytest.raises(DivergenceError) as caught:
        await run(log, body, desk)
    assert "Deploy the code that recorded it" in str(caught.value) or "label" in str(caught.value)
    assert (desk.sent, kinds(log)) == before

    async def fits(run: evsrc.Run, subject: str) -> str:
        await run.call(desk.ticket, subject)
        return await run.call(desk.note, subject)

    assert (await run(log, fits, desk)).value == "disk-2"
    assert desk.sent == before[0]


async def test_divergence_cannot_be_swallowed() -> None:
    """Code that catches the refusal and returns is blocked all the same; nothing it asks later is sent."""
    desk = Desk()
    log = await two_calls(desk)

    async def body(run: evsrc.Run, subject: str) -> str:
        try:
            return await run.call(desk.ticket, "other")
        except Exception:  # noqa: BLE001 - the careless code of the case
            return "looks fine"

    with pytest.raises(DivergenceError, match="subject"):
        await run(log, body, desk)
    assert kinds(log)[-1] == "ResultRecorded"


async def test_a_blocked_run_is_listed() -> None:
    """`runtime.blocked` says which runs do not go on, and why, also when nobody waits for them."""
    desk = Desk()
    log = await two_calls(desk)

    async def body(run: evsrc.Run, subject: str) -> str:
        return await run.call(desk.ticket, "other")

    async with evsrc.open_runtime(log, tools=desk.all_tools, workflows=[flow_of(body)]) as runtime:
        await until(lambda: bool(runtime.blocked))
        assert isinstance(runtime.blocked["r"], DivergenceError)


async def test_an_act_without_effect_may_take_new_arguments() -> None:
    """A call all of whose attempts closed without effect pins nothing: new code may ask differently."""
    desk, log = Desk("not-sent"), evsrc.MemoryLog(namespace="n")

    async def old(run: evsrc.Run, subject: str) -> str:
        return await run.call(desk.ticket, "wrong")

    await run(log, old, desk)
    again = await cut(log, 3)
    assert kinds(again)[-1] == "CallNotSent"
    desk.rows.clear()

    async def new(run: evsrc.Run, subject: str) -> str:
        return await run.call(desk.ticket, "right")

    assert (await run(again, new, desk)).value == "right-1"
    intents = of_kind(again, IntentRecorded)
    assert [i.attempt for i in intents] == [1, 2]
    assert intents[0].key != intents[1].key


async def test_a_call_beyond_the_recorded_end_is_new() -> None:
    """New code that asks for what was recorded and then for more goes on with the run."""
    desk = Desk()
    log = await two_calls(desk)

    async def body(run: evsrc.Run, subject: str) -> str:
        await run.call(desk.ticket, subject)
        await run.call(desk.note, subject)
        return await run.call(desk.page, "more")

    assert (await run(log, body, desk)).value == "more-3"


@pytest.mark.parametrize("seed", range(12))
async def test_a_race_has_the_same_winner_for_ever(seed: int) -> None:
    """Who answered first is in the log: replay hands outcomes out in that order, whatever the delays."""
    rng = random.Random(seed)
    desk = Desk()

    async def body(run: evsrc.Run, subject: str) -> str:
        order: list[str] = []

        async def look(name: str) -> str:
            await anyio.sleep(rng.choice((0, 0.001)))
            return name

        async def one(tool: Any, name: str) -> None:
            await anyio.sleep(rng.choice((0, 0.001)))
            if name == "p":
                order.append(await run.step(look, "s"))
            await run.call(tool, name)
            order.append(name)

        async with anyio.create_task_group() as group:
            for tool, name in ((desk.ticket, "t"), (desk.note, "n"), (desk.page, "p")):
                group.start_soon(one, tool, name)
        return "".join(order)

    log = evsrc.MemoryLog(namespace="n")
    first = (await run(log, body, desk)).value
    for _ in range(3):
        assert (await run(await cut(log, before="RunCompleted"), body, desk)).value == first
    assert len(desk.sent) == 3


async def test_nothing_new_before_everything_recorded() -> None:
    """A new call in another task waits until every recorded one was asked for, however late that is."""
    desk = Desk()
    log = await two_calls(desk)
    seen: list[str] = []

    async def body(run: evsrc.Run, subject: str) -> str:
        async def new() -> None:
            await run.call(desk.page, "new")
            seen.append("new")

        async def old() -> None:
            for tool in (desk.ticket, desk.note):
                await anyio.sleep(0.02)
                await run.call(tool, subject)
                seen.append("old")

        async with anyio.create_task_group() as group:
            group.start_soon(new)
            group.start_soon(old)
        return "".join(seen)

    assert (await run(log, body, desk)).value == "oldoldnew"
    assert [s for _, s in desk.rows] == ["disk", "disk", "new"]


async def test_a_budget_that_is_used_up_stays_used_up() -> None:
    """Attempts are counted at the intent: a call that keeps being cut there ends in NotSent, not for ever."""
    desk, seen = Desk(*["not-sent"] * 9), list[str]()

    async def body(run: evsrc.Run, subject: str) -> str:
        try:
            return await run.call(desk.ticket, subject)
        except NotSent as error:
            seen.append(str(error))
            return "not sent"

    log: evsrc.MemoryLog = evsrc.MemoryLog(namespace="n")
    await run(log, body, desk)
    for count in range(2, log.last_position):
        again = await cut(log, count)
        assert (await run(again, body, desk)).value == "not sent"
        assert len(of_kind(again, IntentRecorded)) == 3
        desk.faults = ["not-sent"] * 9


async def test_outcomes_that_land_together_are_seen_in_log_order() -> None:
    """Six effects that are answered in one instant reach their callers in the order of the log."""
    desk, together = Desk(), anyio.Event()

    @evsrc.tool(effect=evsrc.Effect.KEYED, window_s=3600, late_s=0)
    async def act(call: evsrc.Call, name: str) -> str:
        await together.wait()
        return name

    async def body(run: evsrc.Run, subject: str) -> str:
        order: list[str] = []

        async def one(name: str) -> None:
            order.append(await run.options(label=name).call(act, name))

        async with anyio.create_task_group() as group:
            for name in "abcdef":
                group.start_soon(one, name)
            await anyio.sleep(0.02)
            together.set()
        return "".join(order)

    log = evsrc.MemoryLog(namespace="n")
    async with evsrc.open_runtime(log, tools=[act]) as runtime:
        seen = (await runtime.run(flow_of(body), "disk", run_id="r")).value
    labels = {i.call: i.label for i in of_kind(log, IntentRecorded)}
    assert seen == "".join(labels[r.call] for r in of_kind(log, ResultRecorded))
    assert desk.sent == []
