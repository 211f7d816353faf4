"""An empty current folder, and the program in process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from evsrc.cli import main

FLOW = "tests.cli.sample:flow"
TOOLS = "tests.cli.sample:tools"


class End(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


Evsrc = Callable[..., End]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the test; commands may put it on the path, which is taken back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.fixture
def evsrc(capsys: pytest.CaptureFixture[str]) -> Evsrc:
    """Run a command in this process."""

    def run(*arguments: str) -> End:
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return End(status, out, err)

    return run


@pytest.fixture
def alerts(folder: Path) -> Callable[..., str]:
    """Write an input file, one alert a line: `alerts(a="well", b="unknown")`."""
    import msgspec

    def write(**moods: str) -> str:
        lines = [msgspec.json.encode({"id": id_, "mood": mood}) for id_, mood in moods.items()]
        (folder / "in.jsonl").write_bytes(b"\n".join(lines))
        return "in.jsonl"

    return write
