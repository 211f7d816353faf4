"""The three-way demo: what each way of living with crashes does to the outside world."""

import pytest

from evsrc.demo.corpus import findings
from evsrc.demo.counting import Row
from evsrc.demo.threeway import WINDOWS, Progress, ThreeWay, run_threeway, schedule

FINDINGS, KILLS = 8, 16


@pytest.fixture(scope="module")
def table() -> ThreeWay:
    """A small demo: eight findings, sixteen kills, three ways."""
    return run_threeway(findings_count=FINDINGS, kills=KILLS)


def test_naive_makes_duplicates(table: ThreeWay) -> None:
    """Without a log, at least every kill after a committed effect makes a duplicate."""
    assert table.committed_kills > 0
    assert table.naive.duplicates >= table.committed_kills


def test_a_log_alone_still_makes_duplicates(table: ThreeWay) -> None:
    """With a log and no reconciliation, the unknown window still sends twice."""
    assert table.log.duplicates > 0
    assert table.log.duplicates < table.naive.duplicates


def test_reconciliation_makes_none(table: ThreeWay) -> None:
    """With reconciliation nothing is sent twice, nothing is lost, nobody is asked."""
    assert table.reconciled.duplicates == table.reconciled.lost == 0
    assert table.reconciled.open_questions == 0


def test_all_three_are_killed_alike(table: ThreeWay) -> None:
    """One schedule, one number of kills."""
    assert {m.kills for m in (table.naive, table.log, table.reconciled)} == {KILLS}
    assert len(table.schedule) == 64


def test_checkpoints_save_work(table: ThreeWay) -> None:
    """With a log fewer node bodies run, and the difference is reused."""
    assert table.reconciled.nodes_run < table.naive.nodes_run
    assert table.naive.nodes_reused == 0 < table.reconciled.nodes_reused


def test_a_blind_pager_asks() -> None:
    """Through the webhook that tells nothing, unknown pages become questions, never duplicates."""
    seen: list[Progress] = []

    table = run_threeway(findings_count=4, kills=8, blind_page=True, progress=seen.append)

    assert table.reconciled.duplicates == 0
    assert table.reconciled.open_questions > 0
    assert {p.mode for p in seen} == {"naive", "log", "reconciled"}


def test_the_schedule_covers_every_window_of_every_tool() -> None:
    """The full schedule has 70 kills, the same each time, in every window and for every effect."""
    rows = [
        Row(0, kind, "t", finding.uid, kind, "", {}, 0, 0)
        for finding in findings()
        for kind in ("ticket", "block", "disable", "page")
    ]

    plan = schedule(rows, 40, 70)

    points = [point for planned in plan for point in planned.kills]
    assert len(points) == 70
    assert plan == schedule(rows, 40, 70)
    assert {p.name for p in points} == {*WINDOWS, "node_start", "node_output"}
    assert {p.tool for p in points} == {"open_ticket", "block_ip", "disable_account", ""}
    assert {p.name for p in points if p.node == "page"} >= set(WINDOWS)
