"""H21: a token that travels by reference leaves no trace: not after a failure, a crash, nor in keys."""

from pathlib import Path

import pytest

from evsrc.core.events import IntentRecorded
from tests.faults.conftest import Play, events

VALUE = "MARKED-TOKEN-MARKED"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_h21_the_value_is_in_no_file(play: Play, tmp_path: Path, backend: str) -> None:
    """Fail with an echo, succeed, crash, resume, with debug logging on: no file and no repr holds it."""
    assert play("secret", stop="post", backend=backend).killed
    end = play("secret", backend=backend)

    assert end.result[:2] == ["completed", "PermissionError, post-1"]
    assert VALUE not in repr(end)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) >= 4
    for path in files:
        assert VALUE.encode() not in path.read_bytes(), path
    intents = [e for e in events(tmp_path) if isinstance(e, IntentRecorded)]
    assert len(intents) == 2  # the one that echoed and the one that was killed
    assert len({i.key for i in intents}) == 1
    assert all(b"TOKEN" in i.sent for i in intents)
