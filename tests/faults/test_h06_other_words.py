"""H06: the model words its reason differently the second time; the recorded decision stands."""

from pathlib import Path

import pytest

import evsrc
from evsrc.errors import DivergenceError
from tests.faults.conftest import Play
from tests.runtime.desk import Desk, cut, kinds


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_h06_the_model_is_not_asked_again(play: Play, tmp_path: Path, backend: str) -> None:
    """Killed between the effect and its result, the run replays the decision: one isolation, one question."""
    assert play("agent", stop="isolate", backend=backend).killed

    end = play("agent", backend=backend)

    assert end.result[:2] == ["completed", "isolate-1"]
    assert (tmp_path / "asked").read_text() == "asked\n"
    (row,) = (tmp_path / "rows").read_text().splitlines()
    assert row.endswith("srv-7: wording 1")


@pytest.mark.anyio
async def test_h06_a_forced_new_decision_is_a_mismatch() -> None:
    """Code that decides anew outside any step, for the same call, is told which argument differs."""
    desk, wordings = Desk(), iter(["wording 1", "wording 2"])

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, alert: str) -> str:
        return await run.call(desk.block, "srv-7", why=next(wordings))

    log = evsrc.MemoryLog(namespace="n")
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.run(flow, "alert", run_id="r")
    again = await cut(log, before="ResultRecorded")
    async with evsrc.open_runtime(again, tools=desk.all_tools) as runtime:
        with pytest.raises(DivergenceError, match=r"\bwhy\b"):
            await runtime.run(flow, "alert", run_id="r")
    assert desk.effects("srv-7") == 1
    assert {"RunCompleted", "RunFailed"}.isdisjoint(kinds(again))
