"""How every run of a log stands."""

from evsrc.core.codec import encode_events
from evsrc.core.events import (
    Event,
    OutcomeUnknown,
    QuestionAnswered,
    QuestionAsked,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunReopened,
    SweepRecorded,
)
from evsrc.log.base import Record
from evsrc.projections.base import catch_up
from evsrc.projections.runs import Runs
from tests.projections.given import ERROR, SECOND, STARTED, feed, intent

ASKED = QuestionAsked("q1", "unknown", "c1", "Did it happen?")


def status(*events: Event) -> str:
    (row,) = feed(Runs(), STARTED, *events).rows()
    return row.status


def test_a_run_is_running_until_it_ends() -> None:
    """The status follows the terminal event."""
    assert status() == "running"
    assert status(RunCompleted()) == "completed"
    assert status(RunFailed(ERROR)) == "failed"
    assert status(RunCancelled()) == "cancelled"


def test_suspended_is_derived_from_open_questions() -> None:
    """A run that asks is suspended until the answer fits; one that ended is not."""
    misfit = QuestionAnswered("q1", "Ann", "keep", fits=False)
    assert status(ASKED) == "suspended"
    assert status(ASKED, misfit) == "suspended"
    assert status(ASKED, QuestionAnswered("q1", "Ann", "skip")) == "running"
    assert status(ASKED, RunFailed(ERROR)) == "failed"


def test_a_row_counts_and_dates() -> None:
    """Events, calls, unknown calls and open questions are counted; times are those of the records."""
    runs = feed(
        Runs(), STARTED, intent(), OutcomeUnknown("c1", 1, "crash"), ASKED, RunFailed(ERROR)
    )
    row = runs.row("r-1")

    assert row is not None
    assert (row.events, row.calls, row.unknown_calls, row.open_questions) == (5, 1, 1, 1)
    assert (row.started_ns, row.ended_ns) == (SECOND, 5 * SECOND)
    assert (row.workflow, row.error) == ("triage", "Rejected: no")


def test_a_reopened_run_has_no_end() -> None:
    """Reopening takes the end back, and the error with it."""
    row = feed(Runs(), STARTED, RunFailed(ERROR), RunReopened("Ann")).row("r-1")

    assert row is not None
    assert (row.status, row.ended_ns, row.error) == ("running", 0, "")


def test_a_stream_without_a_start_is_no_run() -> None:
    """The sweeps' own stream is not listed."""
    runs = feed(Runs(), SweepRecorded("t", "", True), run="evsrc/sweep")

    assert runs.rows() == []
    assert runs.row("evsrc/sweep") is None


def test_catching_up_goes_on_where_it_was() -> None:
    """Two catch-ups give the rows of one, and an unknown event stops its own run only."""
    bodies = [encode_events([e]) for e in (STARTED, RunFailed(ERROR))]
    strange = encode_events([STARTED]).replace(b"RunStarted", b"RunDreamed")
    records = [
        Record(1, "r-1", 0, 1, SECOND, b"", bodies[0], b"1"),
        Record(2, "r-2", 0, 1, SECOND, b"", strange, b"2"),
        Record(3, "r-1", 1, 1, SECOND, b"1", bodies[1], b"3"),
    ]
    whole, parts = Runs(), Runs()
    end = catch_up(whole, records)
    first = catch_up(parts, records[:1])
    second = catch_up(parts, records, after=first.position)

    assert whole.rows() == parts.rows()
    assert whole.rows()[0].events == 2
    assert first.position == 1
    assert second.position == end.position == 3
    assert set(end.unreadable) == {"r-2"}
    assert "RunDreamed" in end.unreadable["r-2"]
