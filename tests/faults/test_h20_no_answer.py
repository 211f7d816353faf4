"""H20: the process died between the request and its result; the call gets one outcome, once."""

from pathlib import Path

import pytest

from tests.faults.conftest import Play, events


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_h20_what_cannot_be_settled_is_unknown(play: Play, tmp_path: Path, backend: str) -> None:
    """Nobody can look: the outcome is an open question, not a failure; a second resume adds nothing."""
    assert play("blind", stop="tell", backend=backend).killed
    killed = [type(e).__name__ for e in events(tmp_path)]
    assert killed == ["RunStarted", "IntentRecorded"]

    for _ in range(2):
        end = play("blind", backend=backend)
        assert end.result[0] == "suspended: 1 open question(s)"
        names = [type(e).__name__ for e in events(tmp_path)]
        assert names == [*killed, "OutcomeUnknown", "QuestionAsked"]
    assert len((tmp_path / "rows").read_text().splitlines()) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_h20_the_repair_is_an_event(play: Play, tmp_path: Path, backend: str) -> None:
    """Settled by the look, the outcome is recorded; resumed again, the log does not change."""
    assert play("ticket", stop="create", backend=backend).killed
    logs: list[list[object]] = []
    for _ in range(2):
        assert play("ticket", backend=backend).result[1] == "create-1"
        logs.append(list(events(tmp_path)))
    assert logs[0] == logs[1]
    assert [type(e).__name__ for e in logs[0]] == [
        "RunStarted",
        "IntentRecorded",
        "OutcomeUnknown",
        "IntentReconciled",
        "RunCompleted",
    ]
