"""Semantics 6, people: questions, answers, and what an answer does not prove."""

import pytest

from evsrc.core import runs
from evsrc.core.calls import Done, NeverSent, Refused, Skipped
from evsrc.core.decide import Finish, LookAtTool, Park, RecordIntent, Wait, check_identity
from evsrc.core.events import (
    CallNotSent,
    CallRejected,
    ErrorData,
    IntentReconciled,
    OutcomeUnknown,
    QuestionAnswered,
    QuestionAsked,
    ResultRecorded,
)
from evsrc.core.settle import LATE_S_UNDECLARED
from evsrc.core.verdicts import Absent, Effect, Happened
from evsrc.errors import DivergenceError, KeyReuseError
from evsrc.testing.specification import (
    CALL,
    START_NS,
    Given,
    caps,
    given,
    human,
    intent,
    marked,
    next_action,
)

UNDER_WAY = "a request that is still under way may land"

BLIND = caps(Effect.BLIND, late_s=4.0)


def asked(*, attempts: int = 1) -> Given:
    """A blind call whose outcome is unknown, and a human is asked."""
    events = [
        e
        for n in range(1, attempts + 1)
        for e in (intent(n, at_s=n), OutcomeUnknown(CALL, n, "timeout"))
    ]
    return given(*events).when(next_action(BLIND)).then_is(QuestionAsked, kind="unknown")


def test_an_open_question_parks() -> None:
    """The call neither returns nor raises: nothing is owed until the answer."""
    story = asked()
    (question,) = story.state.open_questions
    story.when(next_action(BLIND)).then(Park(question.question))
    story.when(next_action(BLIND, stopping=True)).then(Park(question.question))


def test_a_question_is_asked_once_and_survives_a_restart() -> None:
    """Its id is derived: the next owner finds the same question and asks no second one."""
    story = asked()
    again = given(*story.events)
    again.when(next_action(BLIND)).then(Park(story.call.question))


def test_a_persons_happened_settles_the_call() -> None:
    """The value that the person gave is the result, for the one attempt that had the effect."""
    story = asked(attempts=2).when(human("happened", value=b"T-1")).goes_on()
    assert story.call.outcome == Done(b"T-1")
    assert [a.status for a in story.call.attempts] == ["done", "unknown"]
    assert story.state.open_questions == []
    story.when(next_action(BLIND)).then(Finish())


def test_a_persons_absent_is_a_complete_look_and_no_more() -> None:
    """A request still under way is not excluded by any look: the resend waits for `late_s`."""
    story = asked(attempts=2).when(human("absent")).goes_on()
    assert [a.closed_by for a in story.call.attempts] == ["human:absent", "human:absent"]
    story.when(next_action(BLIND, waited_s=1.0)).then(Wait(3.0, UNDER_WAY))
    story.when(next_action(BLIND, waited_s=4.0)).then_is(RecordIntent, attempt=3)


def test_an_undeclared_lateness_makes_absent_wait_as_long_as_a_timeout() -> None:
    """Undeclared is the worst value, within reason: the default time-out."""
    story = asked().when(human("absent")).goes_on()
    at = next_action(caps(Effect.BLIND), waited_s=0.0)
    story.when(at).then(Wait(LATE_S_UNDECLARED, UNDER_WAY))


def test_absent_waits_also_where_another_attempt_was_closed_before() -> None:
    """The attempt that the person closed may still land, though a later one was never sent."""
    not_sent = ErrorData("NotSent", "refused")
    story = given(
        intent(1), OutcomeUnknown(CALL, 1, "timeout"), intent(2), CallNotSent(CALL, 2, not_sent)
    )
    told = story.when(next_action(BLIND)).goes_on().when(human("absent")).goes_on()
    told.when(next_action(BLIND, waited_s=1.0)).then_is(Wait, seconds=3.0)
    waited = told.and_then(intent(3), CallNotSent(CALL, 3, not_sent))
    waited.when(next_action(caps(Effect.BLIND, late_s=4.0, attempts=9), waited_s=0.0)).then_is(
        RecordIntent, attempt=4
    )


def test_a_tool_that_can_look_is_looked_at_before_the_resend() -> None:
    """What landed after the person looked is found: done, and reported, instead of sent again."""
    story = given(
        intent(1),
        OutcomeUnknown(CALL, 1, "timeout"),
        IntentReconciled(CALL, 1, "absent", "human:a"),
    )
    story.when(next_action(marked(), waited_s=6.0)).then(Wait(1.0, UNDER_WAY))
    story.when(next_action(marked(), waited_s=7.0)).then(LookAtTool(1))
    found = next_action(marked(), verdict=Happened(b"T-1"), looked_after_s=7.0)
    after = story.when(found).then_is(IntentReconciled, attempt=1, verdict="happened")
    assert after.call.outcome == Done(b"T-1")
    assert after.call.duplicate
    still_absent = next_action(marked(), verdict=Absent(complete=True), looked_after_s=7.0)
    story.when(still_absent).then_is(RecordIntent, attempt=2)
    only_one_attempt = marked(attempts=1)
    story.when(next_action(only_one_attempt, waited_s=1.0)).then_is(Wait)


def test_resend_by_name_does_not_wait() -> None:
    """A person who says resend is told apart from one who only looked; it is good for one attempt."""
    story = asked().when(human("resend", "ada")).goes_on()
    assert story.call.attempts[0].status == "unknown"
    story.when(next_action(BLIND)).then_is(
        RecordIntent, attempt=2, rule="ada said by name that it may be sent again"
    )
    used = story.and_then(intent(2), OutcomeUnknown(CALL, 2, "timeout"))
    used.when(next_action(BLIND)).then_is(QuestionAsked)


def test_resend_by_name_is_beyond_the_budget() -> None:
    """The budget stops the machine, not a person."""
    story = asked(attempts=3).when(human("resend")).goes_on()
    story.when(next_action(BLIND)).then_is(RecordIntent, attempt=4)


def test_skip_records_who_skipped_and_leaves_the_verdict_unknown() -> None:
    """The run goes on; `evsrc unknown` still lists the call."""
    story = asked().when(human("skip", "ada", reason="shift ends")).goes_on()
    assert story.call.outcome == Skipped("human:ada", "shift ends")
    assert story.call.unknown
    story.when(next_action(BLIND)).then(Finish())


def test_absent_closes_what_the_tool_refused_otherwise() -> None:
    """The refusal of another attempt is the outcome, once what was under way cannot land any more."""
    refused = ErrorData("Rejected", "403")
    story = given(
        intent(1), OutcomeUnknown(CALL, 1, "timeout"), intent(2), CallRejected(CALL, 2, refused)
    )
    told = story.when(next_action(BLIND)).goes_on().when(human("absent")).goes_on()
    assert told.call.outcome is None
    told.when(next_action(BLIND, waited_s=1.0)).then_is(Wait, seconds=3.0)
    over = told.when(next_action(BLIND, waited_s=4.0)).then(CallRejected(CALL, 2, refused))
    assert over.call.outcome == Refused(refused)
    over.when(next_action(BLIND)).then(Finish())


def test_an_answer_that_does_not_fit_keeps_the_question_open() -> None:
    """It is an event all the same, with its reason."""
    story = asked()
    misfit = runs.misfit(story.call.question, "ada", "happened", "no ticket number", now_ns=1)
    after = story.and_then(misfit)
    assert len(after.state.open_questions) == 1
    after.when(next_action(BLIND)).then(Park(story.call.question))
    (question,) = after.state.questions.values()
    assert [m.why for m in question.misfits] == ["no ticket number"]


def test_an_answer_before_the_question_is_an_answer() -> None:
    """A person may speak while the tool is still being looked at: nothing is lost."""
    story = given(intent(1), OutcomeUnknown(CALL, 1, "timeout"))
    answered = story.when(human("resend", "ada"))
    answered.then_is(QuestionAsked, kind="unknown", attempt=1)
    after = answered.goes_on()
    assert after.state.open_questions == []
    after.when(next_action(marked())).then_is(RecordIntent, attempt=2)


def test_a_message_is_known_by_its_id() -> None:
    """The id of an answer's message is in the state, so that its second delivery is recognised."""
    story = asked().when(human("skip", message="m-1")).goes_on()
    assert story.state.messages == {"m-1"}


def test_an_answer_to_a_question_that_nobody_asked_changes_nothing() -> None:
    """A stray answer is no settlement."""
    story = asked().and_then(QuestionAnswered("q-other", "eve", "resend"))
    assert story.call.resend_by == ""
    assert len(story.state.open_questions) == 1


def test_H20_the_call_with_no_answer_gets_one_outcome() -> None:
    """The repair is itself an event: a second resume changes nothing, and nothing becomes a failure."""
    story = given(intent(1)).when(next_action(BLIND)).then_is(OutcomeUnknown, cause="crash")
    story = story.when(next_action(BLIND)).then_is(QuestionAsked)
    for _ in range(3):
        story = given(*story.events)
        story.when(next_action(BLIND)).then(Park(story.call.question))
    settled = story.when(human("absent")).goes_on()
    final = CallNotSent(CALL, 1, ErrorData("NotSent", "given up"), final=True)
    assert isinstance(settled.and_then(final).call.outcome, NeverSent)


# ---- identity ------------------------------------------------------------------------------------


def test_the_same_call_is_recognised() -> None:
    """Equal arguments under the same identity are the recorded call; an unknown identity is new."""
    story = given(intent(1))
    story.when(lambda s: check_identity(s.calls.get(CALL), "asked-1", "", ())).then(True)
    given().when(lambda s: check_identity(s.calls.get(CALL), "asked-1", "", ())).then(False)


@pytest.mark.parametrize("ended", [(), (ResultRecorded(CALL, 1, b"T"),)])
def test_other_arguments_under_one_identity_are_a_divergence(
    ended: tuple[ResultRecorded, ...],
) -> None:
    """The error names the recorded call and the fields, whether it is in flight or done."""
    given(intent(1), *ended).when(
        lambda s: check_identity(s.calls.get(CALL), "asked-2", "", ["title", "severity"])
    ).then_raises(DivergenceError, CALL, "open_ticket", "title, severity", "nothing was sent")


def test_an_own_key_used_again_is_a_key_reuse() -> None:
    """A caller's own key stands for one payload, also while the first is in flight."""
    given(intent(1, own_key="K")).when(
        lambda s: check_identity(s.calls.get(CALL), "asked-2", "K", ["amount"])
    ).then_raises(KeyReuseError, "'K'", "amount", "nothing was sent")


@pytest.mark.parametrize(
    "closed",
    [
        CallRejected(CALL, 1, ErrorData("Rejected", "400")),
        CallNotSent(CALL, 1, ErrorData("NotSent", "refused")),
        IntentReconciled(CALL, 1, "absent", "probe"),
    ],
)
def test_a_call_without_effect_pins_no_arguments(
    closed: CallRejected | CallNotSent | IntentReconciled,
) -> None:
    """All attempts closed without effect: the identity may take new arguments."""
    given(intent(1), closed).when(
        lambda s: check_identity(s.calls.get(CALL), "asked-2", "", ["title"])
    ).then(False)


def test_an_unknown_attempt_pins_its_arguments() -> None:
    """One attempt that may have acted is enough to hold the identity, also after a skip."""
    story = given(
        intent(1),
        OutcomeUnknown(CALL, 1, "timeout"),
        IntentReconciled(CALL, 1, "skipped", "policy"),
    )
    story.when(lambda s: check_identity(s.calls.get(CALL), "asked-2", "", ["title"])).then_raises(
        DivergenceError, "title"
    )


def test_a_human_verdict_names_its_time_and_reason() -> None:
    """Who, when and why are in the log, with the answer first in the same record."""
    story = asked().when(human("absent", "ada", reason="looked at the board"))
    story.then(
        QuestionAnswered(
            asked().call.question, "ada", "absent", None, "looked at the board", at_ns=START_NS
        ),
        IntentReconciled(
            CALL, 1, "absent", "human:ada", evidence="looked at the board", at_ns=START_NS
        ),
    )
