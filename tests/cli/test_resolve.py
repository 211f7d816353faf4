"""A person's answer, with the log free and with an owner."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evsrc.cli import resolve as command
from evsrc.cli.statuses import FAILED, OK, QUESTIONS, USAGE
from tests.cli import sample
from tests.cli.conftest import FLOW, TOOLS, Evsrc

Alerts = Callable[..., str]
SIGNED = ["--by", "Ann", "--reason", "asked the pager"]
ROOT = Path(__file__).parents[2]


def subject(evsrc: Evsrc) -> str:
    (row,) = json.loads(evsrc("unknown", "--json").out)["unknown"]
    return str(row["id"])


@pytest.mark.parametrize(
    ("answer", "status", "acts"),
    [
        (["--happened", "7"], OK, 1),
        (["--absent"], QUESTIONS, 1),
        (["--resend"], QUESTIONS, 2),
        (["--skip"], FAILED, 1),
    ],
)
def test_an_answer_is_applied_where_the_log_is_free(
    evsrc: Evsrc, alerts: Alerts, folder: Path, answer: list[str], status: int, acts: int
) -> None:
    """It is recorded without running anything; the next `run` does what follows from it."""
    evsrc("run", FLOW, alerts(a="unknown"))
    before = (folder / "world.txt").read_text()
    call = subject(evsrc)
    end = evsrc("resolve", call[:9], *answer, *SIGNED)
    assert end.status == OK
    assert "applied" in end.out
    assert (folder / "world.txt").read_text() == before
    if answer == ["--absent"]:
        return  # a person's look excludes no late arrival: the resend would wait for a minute
    again = evsrc("run", FLOW, "in.jsonl")
    assert again.status == status
    assert (folder / "world.txt").read_text().count("page a") == acts
    assert "Ann answered" in evsrc("show", "a").out


def test_an_answer_that_does_not_fit_is_kept_and_told(evsrc: Evsrc, alerts: Alerts) -> None:
    """Status 1 with the reason; the question stays open. The tool's declaration is what it must fit."""
    evsrc("run", FLOW, alerts(a="unknown"))
    call = subject(evsrc)
    end = evsrc("resolve", call, "--happened", '"text"', *SIGNED, "--tools", TOOLS, "--json")

    assert end.status == FAILED
    body = json.loads(end.out)
    assert (body["result"], body["by"]) == ("does not fit", "Ann")
    assert "int" in body["why"]
    assert evsrc("resolve", call, "--keep", *SIGNED).status == FAILED
    assert evsrc("unknown").status == QUESTIONS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "found none"),
        (["--absent", "--skip"], "found --absent, --skip"),
        (["--happened", "7", "--resend"], "exactly one"),
        (["--happened", "T-1"], "a text needs its quotes"),
        (["--absent", "--run", "nothing"], "no run 'nothing'"),
    ],
)
def test_one_answer_and_valid_json(
    evsrc: Evsrc, alerts: Alerts, arguments: list[str], words: str
) -> None:
    """What cannot be meant is refused before anything is recorded."""
    evsrc("run", FLOW, alerts(a="unknown"))
    call = subject(evsrc)
    end = evsrc("resolve", call, *arguments, *SIGNED)

    assert end.status == USAGE
    assert words in end.err
    assert evsrc("resolve", call, "--absent", "--by", "Ann").status == USAGE
    assert evsrc("resolve", "x", "--absent", *SIGNED).status == USAGE


def test_a_prefix_of_two_calls_is_refused(evsrc: Evsrc, alerts: Alerts) -> None:
    """Both candidates are named, and --run tells them apart."""
    evsrc("run", FLOW, alerts(a="unknown", b="unknown"))
    end = evsrc("resolve", "q", "--skip", *SIGNED)
    assert end.status == USAGE
    assert "begins 2 ids" in end.err
    assert "run 'a'" in end.err
    assert "run 'b'" in end.err
    assert evsrc("resolve", "q", "--skip", "--run", "b", *SIGNED).status == OK


def test_an_act_on_older_evidence_is_kept_by_name(
    evsrc: Evsrc, alerts: Alerts, folder: Path
) -> None:
    """A changed feed asks about the node; --keep lets the act stand, and the timeline marks it."""
    flow = "tests.cli.sample:fed"
    (folder / "feed.txt").write_text("old")
    assert evsrc("run", flow, alerts(a="unknown")).status == QUESTIONS
    (folder / "feed.txt").write_text("new")
    plan = json.loads(evsrc("plan", flow, "in.jsonl", "--json").out)["runs"][0]["nodes"]
    assert (plan[0]["status"], plan[0]["why"]) == ("pinned", ["file:feed.txt"])
    assert evsrc("run", flow, "in.jsonl").status == QUESTIONS
    rows = json.loads(evsrc("unknown", "--json").out)["unknown"]
    (asked,) = [row for row in rows if row["cause"] == "pinned"]
    assert asked["what"] == "node score"
    assert evsrc("explain", asked["id"]).status == USAGE
    assert evsrc("resolve", asked["id"], "--absent", *SIGNED).status == FAILED
    assert evsrc("resolve", asked["id"], "--keep", *SIGNED).status == OK
    assert "[older evidence]" in evsrc("show", "a").out
    assert evsrc("resolve", subject(evsrc), "--happened", "1", *SIGNED).status == OK
    assert evsrc("run", flow, "in.jsonl").status == OK


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that owns the log and waits for an answer."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, sample.__file__, str(folder)], env=environment) as child:
        try:
            wait_for(folder / "world.txt", "started\n")
            yield child
        finally:
            child.kill()


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 20
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def test_the_owner_of_the_log_takes_the_answer(evsrc: Evsrc, folder: Path) -> None:
    """One that does not fit is told; one that does is applied, and the run goes on in its process."""
    with holder(folder) as child:
        call = subject(evsrc)
        wrong = evsrc("resolve", call, "--happened", '"text"', *SIGNED)
        assert wrong.status == FAILED
        assert "does not fit" in wrong.out
        assert f"process {child.pid}" in wrong.err
        right = evsrc("resolve", call, "--happened", "7", *SIGNED)
        assert right.status == OK
        assert "applied" in right.out
        wait_for(folder / "world.txt", "ended completed\n")
        assert child.wait(20) == 0
    assert evsrc("unknown").status == OK
    assert json.loads(evsrc("runs", "--json").out)["runs"][0]["status"] == "completed"


def test_an_owner_that_does_not_answer_leaves_the_message(
    evsrc: Evsrc, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 3 says that the question is open; the next owner finds the message and applies it."""
    import signal

    monkeypatch.setattr(command, "WAIT_S", 0.3)
    with holder(folder) as child:
        call = subject(evsrc)
        child.send_signal(signal.SIGSTOP)
        end = evsrc("resolve", call, "--happened", "7", *SIGNED)
        assert end.status == QUESTIONS
        assert "waiting" in end.out
        assert len(list((folder / "journal" / "inbox").glob("*.msg"))) == 1
    (folder / "in.jsonl").write_text('{"id": "held", "mood": "unknown"}')
    for _ in range(50):  # the inbox is looked into while the log is open
        if evsrc("run", FLOW, "in.jsonl").status == OK:
            break
    assert evsrc("unknown").status == OK
