"""H13: three unlike calls at once keep their identities, whatever order the scheduler starts them in."""

import random
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import evsrc
from evsrc.core.events import IntentRecorded
from evsrc.errors import AmbiguousCall
from tests.runtime.desk import Desk, cut, kinds, of_kind

pytestmark = pytest.mark.anyio

RESUMES = 100
"""Per event loop."""


def flow_of(desk: Desk, rng: random.Random) -> Any:
    """Three calls at once, each after a random delay; who answered what."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> dict[str, str]:
        got: dict[str, str] = {}

        async def one(name: str, *arguments: str) -> None:
            for _ in range(rng.randrange(4)):
                await checkpoint()
            tools: dict[str, Any] = {"t": desk.ticket, "n": desk.note, "b": desk.block}
            got[name] = await run.call(tools[name], *arguments)

        calls = [("t", "disk"), ("n", "disk"), ("b", "srv", "seen")]
        rng.shuffle(calls)
        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(one, *call)
        return got

    return flow


async def test_h13_each_result_goes_back_to_its_own_call() -> None:
    """Cut after any subset of results and resumed with other delays, each act is done once."""
    rng = random.Random(13)
    for number in range(RESUMES // 10):
        whole, world = evsrc.MemoryLog(namespace="n"), Desk()
        async with evsrc.open_runtime(whole, tools=world.all_tools) as runtime:
            await runtime.run(flow_of(world, rng), "disk", run_id="r")
        for _ in range(10):
            log = await cut(whole, rng.randrange(1, whole.last_position + 1))
            there = {i.marker for i in of_kind(log, IntentRecorded)}
            desk = Desk(rows=[row for row in world.rows if row[0] in there])
            async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
                got = (await runtime.run(flow_of(desk, rng), "disk", run_id="r")).value
            assert sorted(s for _, s in desk.rows) == ["disk", "disk", "srv"], number
            assert {k: v.split("-")[0] for k, v in got.items()} == {
                "t": "disk",
                "n": "disk",
                "b": "srv",
            }
            markers = {i.tool: i.marker for i in of_kind(log, IntentRecorded)}
            for name, tool in (("t", "ticket"), ("n", "note"), ("b", "block")):
                at = [m for m, _ in world.rows].index(markers[tool]) + 1
                now = [m for m, _ in desk.rows].index(markers[tool]) + 1
                assert got[name].split("-")[1] in (str(at), str(now))
            assert "RunFailed" not in kinds(log)


async def test_h13_calls_that_cannot_be_told_apart_are_refused() -> None:
    """The same tool twice at once without labels is refused, in whichever order the tasks start."""
    for seed in range(5):
        rng, desk = random.Random(seed), Desk()
        desk.linger_s = 0.01

        @evsrc.workflow(version="1")
        async def flow(run: evsrc.Run, subject: str) -> str:
            async def one(name: str) -> None:
                await anyio.sleep(rng.random() * 0.005)  # noqa: B023
                await run.call(desk.note, name)  # noqa: B023

            async with anyio.create_task_group() as group:
                group.start_soon(one, "a")
                group.start_soon(one, "b")
            return "end"

        async with evsrc.open_runtime(evsrc.MemoryLog(), tools=desk.all_tools) as runtime:
            with pytest.raises(AmbiguousCall):
                await runtime.run(flow, "disk", run_id="r")
