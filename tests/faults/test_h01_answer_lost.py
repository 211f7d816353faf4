"""H01: the answer is lost after the ticket was created, or nothing was sent; the log tells which."""

from pathlib import Path

import pytest

from evsrc.core.events import CallNotSent, OutcomeUnknown
from tests.faults.conftest import Play, events


def rows(folder: Path) -> int:
    """How many tickets there are."""
    return len((folder / "rows").read_text().splitlines())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_h01_a_nothing_was_sent(play: Play, tmp_path: Path, backend: str) -> None:
    """Refused before a byte left: sent again straight away, one ticket, and the log says not sent."""
    end = play("ticket", fault="refused", backend=backend)
    assert end.result[:2] == ["completed", "create-1"]
    assert rows(tmp_path) == 1
    found = events(tmp_path)
    assert any(isinstance(e, CallNotSent) for e in found)
    assert not any(isinstance(e, OutcomeUnknown) for e in found)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_h01_b_the_answer_was_dropped(play: Play, tmp_path: Path, backend: str) -> None:
    """Committed, then reset: unknown, found as ours, done with the real number; one ticket."""
    end = play("ticket", fault="drop", backend=backend)
    assert end.result[:2] == ["completed", "create-1"]
    assert rows(tmp_path) == 1
    found = events(tmp_path)
    assert [e.cause for e in found if isinstance(e, OutcomeUnknown)] == ["error"]
    assert not any(isinstance(e, CallNotSent) for e in found)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_h01_c_killed_before_the_loss_was_noticed(play: Play, tmp_path: Path, backend: str) -> None:
    """Committed and killed: unknown at the next opening, found as ours, done; one ticket."""
    assert play("ticket", stop="create", backend=backend).killed
    assert not any(isinstance(e, OutcomeUnknown) for e in events(tmp_path))

    end = play("ticket", backend=backend)

    assert end.result[:2] == ["completed", "create-1"]
    assert rows(tmp_path) == 1
    assert [e.cause for e in events(tmp_path) if isinstance(e, OutcomeUnknown)] == ["crash"]
