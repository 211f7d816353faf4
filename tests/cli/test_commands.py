"""Each command, in this process: what it prints and how it ends."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evsrc.cli import demo as demo_command
from evsrc.cli.app import COMMANDS
from evsrc.cli.logs import find_run, load_runs
from evsrc.cli.statuses import FAILED, INTEGRITY, OK, QUESTIONS, USAGE, UsageError
from evsrc.demo.threeway import Measured, Progress, ThreeWay
from tests.cli.conftest import FLOW, TOOLS, Evsrc

Alerts = Callable[..., str]
READERS = ["runs", "unknown", "export", "verify"]


def damage(segment: Path) -> None:
    """Change one byte in the middle of what was acknowledged."""
    data = bytearray(segment.read_bytes())
    data[len(data) // 3] ^= 1
    segment.write_bytes(data)


# ---- run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moods", "status"),
    [
        ({"a": "well"}, OK),
        ({"a": "well", "b": "unknown"}, QUESTIONS),
        ({"a": "unknown", "b": "refused"}, FAILED),
    ],
)
def test_run_ends_with_the_worst_of_its_runs(
    evsrc: Evsrc, alerts: Alerts, moods: dict[str, str], status: int
) -> None:
    """A failed run outweighs an open question, which outweighs what is well."""
    end = evsrc("run", FLOW, alerts(**moods), "--json")

    assert end.status == status
    words = {"well": "completed", "unknown": "suspended", "refused": "failed"}
    runs = json.loads(end.out)["runs"]
    assert {run["run"]: run["status"] for run in runs} == {k: words[v] for k, v in moods.items()}


def test_run_again_returns_what_was_recorded(evsrc: Evsrc, alerts: Alerts, folder: Path) -> None:
    """The same inputs do not act again; values are those of the first time."""
    first = evsrc("run", FLOW, alerts(a="well"), "--json", "--at-once", "1")
    acted = (folder / "world.txt").read_text().count("ticket")
    second = evsrc("run", FLOW, alerts(a="well"), "--json")

    assert json.loads(first.out) == json.loads(second.out)
    assert json.loads(first.out)["runs"][0]["value"] == {"look": "", "ticket": "T-a", "wake": 1}
    assert (folder / "world.txt").read_text().count("ticket") == acted == 1


def test_one_refused_input_stops_no_other(evsrc: Evsrc, folder: Path) -> None:
    """Two inputs under one run id: the second is refused, and named by its line."""
    (folder / "in.jsonl").write_text('{"id": "a"}\n{"id": "a", "text": "other"}\n{"id": "b"}')
    end = evsrc("run", FLOW, "in.jsonl")

    assert end.status == FAILED
    assert "InputMismatch" in end.out
    assert "in.jsonl, line" in end.out
    assert evsrc("runs").out.count("completed") == 2


def test_run_of_a_workflow(evsrc: Evsrc, alerts: Alerts) -> None:
    """A workflow runs like a flow."""
    end = evsrc("run", "tests.cli.sample:agent", alerts(a="well"), "--json")

    assert json.loads(end.out)["runs"][0]["value"] == {"said": ""}


def test_run_refuses_a_bad_file_before_anything_ran(evsrc: Evsrc, folder: Path) -> None:
    """A usage error names file and line, and makes no log."""
    (folder / "in.jsonl").write_text('{"id": "a"}\n{"id": 5}')
    end = evsrc("run", FLOW, "in.jsonl")

    assert end.status == USAGE
    assert end.err.startswith("evsrc: in.jsonl, line 2: no Alert")
    assert end.err.count("\n") == 1
    assert not (folder / "journal").exists()


# ---- usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["run"],
        ["run", "nocolon", "in.jsonl"],
        ["run", FLOW, "nowhere.json"],
        ["run", FLOW, "in.jsonl", "--at-once", "0"],
        ["run", FLOW, "in.jsonl", "--at-once", "many"],
        ["plan", "tests.cli.sample:agent", "in.jsonl"],
        ["show", "a"],
        ["resolve", "c"],
        ["explain", "c"],
        ["sweep", "--tools", TOOLS],
        ["demo", "--findings", "41"],
        ["demo", "--backend", "gevent"],
        *[[reader] for reader in READERS],
    ],
)
def test_what_cannot_be_meant_is_status_two(
    evsrc: Evsrc, alerts: Alerts, arguments: list[str]
) -> None:
    """Bad arguments, and a log that is not there, are one clear line on standard error."""
    alerts(a="well")
    end = evsrc(*arguments)

    assert end.status == USAGE
    assert end.out == ""
    assert end.err.startswith("evsrc: ")


def test_help_is_no_error(evsrc: Evsrc) -> None:
    """The overview names every command; each command has its own help."""
    overview = evsrc("--help")
    assert overview.status == OK
    assert all(name in overview.out for name in COMMANDS)
    for name in COMMANDS:
        assert evsrc(name, "--help").status == OK


# ---- reading ---------------------------------------------------------------------------------------


def test_runs_lists_every_run(evsrc: Evsrc, alerts: Alerts) -> None:
    """A row per run with its counts, as a table and as JSON."""
    evsrc("run", FLOW, alerts(a="well", b="unknown"))
    assert evsrc("runs").status == OK
    rows = json.loads(evsrc("runs", "--json").out)["runs"]

    found = {row["run"]: (row["status"], row["calls"], row["open_questions"]) for row in rows}
    assert found == {"a": ("completed", 2, 0), "b": ("suspended", 2, 1)}


def test_show_tells_what_happened(evsrc: Evsrc, alerts: Alerts) -> None:
    """Compact by default; with --events every field; both as JSON, and cost."""
    evsrc("run", FLOW, alerts(a="unknown"))
    compact = evsrc("show", "a")
    assert "suspended a of sample" in compact.out
    assert "cost 0.75" in compact.out
    assert "outcome unknown (attempt 1): error, ConnectionResetError: hung up on a" in compact.out
    assert "open question q" in compact.out
    assert "IntentRecorded" in evsrc("show", "a", "--events").out
    timeline = json.loads(evsrc("show", "a", "--json").out)["timeline"]
    assert timeline[0]["text"].startswith("run started: sample")
    events = json.loads(evsrc("show", "a", "--events", "--json").out)["events"]
    assert [event["type"] for event in events][:2] == ["RunStarted", "NodeStarted"]


@pytest.mark.parametrize("flags", [[], ["--json"], ["--events"], ["--events", "--json"]])
def test_follow_ends_with_the_run(evsrc: Evsrc, alerts: Alerts, flags: list[str]) -> None:
    """Following an ended run shows all of it and returns; JSON comes one document a line."""
    evsrc("run", FLOW, alerts(a="well"))
    end = evsrc("show", "a", "--follow", *flags)

    assert end.status == OK
    last = end.out.splitlines()[-1]
    assert "completed" in last.lower()
    if "--json" in flags:
        assert json.loads(last)["position"]


def test_a_run_may_be_named_by_its_beginning(evsrc: Evsrc, alerts: Alerts) -> None:
    """A prefix that names one run is enough; an exact id wins over longer ones."""
    evsrc("run", FLOW, alerts(abc="well", abd="well", ab="well"))
    assert evsrc("show", "abd").out.startswith("completed abd of sample")
    assert evsrc("show", "ab").out.startswith("completed ab of sample")
    ambiguous = evsrc("show", "a")
    assert ambiguous.status == USAGE
    assert "begins 3 ids" in ambiguous.err
    runs, _ = load_runs("journal")
    assert find_run(runs, "abd").run_id == "abd"
    with pytest.raises(UsageError, match="no run 'x'"):
        find_run(runs, "x")


def test_unknown_lists_calls_also_of_ended_runs(evsrc: Evsrc, alerts: Alerts) -> None:
    """A skipped call keeps its run's end and stays unknown; status 3 says that there is one."""
    evsrc("run", FLOW, alerts(a="well"))
    clean = evsrc("unknown")
    assert (clean.status, clean.out) == (OK, "nothing is unknown\n")
    evsrc("run", FLOW, alerts(b="unknown"))
    (row,) = json.loads(evsrc("unknown", "--json").out)["unknown"]
    assert (row["run_status"], row["what"], row["attempt"]) == ("suspended", "page in wake", 1)
    assert row["arguments"] == {"alert": "b", "mood": "unknown"}
    evsrc("resolve", row["id"], "--skip", "--by", "Ann", "--reason", "late")
    evsrc("run", FLOW, alerts(b="unknown"))
    end = evsrc("unknown", "--json")
    assert end.status == QUESTIONS
    assert json.loads(end.out)["unknown"][0]["run_status"] == "failed"
    assert evsrc("unknown").status == QUESTIONS


def test_explain_names_the_rule_and_what_is_undeclared(evsrc: Evsrc, alerts: Alerts) -> None:
    """With the tool its declaration counts, without it the worst, and that is said."""
    evsrc("run", FLOW, alerts(a="unknown"))
    (row,) = json.loads(evsrc("unknown", "--json").out)["unknown"]
    alone = evsrc("explain", row["id"][:12])
    assert alone.status == OK
    assert "tool not given" in alone.out
    assert "Undeclared: probe" in alone.out
    known = json.loads(evsrc("explain", row["id"], "--tools", TOOLS, "--json").out)
    assert (known["declared"], known["missing"]) == ("tool", ["effect"])
    other = evsrc("explain", row["id"], "--tools", "tests.cli.sample:open_ticket")
    assert other.status == USAGE
    assert "no tool 'page'" in other.err


def test_plan_says_what_would_run_and_why(evsrc: Evsrc, alerts: Alerts) -> None:
    """Without a log everything runs; after a run nothing does."""
    before = json.loads(evsrc("plan", FLOW, alerts(a="well"), "--json").out)["runs"]
    assert {node["status"] for node in before[0]["nodes"]} == {"run"}
    assert not before[0]["known"]
    evsrc("run", FLOW, alerts(a="well"))
    after = json.loads(evsrc("plan", FLOW, alerts(a="well"), "--json").out)["runs"]
    assert {node["status"] for node in after[0]["nodes"]} <= {"pinned", "reuse"}
    assert after[0]["known"]
    assert "look" in evsrc("plan", FLOW, "in.jsonl").out
    mismatch = evsrc("plan", FLOW, alerts(a="refused"))
    assert mismatch.status == FAILED
    assert "another input" in mismatch.err


def test_export_is_one_event_a_line(evsrc: Evsrc, alerts: Alerts) -> None:
    """Every event of every run, or of one."""
    evsrc("run", FLOW, alerts(a="well", b="well"))
    lines = [json.loads(line) for line in evsrc("export", "--jsonl").out.splitlines()]
    total = sum(row["events"] for row in json.loads(evsrc("runs", "--json").out)["runs"])

    assert len(lines) == total
    assert [line["position"] for line in lines] == sorted(line["position"] for line in lines)
    one = [json.loads(line)["run"] for line in evsrc("export", "--run", "b").out.splitlines()]
    assert set(one) == {"b"}
    assert evsrc("export", "--jsonl", "--json").out == evsrc("export").out


def test_an_event_of_a_later_version_is_exported_and_told(
    evsrc: Evsrc, alerts: Alerts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops its run only: the rest is listed, the status is 4, and nothing is left out."""
    from evsrc.core import codec

    evsrc("run", FLOW, alerts(a="well", b="well"))
    decode = codec.decode_events

    def strange(body: bytes) -> object:
        return decode(body.replace(b"RunCompleted", b"RunDissolved"))

    for module in ("evsrc.projections.base", "evsrc.cli.integrity"):
        monkeypatch.setattr(f"{module}.decode_events", strange)
    end = evsrc("export", "--run", "a")
    assert end.status == INTEGRITY
    assert "RunDissolved" in end.err
    assert json.loads(end.out.splitlines()[-1])["type"] == "RunCompleted"
    assert evsrc("runs").status == evsrc("unknown").status == INTEGRITY
    assert set(json.loads(evsrc("runs", "--json").out)["unreadable"]) == {"a", "b"}


def test_damage_is_status_four(evsrc: Evsrc, alerts: Alerts, folder: Path) -> None:
    """`verify` says where; a command that would write refuses."""
    evsrc("run", FLOW, alerts(a="well", b="well"))
    assert evsrc("verify").out.startswith("clean: ")
    (segment,) = (folder / "journal").glob("*.evlog")
    damage(segment)
    end = evsrc("verify", "journal")
    assert end.status == INTEGRITY
    assert "corrupt" in end.out
    assert segment.name in end.out
    report = json.loads(evsrc("verify", "--log", "journal", "--json").out)
    assert report["state"] == "corrupt"
    again = evsrc("run", FLOW, "in.jsonl")
    assert again.status == INTEGRITY
    assert again.err.startswith("evsrc: ")
    assert again.err.count("\n") == 1


def test_a_log_that_is_written_is_refused_and_its_holder_named(
    evsrc: Evsrc, alerts: Alerts
) -> None:
    """`run` on a held log is one line with the holder's process, status 1."""
    import os

    import anyio

    import evsrc as library

    async def held() -> tuple[int, str]:
        async with library.open_runtime("journal"):
            end = await anyio.to_thread.run_sync(evsrc, "run", FLOW, alerts(a="well"))
            return end.status, end.err

    status, err = anyio.run(held)
    assert status == FAILED
    assert f"process {os.getpid()}" in err


def test_sweep_reports_what_no_intent_explains(evsrc: Evsrc, alerts: Alerts, folder: Path) -> None:
    """A clean sweep is status 0; an effect of a lost log is an orphan, status 1."""
    evsrc("run", FLOW, alerts(a="well"))
    swept = evsrc("sweep", "--tools", TOOLS, "--json")
    assert swept.status == OK
    (one,) = json.loads(swept.out)["swept"]
    assert (one["seen"], one["orphans"], one["complete"]) == (1, [], True)
    shutil.copytree("journal", "older")
    evsrc("run", FLOW, alerts(b="well"))
    orphan = evsrc("sweep", "--tools", TOOLS, "--log", "older")
    assert orphan.status == FAILED
    assert "evsrc-" in orphan.out
    none = evsrc("sweep", "--tools", "tests.cli.sample:page")
    assert none.status == USAGE
    assert "none of these tools declares a sweep" in none.err


# ---- demo ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duplicates", "questions", "status"), [(0, 0, OK), (0, 2, QUESTIONS), (1, 2, FAILED)]
)
def test_demo_shows_what_was_counted(
    evsrc: Evsrc,
    monkeypatch: pytest.MonkeyPatch,
    duplicates: int,
    questions: int,
    status: int,
) -> None:
    """The three rows and the schedule; the status judges the reconciled way alone."""

    def counted(*, progress: Callable[[Progress], None], **asked: object) -> ThreeWay:
        assert asked == {"findings_count": 4, "kills": 5, "blind_page": True, "backend": "trio"}
        progress(Progress("naive", 4, 4, 5))
        naive = Measured(12, 3, 0, 0, 5, 80, 0)
        return ThreeWay(naive, naive, Measured(8, duplicates, 0, questions, 5, 40, 30), "ab" * 32)

    monkeypatch.setattr(demo_command, "run_threeway", counted)
    arguments = ["--findings", "4", "--kills", "5", "--blind-page", "--backend", "trio"]
    text = evsrc("demo", *arguments)
    assert text.status == status
    assert "kill schedule abab" in text.out
    body = json.loads(evsrc("demo", *arguments, "--json").out)
    assert list(body) == ["naive", "log", "reconciled", "schedule"]
    assert body["naive"]["duplicates"] == 3
    assert set(body["log"]) == set(Measured.__struct_fields__)


def test_a_stage_that_fails_is_one_line(evsrc: Evsrc, monkeypatch: pytest.MonkeyPatch) -> None:
    """No numbers, status 1, and why."""

    def broken(**_: object) -> ThreeWay:
        raise RuntimeError("a child was not killed\x1b[31m")

    monkeypatch.setattr(demo_command, "run_threeway", broken)
    end = evsrc("demo")
    assert (end.status, end.out) == (FAILED, "")
    assert end.err == "evsrc: a child was not killed\\x1b[31m\n"


def test_a_loop_that_is_not_installed_is_named(
    evsrc: Evsrc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without trio, `--backend trio` is a usage error with the remedy, before anything is started."""
    monkeypatch.setattr(demo_command, "find_spec", lambda name: None)
    end = evsrc("demo", "--backend", "trio")
    assert (end.status, end.out) == (USAGE, "")
    assert "pip install trio" in end.err
