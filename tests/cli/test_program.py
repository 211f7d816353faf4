"""The program as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evsrc.cli import EXTRA
from evsrc.cli.statuses import INTERRUPTED, OK, QUESTIONS, USAGE
from tests.cli.conftest import FLOW, Evsrc

ROOT = Path(__file__).parents[2]
Alerts = Callable[..., str]
SLOW = """
import anyio, evsrc

@evsrc.tool(timeout_s=60)
async def slow(call: evsrc.Call, *, text: str) -> None:
    open("sent", "w").close()
    await anyio.sleep(60)

@evsrc.workflow(version="1")
async def work(run: evsrc.Run, text: str) -> str:
    await run.call(slow, text=text)
    return text

tools = [slow]
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evsrc.cli", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True)


def test_it_exits_with_its_status(alerts: Alerts) -> None:
    """`python -m evsrc.cli` is the program: output, errors and exit status."""
    assert program("run", FLOW, alerts(a="well", b="unknown")).returncode == QUESTIONS
    assert json.loads(program("runs", "--json").stdout)["runs"][0]["status"] == "completed"
    refused = program("show", "nothing")
    assert (refused.returncode, refused.stdout) == (USAGE, "")
    assert refused.stderr == "evsrc: no run 'nothing' in this log\n"


def test_ctrl_c_leaves_an_honest_log(folder: Path, evsrc: Evsrc) -> None:
    """Interrupted in a send: status 130, one line, and a call that is known to be unknown."""
    (folder / "slow_playbook.py").write_text(SLOW)
    (folder / "in.json").write_text('"x"')
    command = [sys.executable, "-m", "evsrc.cli", "run", "slow_playbook:work", "in.json"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 20
        while not (folder / "sent").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20)

    assert child.returncode == INTERRUPTED
    assert err == "evsrc: interrupted\n"
    (row,) = json.loads(evsrc("unknown", "--json").out)["unknown"]
    assert row["cause"] == "cancelled"
    assert evsrc("verify").status == OK


def test_a_reader_that_has_had_enough_is_no_error(alerts: Alerts, evsrc: Evsrc) -> None:
    """`evsrc export | head -1` ends without a traceback."""
    evsrc("run", FLOW, alerts(**{f"a{n}": "well" for n in range(40)}))
    end = subprocess.run(
        f"{sys.executable} -m evsrc.cli export | head -1",
        shell=True,
        env=environment(),
        capture_output=True,
        text=True,
    )

    assert end.stderr == ""
    assert json.loads(end.stdout)["position"] == 1


def test_without_the_extra_the_import_says_what_to_install() -> None:
    """`import evsrc` works without it; `import evsrc.cli` names the command to type."""
    code = "import evsrc\ntry:\n    import evsrc.cli\nexcept ImportError as e:\n    print(e)"
    # -S: no site-packages, so no extra; nothing of ours is imported before the check.
    end = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "pip install 'evsrc-engine[cli]'" in end.stdout
    assert all(name in end.stdout for name in EXTRA)


@pytest.mark.parametrize("command", ["verify", "runs"])
def test_a_command_imports_what_it_needs(command: str) -> None:
    """Neither the demo nor httpx nor an event loop is loaded for a command that only reads."""
    code = (
        "import sys; from evsrc.cli import main; "
        f"main([{command!r}]); print('\\n'.join(sys.modules))"
    )
    end = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )

    loaded = set(end.stdout.split())
    assert not {"httpx", "trio", "evsrc.demo", "evsrc.runtime.runtime"} & loaded
