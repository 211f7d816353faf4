"""Semantics 6, runs: one id stands for one workflow and one input, and what a terminal event ends."""

from collections.abc import Callable

from evsrc.core import runs
from evsrc.core.events import (
    CancelRequested,
    ErrorData,
    Event,
    IntentReconciled,
    OutcomeUnknown,
    QuestionAnswered,
    QuestionAsked,
    ResultRecorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunReopened,
    RunStarted,
    SignalReceived,
    SweepRecorded,
)
from evsrc.core.state import RunState
from evsrc.errors import InputMismatch
from evsrc.testing.specification import CALL, given, intent

STARTED = RunStarted("enrich", "1", b"input", "digest-1", "incarnation-1")
ERROR = ErrorData("ValueError", "bad")


def start(event: RunStarted) -> Callable[[RunState], tuple[Event, ...]]:
    """The command: start this run."""
    return lambda state: runs.start(state, event)


def test_a_new_run_starts() -> None:
    """Its start is one event, with workflow and input."""
    assert given().when(start(STARTED)).then(STARTED).state.status == "running"


def test_an_existing_run_is_joined() -> None:
    """The same id, workflow and input again, also of another incarnation: nothing is appended."""
    again = RunStarted("enrich", "2", b"input", "digest-1", "incarnation-2")
    given(STARTED).when(start(again)).then()
    given(STARTED, RunCompleted(b"out")).when(start(again)).then()


def test_another_input_under_a_known_id_is_a_mismatch() -> None:
    """Nothing is started, while the run goes on or after it ended."""
    other = RunStarted("enrich", "1", b"other", "digest-2")
    for story in (given(STARTED), given(STARTED, RunCompleted())):
        story.when(start(other)).then_raises(InputMismatch, "'run-1'", "nothing was started")


def test_another_workflow_under_a_known_id_is_a_mismatch() -> None:
    """The error names both workflows."""
    other = RunStarted("contain", "1", b"input", "digest-1")
    given(STARTED).when(start(other)).then_raises(InputMismatch, "'enrich'", "'contain'")


def test_the_first_start_stands() -> None:
    """A second start in the log (two writers of a lost race) does not change what was started."""
    story = given(STARTED, RunStarted("enrich", "1", b"other", "digest-2"))
    assert story.state.started == STARTED


def test_a_terminal_event_lists_the_open_calls() -> None:
    """The workflow ends, its calls do not: who was skipped is still unknown and listed."""
    open_ = (
        intent(1),
        OutcomeUnknown(CALL, 1, "timeout"),
        IntentReconciled(CALL, 1, "skipped", "policy"),
    )
    given(STARTED, *open_).when(lambda s: runs.complete(s, b"out")).then(
        RunCompleted(b"out", (CALL,))
    )
    given(STARTED, *open_).when(lambda s: runs.fail(s, ERROR)).then(RunFailed(ERROR, (CALL,)))
    given(STARTED, *open_).when(runs.cancel).then(RunCancelled((CALL,)))
    settled = (intent(1), ResultRecorded(CALL, 1, b"T"))
    given(STARTED, *settled).when(runs.open_calls).then()


def test_calls_are_settled_after_the_end() -> None:
    """A verdict after the terminal event settles the call; the run stays what it is."""
    story = given(
        STARTED,
        intent(1),
        OutcomeUnknown(CALL, 1, "timeout"),
        RunFailed(ERROR, (CALL,)),
        IntentReconciled(CALL, 1, "happened", "probe"),
    )
    assert story.state.status == "failed"
    assert story.state.ended
    assert runs.open_calls(story.state) == ()


def test_a_run_is_what_its_last_run_event_says() -> None:
    """Completed, failed, cancelled; reopening is an event of its own."""
    assert given(STARTED, RunCompleted(b"out")).state.output == b"out"
    assert given(STARTED, RunFailed(ERROR)).state.error == ERROR
    cancelled = given(STARTED, CancelRequested("ada"), RunCancelled())
    assert cancelled.state.status == "cancelled"
    assert cancelled.state.cancel == CancelRequested("ada")
    reopened = given(STARTED, RunFailed(ERROR), RunReopened("ada")).state
    assert (reopened.status, reopened.error) == ("running", None)


def test_a_question_about_a_node_is_kept() -> None:
    """The answer names who, and the digest that it was said of."""
    question = QuestionAsked("q-1", "pinned", "ticket", "keep?", digest="d-1")
    story = given(STARTED, question)
    answered = story.when(
        lambda s: runs.answer_pinned(question, "keep", "ada", message="m-1", now_ns=7)
    ).then(QuestionAnswered("q-1", "ada", "keep", message="m-1", at_ns=7))
    assert answered.state.kept == {"ticket": "d-1"}
    assert answered.state.open_questions == []
    assert answered.state.messages == {"m-1"}


def test_a_misfit_keeps_the_question_open() -> None:
    """It is an event, and its message is known, so that it is not delivered again."""
    question = QuestionAsked("q-1", "pinned", "ticket", "keep?")
    after = (
        given(STARTED, question)
        .when(lambda s: runs.misfit("q-1", "eve", "absent", "no call", message="m-2", now_ns=7))
        .then_is(QuestionAnswered, fits=False, why="no call")
    )
    assert after.state.open_questions == [question]
    assert after.state.messages == {"m-2"}


def test_messages_and_orphans_are_remembered() -> None:
    """The ids of signals, and markers that no intent explains, are part of the state."""
    state = given(
        SignalReceived("approve", b"", "m-3"), SweepRecorded("t", "", True, orphans=("evsrc-a",))
    ).state
    assert state.messages == {"m-3"}
    assert state.orphans == {"evsrc-a"}
