"""Starting: a run id is one workflow and one input for ever, however often and by whomever it is started."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import evsrc
from evsrc.errors import CallerError, DefinitionError, InputMismatch, LimitExceeded
from tests.runtime.desk import Desk, kinds, until

pytestmark = pytest.mark.anyio


def counted(ran: list[str], desk: Desk | None = None) -> Any:
    """A workflow that notes each execution of its code."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        ran.append(subject)
        if desk is None:
            return subject
        return await run.call(desk.ticket, subject)

    return flow


async def test_eight_tasks_start_one_run() -> None:
    """Started by eight tasks at one moment, one run is made, and all of them get its outcome."""
    desk, ran, got = Desk(), list[str](), list[str]()
    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        flow = counted(ran, desk)

        async def start(number: int) -> None:
            if number % 2:
                got.append((await runtime.run(flow, "disk", run_id="r")).value)
            else:
                got.append((await (await runtime.start(flow, "disk", run_id="r")).wait()).value)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(start, number)
        assert got == ["disk-1"] * 8
        assert (await runtime.run(flow, "disk", run_id="r")).value == "disk-1"
    assert ran == ["disk"]
    assert kinds(log).count("RunStarted") == 1


async def test_without_an_id_the_input_is_the_id() -> None:
    """The same workflow and input make the same run; another input another one."""
    ran: list[str] = []
    async with evsrc.open_runtime(evsrc.MemoryLog()) as runtime:
        flow = counted(ran)
        ids = [(await runtime.run(flow, subject)).run_id for subject in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]
    assert ran == ["a", "b"]


async def test_another_input_or_workflow_is_a_mismatch() -> None:
    """Under a known id, another input or workflow is refused: before, while and after the run."""
    ran: list[str] = []
    log = evsrc.MemoryLog()
    flow = counted(ran)

    @evsrc.workflow(version="1")
    async def other(run: evsrc.Run, subject: str) -> str:
        return "other"

    mismatches: list[str] = []

    async with evsrc.open_runtime(log) as runtime:

        async def start(work: Any, subject: str) -> None:
            try:
                await runtime.run(work, subject, run_id="r")
            except InputMismatch as error:
                mismatches.append(str(error))

        async with anyio.create_task_group() as group:
            group.start_soon(start, flow, "disk")
            await checkpoint()
            group.start_soon(start, flow, "tape")
            group.start_soon(start, other, "disk")
    async with evsrc.open_runtime(log) as runtime:
        for work, subject in ((flow, "tape"), (other, "disk")):
            with pytest.raises(InputMismatch, match="another run id"):
                await runtime.run(work, subject, run_id="r")
        assert (await runtime.run(flow, "disk", run_id="r")).value == "disk"
    assert len(mismatches) == 2
    assert ran == ["disk"]
    assert kinds(log) == ["RunStarted", "RunCompleted"]


async def test_a_start_is_durable_before_the_handle() -> None:
    """`start` returns once the start is durable."""
    log = evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        await anyio.sleep_forever()
        return subject

    async with evsrc.open_runtime(log) as runtime:
        await runtime.start(flow, "disk", run_id="r")
        assert log.durable_position == log.last_position == 1


async def test_an_end_is_durable_before_the_caller_is_told() -> None:
    """A run's completion, with every read before it, is durable when `run` returns."""
    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log) as runtime:
        await runtime.run(counted([]), "disk", run_id="r")
        assert log.durable_position == log.last_position == 2


@pytest.mark.parametrize(
    ("run_id", "error"),
    [("x" * 201, LimitExceeded), ("evsrc/sweep", DefinitionError), ("\ud800", CallerError)],
)
async def test_ids_have_limits(run_id: str, error: type[Exception]) -> None:
    """An id that is too long, reserved or no text is refused, and leaves no run behind."""
    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log) as runtime:
        with pytest.raises(error):
            await runtime.run(counted([]), "disk", run_id=run_id)
        assert runtime.run_ids == []
    assert log.last_position == 0


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "a\nb", "a/b", "\x1b[31mred", "ю" * 100])
async def test_strange_ids_are_data(run_id: str, tmp_path: Path) -> None:
    """Ids come from alerts: they name no file and break nothing."""
    async with evsrc.open_runtime(tmp_path / "log") as runtime:
        assert (await runtime.run(counted([]), "disk", run_id=run_id)).value == "disk"
    async with evsrc.open_runtime(tmp_path / "log") as runtime:
        assert runtime.run_ids == [run_id]
    assert {p.name for p in tmp_path.iterdir()} == {"log"}


async def test_unfinished_runs_are_resumed_at_the_opening() -> None:
    """Opening with the code at hand finishes what was started, without anybody asking for it."""
    desk, ran, log = Desk(), list[str](), evsrc.MemoryLog()

    @evsrc.workflow(version="1", name="flow")
    async def never(run: evsrc.Run, subject: str) -> str:
        await anyio.sleep_forever()
        return subject

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.start(never, "disk", run_id="r")
    assert kinds(log) == ["RunStarted"]
    flow = counted(ran, desk)
    async with evsrc.open_runtime(log, tools=desk.all_tools, workflows=[flow]) as runtime:
        await until(lambda: runtime.state("r").ended)
        assert runtime.outcome("r").value == "disk-1"
    assert ran == ["disk"]


async def test_two_workflows_of_one_name_are_refused() -> None:
    """A name stands for one piece of code: two of one name are refused, at the opening and later."""
    ran: list[str] = []
    with pytest.raises(DefinitionError, match="two workflows"):
        async with evsrc.open_runtime(evsrc.MemoryLog(), workflows=[counted(ran), counted(ran)]):
            pass
    async with evsrc.open_runtime(evsrc.MemoryLog(), workflows=[counted(ran)]) as runtime:
        with pytest.raises(DefinitionError, match="other code"):
            await runtime.run(counted(ran), "disk")
    assert ran == []
