"""How often a run waits for the disk, counted at the seam with no timer running."""

import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import evsrc
from tests.log.support import CountingFs
from tests.runtime.desk import Desk, kinds

pytestmark = pytest.mark.anyio


async def counted(folder: Path, body: Any, desk: Desk) -> dict[str, int]:
    """Run `body`; how many syncs came after the opening, by when: while it ran, and until its end."""
    fs = CountingFs()
    marks: dict[str, int] = {}

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        fs.calls.clear()
        await body(run)
        marks["body"] = fs.syncs
        return "end"

    async with evsrc.open_runtime(folder, tools=desk.all_tools, fs=fs, lazy_sync_s=None) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "end"
        marks["end"] = fs.syncs
        assert kinds(runtime._services.log)[-1] == "RunCompleted"
    return marks


@pytest.mark.parametrize("effects", [1, 5])
async def test_an_effect_costs_two_syncs(effects: int, tmp_path: Path) -> None:
    """One for the intent, one for the result, and one for the end of the run."""
    desk = Desk()

    async def body(run: evsrc.Run) -> None:
        for number in range(effects):
            await run.call(desk.ticket, str(number))

    marks = await counted(tmp_path / "log", body, desk)
    assert marks == {"body": 2 * effects, "end": 2 * effects + 1}


async def test_reads_cost_none_of_their_own(tmp_path: Path) -> None:
    """Twenty reads, in steps and in a tool, wait for no sync; the next effect takes them along."""
    desk = Desk()
    after_reads: list[int] = []

    async def body(run: evsrc.Run) -> None:
        async def look(number: int) -> int:
            return number

        for number in range(10):
            await run.step(look, number)
            await run.call(desk.query, str(number))
        after_reads.append(number)
        await run.call(desk.ticket, "one")

    marks = await counted(tmp_path / "log", body, desk)
    assert marks == {"body": 2, "end": 3}
    assert after_reads


async def test_a_lost_answer_costs_one_more(tmp_path: Path) -> None:
    """Intent, unknown, verdict: three syncs for an effect whose answer was lost."""
    desk = Desk("lose")

    async def body(run: evsrc.Run) -> None:
        await run.call(desk.ticket, "one")

    assert (await counted(tmp_path / "log", body, desk))["body"] == 3


async def test_effects_at_once_share_their_syncs(tmp_path: Path) -> None:
    """Forty effects at once need far fewer than eighty syncs."""
    desk = Desk()

    async def body(run: evsrc.Run) -> None:
        async def one(number: int) -> str:
            return await run.call(desk.ticket, str(number))

        await run.map(one, range(40), key=str, at_once=40)

    marks = await counted(tmp_path / "log", body, desk)
    assert marks["body"] <= 30


async def test_durable_steps_of_many_runs_share_their_syncs(tmp_path: Path) -> None:
    """2,000 durable steps in 200 runs at once need at most 100 syncs, on a disk that syncs in 3 ms."""
    fs = CountingFs()
    # Without a timer a batch is as large as the sync before it is long: one that takes microseconds, in
    # a container's memory, would measure the scheduler of a loaded machine.
    fs.before = lambda call: time.sleep(0.003) if call == "fdatasync" else None

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, number: int) -> int:
        async def look(step: int) -> int:
            return step

        durable = run.options(durable=True)
        for step in range(10):
            await durable.step(look, step)
        return number

    async with evsrc.open_runtime(tmp_path / "log", fs=fs, lazy_sync_s=None) as runtime:
        fs.calls.clear()
        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(runtime.run, flow, number)
        syncs = fs.syncs
        assert len(runtime.run_ids) == 200
    assert syncs <= 100
