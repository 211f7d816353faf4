"""What happened in a run, in lines."""

import pytest

from evsrc.core.events import (
    CallAccepted,
    CallNotSent,
    CallRejected,
    CancelRequested,
    ErrorData,
    Event,
    EvidenceAdded,
    IntentReconciled,
    NodeFailed,
    NodeStarted,
    OutcomeUnknown,
    QuestionAnswered,
    QuestionAsked,
    ResultRecorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunReopened,
    SignalReceived,
    StepRecorded,
    WaitAbandoned,
)
from evsrc.projections.timeline import Line, Timeline
from tests.projections.given import ERROR, SECOND, STARTED, feed, intent, output

IN_N = ("n",)


def lines(*events: Event) -> list[Line]:
    return feed(Timeline("r-1"), STARTED, *events).lines


def last(*events: Event) -> Line:
    return lines(*events)[-1]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (intent(scope=("n", "item:a")), "page #0 in n/item:a: intent, attempt 1"),
        (StepRecorded((), "ask", "d", value=b"\xc0"), "read ask in (run): recorded"),
        (StepRecorded((), "ask", "d", error=ERROR), "Rejected: no"),
        (StepRecorded((), "ask", "d", abandoned=True, waited_s=2.0), "given up after 2.000 s"),
        (WaitAbandoned("c1", 1.5, (), "page"), "the caller of page gave up after 1.500 s"),
        (NodeStarted("n", "k", 2, "a"), "node n[a] started, attempt 2"),
        (output(source_run="r-0"), "node n reused from run r-0"),
        (NodeFailed("n", "k", 1, ERROR, retry_at_ns=5), "attempt 1, to be tried again"),
        (NodeFailed("n", "k", 1, ERROR), "no further attempt: Rejected: no"),
        (QuestionAsked("q", "pinned", "n", "Keep?"), "question (pinned) about n: Keep?"),
        (RunCompleted(open_calls=("c1",)), "run completed, 1 call(s) of unknown outcome"),
        (RunFailed(ERROR), "run failed: Rejected: no"),
        (CancelRequested("Ann", "enough"), "cancel requested by Ann: enough"),
        (RunCancelled(), "run cancelled"),
        (RunReopened("Ann"), "reopened by Ann"),
        (SignalReceived("go", b""), "SignalReceived"),
        (ResultRecorded("c9", 1), "c9: done (attempt 1)"),
    ],
)
def test_a_line_says_what_its_event_says(event: Event, words: str) -> None:
    """Each kind of event has its words, without a mark."""
    line = last(event)

    assert words in line.text
    assert line.marks == ()
    assert (line.position, line.time_ns) == (2, 2 * SECOND)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (CallAccepted("c1", 1), "accepted, not yet done (attempt 1)"),
        (ResultRecorded("c1", 1, why="too large"), "result not recorded: too large"),
        (CallRejected("c1", 1, ERROR), "refused (attempt 1): no"),
        (CallNotSent("c1", 1, ERROR, final=True), "not sent (attempt 1), no further attempt: no"),
        (OutcomeUnknown("c1", 1, "error", ErrorData("OSError", "reset")), "error, OSError: reset"),
        (IntentReconciled("c1", 1, "absent", "probe", evidence="none"), "absent says probe"),
        (
            IntentReconciled("c1", 1, "happened", "probe", whose="theirs", gone=True),
            "(attempt 1, theirs, gone since)",
        ),
        (EvidenceAdded("c1", 1, "sweep", "seen"), "sweep about attempt 1: seen"),
    ],
)
def test_a_call_is_named_by_its_tool_and_place(event: Event, words: str) -> None:
    """Lines about a call name it in words, and its id as their subject."""
    line = last(intent(scope=IN_N), event)

    assert line.text.startswith("page in n: ")
    assert words in line.text
    assert line.subject == "c1"


def test_evidence_after_the_settlement_is_late() -> None:
    """A second outcome of a settled attempt is marked, the first is not."""
    first, second = lines(intent(), ResultRecorded("c1", 1), OutcomeUnknown("c1", 1, "crash"))[-2:]

    assert first.marks == ()
    assert second.marks == ("late",)


def test_an_effect_of_a_closed_attempt_is_a_duplicate() -> None:
    """The effect that shows after "absent" is late and a duplicate; so is what evidence calls one."""
    absent = IntentReconciled("c1", 1, "absent", "probe")
    assert last(intent(), absent, ResultRecorded("c1", 1)).marks == ("late", "duplicate")
    evidence = EvidenceAdded("c1", 1, "sweep", "two", duplicate=True)
    assert last(intent(), evidence).marks == ("duplicate",)


def test_a_used_up_budget_is_not_late() -> None:
    """The final "not sent" repeats a closed attempt to say that no further one follows."""
    closed = CallNotSent("c1", 1, ERROR)
    assert last(intent(), closed, CallNotSent("c1", 1, ERROR, final=True)).marks == ()


def test_keeping_an_act_is_marked_as_resting_on_older_evidence() -> None:
    """ "keep" is marked with who said it; an answer that does not fit is marked as that."""
    asked = QuestionAsked("q", "pinned", "n", "Keep?")
    line = last(asked, QuestionAnswered("q", "Ann", "keep", reason="fine"))
    assert line.marks == ("older evidence",)
    assert line.text == "Ann answered keep: fine"
    assert last(asked, QuestionAnswered("q", "Ann", "skip", fits=False, why="no")).marks == (
        "does not fit",
    )


def test_a_skip_names_who_skipped() -> None:
    """Going on without knowing is marked, with the name."""
    line = last(intent(), IntentReconciled("c1", 1, "skipped", "human:Ann", why="late"))

    assert line.marks == ("skipped",)
    assert "human:Ann" in line.text


def test_an_effect_of_an_earlier_attempt_is_flagged_at_the_output() -> None:
    """Acted in attempt 1, output from attempt 2: the log does not say who asked."""
    acted = [NodeStarted("n", "k"), intent(scope=IN_N), ResultRecorded("c1", 1)]
    failed = NodeFailed("n", "k", 1, ERROR, retry_at_ns=1)
    line = last(*acted, failed, NodeStarted("n", "k", 2), output(attempt=2))

    assert line.marks == ("earlier attempt",)
    assert line.subject == "c1"


@pytest.mark.parametrize(
    "between",
    [
        (),
        (CallRejected("c1", 1, ERROR), NodeStarted("n", "k", 2)),
        (NodeStarted("n", "k", 2), OutcomeUnknown("c1", 1, "crash"), intent(attempt=2, scope=IN_N)),
    ],
)
def test_other_effects_are_not_flagged(between: tuple[Event, ...]) -> None:
    """Not an effect of the same attempt, nor one that never was, nor one that was sent again."""
    assert last(NodeStarted("n", "k"), intent(scope=IN_N), *between, output()).marks == ()


def test_an_act_without_an_output_is_flagged_at_the_end() -> None:
    """A node that acted and gave no output is named when the run ends; one with an output is not."""
    acted = [NodeStarted("n", "k"), intent(scope=IN_N), ResultRecorded("c1", 1)]
    assert last(*acted, RunFailed(ERROR)).marks == ("no output",)
    assert last(*acted, output(), RunFailed(ERROR)).marks == ()


def test_other_runs_are_passed_over() -> None:
    """A timeline is of one run."""
    timeline = feed(Timeline("r-1"), STARTED, run="r-2")

    assert timeline.lines == []
