"""The stage of the cases that kill real processes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import evsrc
from evsrc.core.events import Event
from evsrc.testing.crash import ChildEnd, CrashServer, KillPoint
from tests.faults.child import Setup

ROOT = Path(__file__).parents[2]

Play = Callable[..., ChildEnd]


@pytest.fixture(scope="session")
def server() -> Iterator[CrashServer]:
    """One fork server per worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with CrashServer("tests.faults.child:main") as running:
            yield running


@pytest.fixture
def play(server: CrashServer, tmp_path: Path) -> Play:
    """Run one child of a case in this test's folder: `play(case, stop=..., kill_at=...)`."""

    def run(case: str, *, kill_at: KillPoint | None = None, **fields: str) -> ChildEnd:
        setup = Setup(case, str(tmp_path), **fields)
        return server.run(msgspec.to_builtins(setup), kill_at=kill_at)

    return run


def events(folder: Path) -> list[Event]:
    """The events of the case's run, read from its log without opening it."""
    return [seen.event for seen in evsrc.open_log(folder / "log").events(run="r")]
