"""Semantics 3, per attempt: what is known of one attempt says nothing of another."""

from evsrc.core.calls import Done, NeverSent, Refused, Skipped
from evsrc.core.decide import Append, Finish, LookAtTool, RecordIntent, Wait
from evsrc.core.events import (
    CallAccepted,
    CallNotSent,
    CallRejected,
    ErrorData,
    EvidenceAdded,
    IntentReconciled,
    OutcomeUnknown,
    QuestionAsked,
    ResultRecorded,
)
from evsrc.core.reports import Answered, Doubt, NoByteLeft, RefusedByTool
from evsrc.core.verdicts import Absent, Effect, Happened, InProgress, Undetermined
from evsrc.testing.specification import (
    CALL,
    SECOND_NS,
    START_NS,
    after_send,
    caps,
    given,
    human,
    intent,
    keyed,
    marked,
    next_action,
)

REFUSED = ErrorData("Rejected", "401")
NOT_SENT = ErrorData("NotSent", "connection refused")
LOST = ErrorData("ConnectionError", "reset")


def test_the_intent_comes_first() -> None:
    """A call that was never recorded is recorded before anything is sent."""
    given().when(next_action(marked())).then(RecordIntent(1, "first attempt"))


def test_a_refusal_of_attempt_2_says_nothing_of_attempt_1() -> None:
    """A 401 on the second attempt closes that attempt; the first one stays unknown and is looked for."""
    story = (
        given(intent(1), OutcomeUnknown(CALL, 1, "timeout"), intent(2))
        .when(after_send(2, RefusedByTool(REFUSED), marked()))
        .then(CallRejected(CALL, 2, REFUSED))
    )
    assert story.call.outcome is None
    assert [a.number for a in story.call.open_attempts] == [1]
    story.when(next_action(marked())).then(LookAtTool(1))


def test_a_call_is_refused_only_when_every_attempt_is_closed() -> None:
    """The refusal of attempt 2 becomes the outcome once attempt 1 is proven absent."""
    story = given(
        intent(1), OutcomeUnknown(CALL, 1, "timeout"), intent(2), CallRejected(CALL, 2, REFUSED)
    ).when(next_action(marked(), verdict=Absent(complete=True), looked_after_s=7.0))
    after = story.then_is(IntentReconciled, attempt=1, verdict="absent", by="probe")
    assert after.call.outcome == Refused(REFUSED)


def test_an_effect_of_attempt_1_is_found_though_attempt_2_was_refused() -> None:
    """An effect of attempt 1 makes the call done, whatever attempt 2 was told."""
    story = (
        given(
            intent(1), OutcomeUnknown(CALL, 1, "timeout"), intent(2), CallRejected(CALL, 2, REFUSED)
        )
        .when(next_action(marked(), verdict=Happened(b"T-1")))
        .then_is(IntentReconciled, attempt=1, verdict="happened")
    )
    assert story.call.outcome == Done(b"T-1")


def test_the_first_settlement_of_an_attempt_stands() -> None:
    """A later settlement of a settled attempt changes nothing and is kept as evidence."""
    story = given(
        intent(1),
        ResultRecorded(CALL, 1, b"T-1"),
        IntentReconciled(CALL, 1, "absent", "human:ada"),
        CallRejected(CALL, 1, REFUSED),
        ResultRecorded(CALL, 1, b"T-2"),
    )
    assert story.call.outcome == Done(b"T-1")
    assert len(story.call.evidence) == 3
    assert not story.call.duplicate


def test_an_effect_found_for_a_closed_attempt_is_reported_as_a_duplicate() -> None:
    """Attempt 1 was closed as absent and attempt 2 is done: a late effect of attempt 1 is a duplicate."""
    story = given(
        intent(1),
        OutcomeUnknown(CALL, 1, "timeout"),
        IntentReconciled(CALL, 1, "absent", "human:ada"),
        intent(2),
        ResultRecorded(CALL, 2, b"T-2"),
        IntentReconciled(CALL, 1, "happened", "probe", value=b"T-1"),
    )
    assert story.call.duplicate
    assert story.call.outcome == Done(b"T-2")


def test_a_late_answer_of_a_closed_attempt_ends_the_call() -> None:
    """A person closed an attempt that was still in flight, and it answers: nothing is sent again."""
    story = (
        given(intent(1), IntentReconciled(CALL, 1, "absent", "human:ada"))
        .when(after_send(1, Answered(b"T-1"), marked()))
        .then(ResultRecorded(CALL, 1, b"T-1"))
    )
    assert story.call.duplicate
    assert not story.call.without_effect
    story.when(next_action(marked(late_s=0.0))).then(Finish())


def test_a_late_doubt_of_a_settled_attempt_is_only_evidence() -> None:
    """What the send of a settled attempt reports without an effect is kept as evidence."""
    given(intent(1), ResultRecorded(CALL, 1, b"T-1")).when(
        after_send(1, Doubt("cancelled"), marked())
    ).then(EvidenceAdded(CALL, 1, "late answer", "Doubt"))


def test_no_attempt_follows_while_one_is_in_flight() -> None:
    """While an attempt's task or thread is alive nothing is decided about a further one."""
    story = given(intent(1), OutcomeUnknown(CALL, 1, "cancelled"))
    story.when(next_action(keyed(), in_flight=True)).then_is(Wait, seconds=None)
    story.when(next_action(keyed())).then_is(RecordIntent, attempt=2)


def test_unknown_is_never_mapped_to_failure() -> None:
    """A doubt of any cause leaves the attempt unknown and the call without an outcome."""
    for cause in ("timeout", "cancelled", "error", "already-there"):
        story = (
            given(intent(1))
            .when(after_send(1, Doubt(cause, LOST), marked()))
            .then(OutcomeUnknown(CALL, 1, cause, LOST, START_NS))
        )
        assert story.call.unknown
        assert story.call.outcome is None


def test_a_crash_leaves_an_unknown_outcome_and_then_a_look() -> None:
    """An intent without an answer, met by the next owner, is recorded as unknown before the look."""
    crash = OutcomeUnknown(CALL, 1, "crash", at_ns=START_NS + 9 * SECOND_NS)
    story = given(intent(1)).when(next_action(marked(), now_s=9)).then(crash)
    story.when(next_action(marked())).then(LookAtTool(1))


def test_already_there_means_unknown_and_probe_now() -> None:
    """`AlreadyThere` is no answer: the tool is probed at once, also inside a key's window."""
    tool = keyed(can_probe=True)
    story = given(intent(1)).when(after_send(1, Doubt("already-there"), tool)).goes_on()
    story.when(next_action(tool)).then(LookAtTool(1, 0.0))


def test_not_sent_may_be_sent_again_with_the_next_number() -> None:
    """After `NotSent` the next attempt is owed, under the same key, after a pause."""
    story = given(intent(1)).when(after_send(1, NoByteLeft(NOT_SENT), marked())).goes_on()
    assert story.call.attempts[0].closed_by == "not-sent"
    story.when(next_action(marked())).then_is(Wait)
    story.when(next_action(marked(), now_s=1)).then_is(RecordIntent, attempt=2)


def test_throttled_waits_as_long_as_the_tool_asked() -> None:
    """`Throttled` is not sent, with a time: nothing is sent before it."""
    report = NoByteLeft(ErrorData("Throttled", "429"), retry_after_s=20.0)
    story = given(intent(1)).when(after_send(1, report, marked())).goes_on()
    story.when(next_action(marked(), now_s=5)).then(Wait(15.0, "before the next attempt"))
    story.when(next_action(marked(), now_s=20)).then_is(RecordIntent, attempt=2)


def test_a_clock_set_back_does_not_postpone_a_retry_for_hours() -> None:
    """The owner's own clock ends the wait, wherever the wall clock went."""
    report = NoByteLeft(ErrorData("Throttled", "429"), retry_after_s=20.0)
    story = given(intent(1)).when(after_send(1, report, marked())).goes_on()
    back = {"now_s": -100_000.0}
    story.when(next_action(marked(), **back, waited_s=0.0)).then_is(Wait, seconds=20.0)
    story.when(next_action(marked(), **back, waited_s=15.0)).then_is(Wait, seconds=5.0)
    story.when(next_action(marked(), **back, waited_s=20.0)).then_is(RecordIntent, attempt=2)


def test_a_long_throttle_is_waited_for_in_pieces() -> None:
    """The tool asked for two minutes: nothing is sent before, and the time is looked at again."""
    report = NoByteLeft(ErrorData("Throttled", "429"), retry_after_s=120.0)
    story = given(intent(1)).when(after_send(1, report, marked())).goes_on()
    story.when(next_action(marked(), now_s=0)).then_is(Wait, seconds=30.0)
    story.when(next_action(marked(), now_s=119, waited_s=119.0)).then_is(Wait, seconds=1.0)
    story.when(next_action(marked(), now_s=120, waited_s=120.0)).then_is(RecordIntent)


def test_attempts_are_counted_at_the_intent() -> None:
    """A call that keeps killing the process exhausts its budget, and then a human is asked."""
    tool = keyed(attempts=3, window_s=10_000.0)
    story = given()
    for number in (1, 2, 3):
        story = story.and_then(intent(number, at_s=number))
        story = story.when(next_action(tool, now_s=number)).then_is(OutcomeUnknown, cause="crash")
    asked = story.when(next_action(tool, now_s=4)).then_is(QuestionAsked, kind="unknown")
    assert "all 3 attempts are used" in asked.state.open_questions[0].text


def test_a_budget_spent_without_sending_ends_the_call() -> None:
    """When the last attempt was not sent either, the caller is told, and every replay says the same."""
    tool = marked(attempts=2)
    closed = CallNotSent(CALL, 1, NOT_SENT)
    story = given(intent(1), closed, intent(2)).when(after_send(2, NoByteLeft(NOT_SENT), tool))
    after = story.then(CallNotSent(CALL, 2, NOT_SENT, final=True))
    assert after.call.outcome == NeverSent(NOT_SENT)
    after.when(next_action(tool)).then(Finish())


def test_a_used_up_budget_is_recorded_by_whoever_meets_it() -> None:
    """A crash between the last absence and its consequence does not buy a further attempt."""
    story = given(intent(1), OutcomeUnknown(CALL, 1, "crash"), _absent(1)).when(
        next_action(marked(attempts=1))
    )
    after = story.then_is(CallNotSent, attempt=1, final=True)
    assert isinstance(after.call.outcome, NeverSent)


def test_the_budget_does_not_close_an_attempt_that_is_still_unknown() -> None:
    """The last attempt was not sent, an earlier one is unknown: the call is not over."""
    story = (
        given(intent(1), OutcomeUnknown(CALL, 1, "crash"), intent(2))
        .when(after_send(2, NoByteLeft(NOT_SENT), marked(attempts=2)))
        .then_is(CallNotSent, final=False)
    )
    assert story.call.outcome is None


def test_an_unrecordable_result_settles_the_call_and_says_why() -> None:
    """A result that cannot be recorded is done all the same: its digest, type and reason are kept."""
    report = Answered(None, "result of 9 MB, at most 0.5 MB", "ab12", "Report")
    story = (
        given(intent(1))
        .when(after_send(1, report, marked()))
        .then(ResultRecorded(CALL, 1, None, report.why, "ab12", "Report"))
    )
    assert story.call.outcome == Done(None, report.why)
    story.when(next_action(marked())).then(Finish())


def test_what_was_accepted_is_not_done() -> None:
    """An asynchronous tool's answer is a receipt: done only when its probe says so."""
    tool = marked(asynchronous=True)
    story = given(intent(1)).when(after_send(1, Answered(b"job-7"), tool)).goes_on()
    assert story.events[-1] == CallAccepted(CALL, 1, b"job-7")
    assert story.call.outcome is None
    story.when(next_action(tool)).then(LookAtTool(1))
    done = story.when(next_action(tool, verdict=Happened(b"done"))).goes_on()
    assert done.call.outcome == Done(b"done")


def test_a_receipt_that_cannot_be_recorded_is_still_no_result() -> None:
    """An asynchronous tool whose receipt is unusable has accepted, not done."""
    tool = marked(asynchronous=True)
    given(intent(1)).when(after_send(1, Answered(None, "too large"), tool)).then(
        CallAccepted(CALL, 1, b"")
    )


def test_what_was_accepted_is_never_sent_again_meanwhile() -> None:
    """Neither a window, nor an absence beyond the horizon, nor a policy sends an accepted call again."""
    tools = [
        keyed(asynchronous=True),
        marked(asynchronous=True),
        marked(asynchronous=True, on_unknown="resend"),
        caps(Effect.NAMED, asynchronous=True, can_probe=True),
        caps(Effect.STATE, asynchronous=True, can_probe=True, fence=True, resend_safe=True),
    ]
    for tool in tools:
        for verdict in (Absent(complete=True), Undetermined("busy")):
            story = given(intent(1), CallAccepted(CALL, 1, b"job-7"))
            at = next_action(tool, verdict=verdict, looked_after_s=100.0, looks=50)
            story.when(at).then_is(QuestionAsked, kind="unknown")


def test_what_was_accepted_and_is_in_progress_is_waited_for() -> None:
    """The tool says that it is at it: that is an answer, however often, and no question for a person."""
    tool = marked(asynchronous=True)
    story = given(intent(1), CallAccepted(CALL, 1, b"job-7"))
    at = next_action(tool, verdict=InProgress(1.0), looked_after_s=1e5, looks=5_000)
    story.when(at).then(LookAtTool(1, 10.0))
    slower = next_action(tool, verdict=InProgress(60.0), looked_after_s=1e5, looks=5_000)
    story.when(slower).then(LookAtTool(1, 60.0))
    lost = given(intent(1), OutcomeUnknown(CALL, 1, "timeout"))
    lost.when(at).then_is(QuestionAsked, kind="unknown")


def test_a_crash_leaves_an_accepted_call_accepted() -> None:
    """The tool has it: the next owner looks, and records no unknown outcome."""
    tool = marked(asynchronous=True)
    given(intent(1), CallAccepted(CALL, 1, b"j")).when(next_action(tool)).then(LookAtTool(1))


def test_a_person_may_send_an_accepted_call_again_by_name() -> None:
    """The word of a person is stronger than a receipt."""
    tool = marked(asynchronous=True)
    story = given(intent(1), CallAccepted(CALL, 1, b"j"))
    asked = story.when(
        next_action(tool, verdict=Undetermined(), looked_after_s=9.0, looks=50)
    ).goes_on()
    told = asked.when(human("resend")).goes_on()
    told.when(next_action(tool)).then_is(RecordIntent, attempt=2)


def test_an_identity_without_effect_may_take_new_arguments() -> None:
    """All attempts closed without effect: the call is sent with the new arguments, budget and all."""
    tool = marked(attempts=1)
    story = given(intent(1), CallRejected(CALL, 1, REFUSED))
    story.when(next_action(tool, asked_digest="asked-1")).then(Finish())
    story.when(next_action(tool, asked_digest="asked-2")).then_is(RecordIntent, attempt=2)
    renewed = story.and_then(intent(2, asked="asked-2"))
    assert renewed.call.outcome is None
    assert renewed.call.intent.asked_digest == "asked-2"
    closed = renewed.when(after_send(2, NoByteLeft(NOT_SENT), marked(attempts=2))).goes_on()
    closed.when(next_action(marked(attempts=2), now_s=9)).then_is(RecordIntent, attempt=3)


def test_new_arguments_need_the_code_that_asks_for_them() -> None:
    """A call whose code was stopped is not sent, whatever it may take."""
    story = given(intent(1), CallRejected(CALL, 1, REFUSED))
    story.when(next_action(marked(), asked_digest="asked-2", stopping=True)).then(Finish())


def test_a_stopped_run_sends_nothing_new() -> None:
    """What is out is settled after a cancel; nothing is sent for the first time or again."""
    given().when(next_action(marked(), stopping=True)).then(Finish())
    given(intent(1), CallNotSent(CALL, 1, NOT_SENT)).when(
        next_action(marked(), stopping=True)
    ).then(Finish())
    unknown = given(intent(1), OutcomeUnknown(CALL, 1, "cancelled"))
    unknown.when(next_action(marked(), stopping=True)).then(LookAtTool(1))
    unknown.when(next_action(keyed(), stopping=True)).then(Finish())


def test_a_call_that_is_too_old_is_not_sent() -> None:
    """Older than `not_after`: the intent is recorded as not sent, first attempt or later one."""
    not_after_ns = START_NS + 10 * SECOND_NS
    fresh = next_action(marked(), now_s=10, not_after_ns=not_after_ns)
    stale = next_action(marked(), now_s=11, not_after_ns=not_after_ns)
    given().when(fresh).then_is(RecordIntent, attempt=1, stale=False)
    given().when(stale).then_is(RecordIntent, attempt=1, stale=True)
    given(intent(1), CallNotSent(CALL, 1, NOT_SENT)).when(stale).then_is(
        RecordIntent, attempt=2, stale=True
    )


def test_a_call_that_is_too_old_is_not_resent_either() -> None:
    """An unknown outcome is no licence: beyond `not_after` a human is asked, whatever the policy."""
    old = START_NS + 10 * SECOND_NS
    unknown = given(intent(1), OutcomeUnknown(CALL, 1, "timeout"))
    for tool in (keyed(), caps(Effect.BLIND, on_unknown="resend")):
        unknown.when(next_action(tool, now_s=11, not_after_ns=old)).then_is(QuestionAsked)


def test_a_later_act_on_a_target_waits_for_the_earlier_one() -> None:
    """No intent on a target is recorded while an earlier one is unsettled."""
    given().when(next_action(marked(), target_busy=True)).then_is(Wait, seconds=None)
    given(intent(1), CallNotSent(CALL, 1, NOT_SENT)).when(
        next_action(marked(), target_busy=True)
    ).then_is(Wait, seconds=None)


def test_a_skipped_call_may_still_learn_what_happened() -> None:
    """After a skip one look is owed; what it finds is kept, the caller's answer stays."""
    story = given(
        intent(1),
        OutcomeUnknown(CALL, 1, "timeout"),
        IntentReconciled(CALL, 1, "skipped", "human:ada", why="enough"),
    )
    story.when(next_action(marked())).then(LookAtTool(1))
    story.when(next_action(marked(), verdict=Absent())).then(Finish())
    story.when(next_action(marked(), verdict=Happened(b"T", whose="theirs"))).then(Finish())
    found = story.when(next_action(marked(), verdict=Happened(b"T-1"))).goes_on()
    assert found.call.outcome == Skipped("human:ada", "enough")
    assert found.call.evidence == ["after the skip: Done"]
    found.when(next_action(marked())).then(Finish())


def test_events_of_an_intent_that_is_missing_change_nothing() -> None:
    """A gap may have swallowed the intent: the fold goes on without inventing a call."""
    story = given(ResultRecorded(CALL, 1, b"T-1"), OutcomeUnknown(CALL, 2, "crash"))
    assert story.state.calls == {}


def test_every_open_attempt_of_a_crash_is_recorded_at_once() -> None:
    """One record closes the crash of all attempts that were out."""
    story = given(intent(1), intent(2)).when(next_action(marked()))
    assert isinstance(story.answer, Append)
    assert [e.attempt for e in story.answer.events if isinstance(e, OutcomeUnknown)] == [1, 2]


def _absent(attempt: int) -> IntentReconciled:
    return IntentReconciled(CALL, attempt, "absent", "probe")
