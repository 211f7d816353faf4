"""Alert text that attacks the terminal, end to end: into a log, and out through every command."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from evsrc.cli.statuses import FAILED
from tests.cli.conftest import FLOW, TOOLS, Evsrc

ROOT = Path(__file__).parents[2]
EVIL = (
    "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f[bold red]fake[/bold red] [link=http://x]y[/link]"
    "\r\n\u202egpj\u2066\u200f\u2028\x00:bomb:"
)
COMMANDS = [
    ["run", FLOW, "in.json"],
    ["run", FLOW, "in.json", "--json"],
    ["runs"],
    ["runs", "--json"],
    ["show", "evil"],
    ["show", "evil", "--events"],
    ["show", "evil", "--json"],
    ["show", "evil", "--follow"],
    ["show", "sad"],
    ["unknown"],
    ["unknown", "--json"],
    ["explain", "q"],
    ["explain", "q", "--tools", TOOLS, "--json"],
    ["plan", FLOW, "in.json"],
    ["export", "--jsonl"],
    ["resolve", "q", "--happened", '"[red]x\\u001b"', "--by", EVIL, "--reason", EVIL],
    ["show", EVIL],
    ["verify", EVIL],
    ["run", EVIL + ":x", EVIL],
    [EVIL],
]


def dangerous(text: str) -> set[str]:
    """Characters that do not show themselves, beside the newline."""
    return {c for c in text if not c.isprintable() and c != "\n"}


@pytest.fixture
def hostile(folder: Path, evsrc: Evsrc) -> None:
    """A log in which the attacker wrote the run ids, the texts, the results and the errors."""
    alerts = [
        {"id": f"evil{EVIL}", "text": EVIL, "mood": "refused"},
        {"id": f"sad{EVIL}", "text": EVIL, "mood": "unknown"},
    ]
    (folder / "in.json").write_bytes(msgspec.json.encode(alerts))
    assert evsrc("run", FLOW, "in.json").status == FAILED


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: " ".join(a[:3])[:20].encode().hex())
def test_nothing_of_it_reaches_the_terminal(evsrc: Evsrc, arguments: list[str]) -> None:
    """No control, no bidi override, no extra line; brackets are brackets."""
    end = evsrc(*[argument.replace("\x00", "") for argument in arguments])  # as execve would

    assert dangerous(end.out + end.err) == set()
    assert end.out + end.err


@pytest.mark.usefixtures("hostile")
def test_it_is_shown_as_what_it_is(evsrc: Evsrc) -> None:
    """Escapes and markup are readable, so that an analyst sees the attempt."""
    out = evsrc("show", "evil").out

    assert "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m" in out
    assert "[bold red]fake[/bold red] [link=http://x]y[/link]" in out
    assert "\\u202egpj" in out
    assert ":bomb:" in out


@pytest.mark.usefixtures("hostile")
def test_the_program_writes_the_same_bytes(folder: Path) -> None:
    """As a process of its own, also where the terminal knows ASCII only."""
    for encoding in ("utf-8", "ascii"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
        for command in ("runs", "export"):
            end = subprocess.run(
                [sys.executable, "-m", "evsrc.cli", command],
                env=environment,
                capture_output=True,
                cwd=folder,
            )
            assert end.stderr == b""
            assert dangerous(end.stdout.decode(encoding)) == set()
            assert b"[bold red]fake" in end.stdout
