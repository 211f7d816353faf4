"""Reads: run once, recorded with value or error, and never run again on replay."""

import threading
from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import StepRecorded
from evsrc.errors import AmbiguousCall, DivergenceError, RunNotCompleted, StepFailed
from tests.runtime.desk import Desk, cut, kinds, of_kind

pytestmark = pytest.mark.anyio


async def twice(flow: Any, desk: Desk | None = None) -> list[Any]:
    """The outcomes of a run, and of its replay from everything but its end."""
    log, outcomes = evsrc.MemoryLog(namespace="n"), list[Any]()
    tools = (desk or Desk()).all_tools
    async with evsrc.open_runtime(log, tools=tools) as runtime:
        outcomes.append(await runtime.run(flow, "disk", run_id="r"))
    again = await cut(log, before="RunCompleted")
    async with evsrc.open_runtime(again, tools=tools) as runtime:
        outcomes.append(await runtime.run(flow, "disk", run_id="r"))
    assert kinds(again) == kinds(log)
    return outcomes


async def test_a_step_runs_once() -> None:
    """Async and blocking steps run on the first run only; their values are those recorded."""
    ran: list[str] = []

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> list[str]:
        async def ask(name: str) -> str:
            ran.append(name)
            return f"{subject} {name}"

        def block(name: str) -> str:
            ran.append(name)
            assert threading.current_thread() is not threading.main_thread()
            return f"{subject} {name}"

        got = [await run.step(ask, "a"), await run.step(ask, "b"), await run.step(block, name="c")]
        return [*got, await run.options(label="x").step(ask, "d")]

    first, second = await twice(flow)
    assert first.value == second.value == [f"disk {name}" for name in "abcd"]
    assert ran == ["a", "b", "c", "d"]


async def test_a_value_is_the_decoded_one_on_the_first_run() -> None:
    """What the code gets is what the log gives back, so that nothing shared can change under it."""
    kept: list[list[int]] = []

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> list[int]:
        async def numbers() -> list[int]:
            kept.append([1, 2])
            return kept[-1]

        got = await run.step(numbers)
        kept[-1].append(3)
        return got

    first, second = await twice(flow)
    assert first.value == second.value == [1, 2]


async def test_an_error_is_recorded_and_raised_again() -> None:
    """A step's failure, time-outs included, is StepFailed with type and text on the first run and replay."""
    ran, seen = list[str](), list[tuple[str, str, bool]]()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        async def breaks(kind: str) -> str:
            ran.append(kind)
            if kind == "late":
                with anyio.fail_after(0.01):
                    await anyio.sleep_forever()
            raise {"value": ValueError, "io": ConnectionError}[kind]("broken")

        for kind in ("value", "io", "late"):
            try:
                await run.step(breaks, kind)
            except StepFailed as error:
                seen.append((error.type_name, error.message, error.transient))
        return len(seen)

    await twice(flow)
    assert seen[:3] == seen[3:]
    assert [(t, transient) for t, _, transient in seen[:3]] == [
        ("ValueError", False),
        ("ConnectionError", True),
        ("TimeoutError", True),
    ]
    assert ran == ["value", "io", "late"]


async def test_durable_steps_wait_for_the_sync() -> None:
    """`durable=True` returns with the value synced; an ordinary step does not wait."""
    log = evsrc.MemoryLog()
    behind: list[int] = []

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def ask() -> str:
            return subject

        for durable in (False, True):
            await run.options(durable=durable).step(ask)
            behind.append(log.last_position - log.durable_position)
        return "end"

    async with evsrc.open_runtime(log) as runtime:
        await runtime.run(flow, "disk")
    assert behind == [2, 0]


async def test_a_read_tool_is_a_read() -> None:
    """An Effect.READ tool leaves no intent, is not run again on replay, and fails as a step does."""
    desk = Desk("", "lose")

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        value = await run.call(desk.query, "a")
        try:
            return await run.call(desk.query, "b")
        except StepFailed as error:
            return f"{value} {error.type_name} {error.transient}"

    first, second = await twice(flow, desk)
    assert first.value == second.value == "a-1 ConnectionResetError True"
    assert len(desk.sent) == 2


async def test_a_read_tool_keeps_to_its_limit() -> None:
    """`at_once` bounds the sends of a tool that only reads, too."""
    now, most = 0, 0

    @evsrc.tool(effect=evsrc.Effect.READ, at_once=2)
    async def ask(call: evsrc.Call, number: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.sleep(0.005)
        now -= 1
        return number

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        async def one(number: int) -> int:
            return await run.call(ask, number)

        return sum(await run.map(one, range(8), key=str))

    async with evsrc.open_runtime(evsrc.MemoryLog(), tools=[ask]) as runtime:
        assert (await runtime.run(flow, "disk")).value == 28
    assert most == 2


async def test_other_arguments_are_divergence() -> None:
    """A step that is asked with other arguments than recorded blocks the run; nothing is recorded."""
    log, argument = evsrc.MemoryLog(), ["a"]

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def ask(name: str) -> str:
            return name

        return await run.step(ask, argument[0])

    async with evsrc.open_runtime(log) as runtime:
        await runtime.run(flow, "disk", run_id="r")
    again = await cut(log, before="RunCompleted")
    argument[0] = "b"
    async with evsrc.open_runtime(again) as runtime:
        with pytest.raises(DivergenceError, match="other arguments"):
            await runtime.run(flow, "disk", run_id="r")
        assert list(runtime.blocked) == ["r"]
    assert kinds(again) == ["RunStarted", "StepRecorded"]


async def test_a_new_optional_argument_is_no_divergence() -> None:
    """A parameter that the step gained since, left at its default, does not change its identity."""
    log = evsrc.MemoryLog()

    async def old(name: str) -> str:
        return name

    async def new(name: str, depth: int = 1) -> str:
        return name

    new.__name__ = old.__name__
    steps: list[Any] = [old]

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        value: str = await run.step(steps[0], "a")
        return value

    async with evsrc.open_runtime(log) as runtime:
        await runtime.run(flow, "disk", run_id="r")
    again, steps[0] = await cut(log, before="RunCompleted"), new
    async with evsrc.open_runtime(again) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "a"
    assert kinds(again).count("StepRecorded") == 1


async def test_steps_at_once_need_labels() -> None:
    """Two unlabelled steps of one name at once are refused; unlike ones, or labelled ones, are not."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, labels: bool) -> int:
        async def one() -> None:
            await anyio.sleep(0.01)

        async def two() -> None:
            await anyio.sleep(0.01)

        async with anyio.create_task_group() as group:
            group.start_soon(run.options(label="a" if labels else "").step, one)
            group.start_soon(run.options(label="b" if labels else "").step, one)
            group.start_soon(run.step, two)
        return 3

    async with evsrc.open_runtime(evsrc.MemoryLog()) as runtime:
        assert (await runtime.run(flow, True)).value == 3
        with pytest.raises(AmbiguousCall):
            await runtime.run(flow, False)


async def test_a_value_that_would_not_survive_is_refused() -> None:
    """A value that loses its type in the log is refused before it is recorded, with the path."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> Any:
        async def odd() -> Any:
            return {"found": (1, 2)}

        return await run.step(odd)

    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log) as runtime:
        outcome = await runtime.run(flow, "disk", run_id="r")
    assert isinstance(outcome, evsrc.Failed)
    assert outcome.error.type == "UnusableValue"
    assert "found" in outcome.error.message
    assert of_kind(log, StepRecorded) == []


async def test_a_step_without_a_return_annotation_is_refused() -> None:
    """Without a return annotation nobody knows how to decode the value: the run fails, nothing is asked."""
    ran: list[str] = []

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> Any:
        async def ask():  # type: ignore[no-untyped-def]
            ran.append("x")

        return await run.step(ask)

    async with evsrc.open_runtime(evsrc.MemoryLog()) as runtime:
        outcome = await runtime.run(flow, "disk", run_id="r")
        with pytest.raises(RunNotCompleted, match="return annotation"):
            outcome.value  # noqa: B018
    assert ran == []
