"""H23: one alert is delivered several times; one playbook runs, and all deliveries learn its end."""

from pathlib import Path

import anyio
import pytest

import evsrc
from evsrc.errors import InputMismatch
from tests.runtime.desk import Desk

pytestmark = pytest.mark.anyio


async def test_h23_eight_deliveries_one_run(tmp_path: Path) -> None:
    """Eight tasks at one moment, again after the end, and after a restart: one run, one ticket."""
    desk, ran = Desk(), list[str]()
    desk.linger_s = 0.02

    @evsrc.workflow(version="1")
    async def playbook(run: evsrc.Run, alert: dict[str, str]) -> str:
        ran.append(alert["id"])
        return await run.call(desk.ticket, alert["id"])

    got: list[str] = []
    async with evsrc.open_runtime(tmp_path / "log", tools=desk.all_tools) as runtime:

        async def deliver() -> None:
            outcome = await runtime.run(playbook, {"id": "7", "text": "x"}, run_id="alert-7")
            got.append(outcome.value)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(deliver)
        await deliver()
        with pytest.raises(InputMismatch):
            await runtime.run(playbook, {"id": "7", "text": "other"}, run_id="alert-7")
    async with evsrc.open_runtime(tmp_path / "log", tools=desk.all_tools) as runtime:
        await deliver()
    assert got == ["7-1"] * 10
    assert ran == ["7"]
    assert len(desk.sent) == 1


async def test_h23_another_input_while_the_run_goes_on(tmp_path: Path) -> None:
    """Another input under the id of a running playbook is refused at once; the run is not disturbed."""
    desk = Desk()
    desk.linger_s = 0.05

    @evsrc.workflow(version="1")
    async def playbook(run: evsrc.Run, alert: str) -> str:
        return await run.call(desk.ticket, alert)

    async with evsrc.open_runtime(tmp_path / "log", tools=desk.all_tools) as runtime:
        handle = await runtime.start(playbook, "a", run_id="alert")
        with pytest.raises(InputMismatch, match="another input"):
            await runtime.start(playbook, "b", run_id="alert")
        assert (await handle.wait()).value == "a-1"
    assert len(desk.sent) == 1
