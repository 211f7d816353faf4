"""Semantics 4: what a look at the tool allows, by what the tool declares."""

import pytest

from evsrc.core.calls import Done, Skipped
from evsrc.core.decide import Append, LookAtTool, RecordIntent, explain
from evsrc.core.events import IntentReconciled, OutcomeUnknown, QuestionAsked
from evsrc.core.settle import Look
from evsrc.core.verdicts import (
    Absent,
    AnyVerdict,
    Capabilities,
    Conflict,
    Effect,
    Happened,
    InProgress,
    Undetermined,
)
from evsrc.testing.specification import (
    CALL,
    START_NS,
    Given,
    caps,
    given,
    intent,
    keyed,
    marked,
    next_action,
)

COMPLETE = Absent(complete=True)
BEYOND = {"looked_after_s": 7.0}
"""A look begun when lag and lateness of `marked()` have passed."""

EVERY_TOOL = [
    marked(),
    keyed(can_probe=True),
    caps(Effect.NAMED, can_probe=True),
    caps(Effect.STATE, can_probe=True, fence=True, resend_safe=True),
    caps(Effect.BLIND, can_probe=True),
    marked(on_unknown="resend"),
    marked(on_unknown="skip"),
]


def unknown(*, attempts: int = 1) -> Given:
    """A call of which so many attempts are out and unknown."""
    events = [
        e
        for n in range(1, attempts + 1)
        for e in (intent(n, at_s=n - 1), OutcomeUnknown(CALL, n, "timeout"))
    ]
    return given(*events)


def question_of(story: Given) -> str:
    """The text of the one open question."""
    (asked,) = story.state.open_questions
    return asked.text


# ---- every tool ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", EVERY_TOOL)
def test_a_conflict_always_asks(tool: Capabilities) -> None:
    """More than one match is for a human, whatever the policy or the window say."""
    story = unknown().when(next_action(tool, verdict=Conflict("two tickets"))).goes_on()
    assert story.state.open_questions[0].kind == "conflict"
    assert "two tickets" in question_of(story)


@pytest.mark.parametrize("tool", EVERY_TOOL)
def test_an_effect_that_is_gone_is_done_and_never_resent(tool: Capabilities) -> None:
    """It was there and ended since: done."""
    gone = Happened(b"T-1", gone=True)
    story = unknown().when(next_action(tool, verdict=gone))
    after = story.then_is(IntentReconciled, verdict="happened", gone=True)
    assert after.call.outcome == Done(b"T-1")


@pytest.mark.parametrize("tool", [t for t in EVERY_TOOL if t.effect is not Effect.STATE])
def test_an_object_of_somebody_else_is_a_conflict(tool: Capabilities) -> None:
    """Ours is asked for; theirs under our name is for a human."""
    story = unknown().when(next_action(tool, verdict=Happened(b"T", whose="theirs")))
    story.then_is(QuestionAsked, kind="conflict")


@pytest.mark.parametrize("tool", EVERY_TOOL)
def test_a_tool_that_can_look_is_looked_at_before_anything_else(tool: Capabilities) -> None:
    """An unknown outcome leads to a look first, also where a resend would be allowed."""
    unknown().when(next_action(tool)).then(LookAtTool(1))


def test_in_progress_is_looked_at_again_when_the_tool_says() -> None:
    """The tool is at it: the next look comes after its own pause, and nothing is sent."""
    unknown().when(next_action(marked(), verdict=InProgress(4.0))).then(LookAtTool(1, 4.0))


def test_pauses_between_looks_double_and_are_bounded() -> None:
    """A tool that cannot tell is not hammered."""
    pauses: list[float] = []
    for looks in range(1, 9):
        at = next_action(
            marked(lag_s=600.0), verdict=Undetermined(), looked_after_s=looks, looks=looks
        )
        answer = unknown().when(at).answer
        assert isinstance(answer, LookAtTool)
        pauses.append(answer.pause_s)
    assert pauses == sorted(pauses)
    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert pauses[-1] == 10.0


def test_a_day_of_lag_is_looked_through() -> None:
    """Thousands of looks later the pause is what it was."""
    at = next_action(marked(lag_s=86_400.0), verdict=COMPLETE, looked_after_s=9e3, looks=5_000)
    unknown().when(at).then(LookAtTool(1, 10.0))


def test_looking_ends_with_a_question() -> None:
    """A tool that never tells is asked a bounded number of times beyond the horizon, then a human is."""
    at = next_action(marked(), verdict=Undetermined("down"), looked_after_s=7.0, looks=8)
    unknown().when(at).then_is(QuestionAsked, kind="unknown")


def test_a_look_begun_beyond_the_horizon_is_always_owed() -> None:
    """However many looks came before, none begun within the horizon is the last one."""
    at = next_action(marked(), verdict=COMPLETE, looked_after_s=6.9, waited_s=30.0, looks=50)
    unknown().when(at).then_is(LookAtTool)


# ---- MARKED --------------------------------------------------------------------------------------


def test_marked_adopts_what_it_finds() -> None:
    """The marker is there: the call is done with what the probe saw."""
    story = unknown().when(next_action(marked(), verdict=Happened(b"T-1")))
    after = story.then_is(IntentReconciled, verdict="happened", by="probe", whose="ours")
    assert after.call.outcome == Done(b"T-1")


def test_marked_waits_for_lag_and_lateness() -> None:
    """Within the horizon an absence says nothing: look again, at the latest when it has passed."""
    at = next_action(marked(), verdict=COMPLETE, looked_after_s=6.95)
    answer = unknown().when(at).answer
    assert isinstance(answer, LookAtTool)
    assert answer.pause_s == pytest.approx(0.05)
    story = unknown().when(next_action(marked(), verdict=COMPLETE, looked_after_s=7.0))
    story.then_is(IntentReconciled, verdict="absent", by="probe")


def test_absence_closes_every_attempt_and_the_next_one_is_owed() -> None:
    """A proven absence covers all attempts that were out; then the call may be sent again."""
    story = unknown(attempts=2).when(next_action(marked(), verdict=COMPLETE, **BEYOND))
    assert isinstance(story.answer, Append)
    assert [(e.attempt, e.verdict) for e in story.answer.events if hasattr(e, "verdict")] == [
        (1, "absent"),
        (2, "absent"),
    ]
    story.goes_on().when(next_action(marked())).then_is(RecordIntent, attempt=3)


@pytest.mark.parametrize("name", ["lag_s", "late_s"])
def test_an_undeclared_lag_or_lateness_forbids_the_resend(name: str) -> None:
    """Without a figure no wait is long enough: a human is asked, and told what is missing."""
    tool = marked(**{name: None})
    story = unknown().when(next_action(tool, verdict=COMPLETE, looked_after_s=1e6, looks=50))
    assert name in question_of(story.then_is(QuestionAsked, kind="unknown"))


def test_a_missing_history_forbids_the_resend() -> None:
    """An effect that was undone since would look absent: undetermined, a human is asked."""
    tool = marked(history=False)
    story = unknown().when(next_action(tool, verdict=COMPLETE, **BEYOND))
    assert "history" in question_of(story.then_is(QuestionAsked, kind="unknown"))


def test_a_missing_history_still_lets_a_lagging_effect_show_up() -> None:
    """Within the horizon the tool is looked at again: what appears spares the human a question."""
    tool = marked(history=False)
    unknown().when(next_action(tool, verdict=COMPLETE, looked_after_s=1.0)).then_is(LookAtTool)


def test_an_incomplete_look_forbids_the_resend() -> None:
    """A look that did not cover every place proves nothing, however late it was."""
    cut_short = Absent(complete=False)
    unknown().when(next_action(marked(), verdict=cut_short, **BEYOND)).then_is(LookAtTool)
    story = unknown().when(next_action(marked(), verdict=cut_short, **BEYOND, looks=8))
    assert "Absent(complete=True)" in question_of(story.then_is(QuestionAsked, kind="unknown"))


# ---- KEYED ---------------------------------------------------------------------------------------


def test_keyed_inside_the_window_sends_the_same_again() -> None:
    """The tool drops a second request under the same key: no look is needed."""
    unknown().when(next_action(keyed(), now_s=80)).then_is(RecordIntent, attempt=2)


def test_the_window_keeps_a_reserve_of_timeout_and_lateness() -> None:
    """A request sent at the last moment must still arrive inside: 100 - (10 + 5) seconds."""
    unknown().when(next_action(keyed(), now_s=84.9)).then_is(RecordIntent, attempt=2)
    unknown().when(next_action(keyed(), now_s=85)).then_is(QuestionAsked)


def test_the_window_is_measured_from_the_first_attempt() -> None:
    """Further attempts do not open the window again."""
    story = given(
        intent(1, at_s=0),
        OutcomeUnknown(CALL, 1, "timeout"),
        intent(2, at_s=80),
        OutcomeUnknown(CALL, 2, "timeout"),
    )
    story.when(next_action(keyed(), now_s=86)).then_is(QuestionAsked)


def test_a_clock_that_went_backwards_closes_the_window() -> None:
    """Doubt about time forbids the resend: before the first intent, or before the newest one."""
    unknown().when(next_action(keyed(), now_s=-1)).then_is(QuestionAsked)
    story = given(
        intent(1, at_s=0),
        OutcomeUnknown(CALL, 1, "timeout"),
        intent(2, at_s=50),
        OutcomeUnknown(CALL, 2, "timeout"),
    )
    story.when(next_action(keyed(), now_s=20)).then_is(QuestionAsked)


def test_an_undeclared_window_or_lateness_counts_as_closed() -> None:
    """Undeclared is the worst value: the question names what would have allowed more."""
    for name in ("window_s", "late_s"):
        story = unknown().when(next_action(keyed(**{name: None}), now_s=1))
        assert name in question_of(story.then_is(QuestionAsked))


def test_keyed_outside_the_window_is_as_marked() -> None:
    """Where it can look, lag and lateness decide."""
    tool = keyed(can_probe=True, lag_s=5.0, history=True)
    within = next_action(tool, now_s=200, verdict=COMPLETE, looked_after_s=9.0)
    beyond = next_action(tool, now_s=200, verdict=COMPLETE, looked_after_s=10.0)
    unknown().when(within).then_is(LookAtTool)
    unknown().when(beyond).then_is(IntentReconciled, verdict="absent")


# ---- NAMED, STATE, BLIND -------------------------------------------------------------------------


def test_named_is_created_again_when_absent() -> None:
    """A second create meets the first one and is refused: no horizon is needed."""
    tool = caps(Effect.NAMED, can_probe=True)
    unknown().when(next_action(tool, verdict=Absent())).then_is(RecordIntent, attempt=2)


def test_named_is_not_created_again_on_an_unclear_look() -> None:
    """A look that tells nothing is repeated, then a human is asked."""
    tool = caps(Effect.NAMED, can_probe=True)
    unknown().when(next_action(tool, verdict=Undetermined())).then_is(LookAtTool)
    unknown().when(next_action(tool, verdict=Undetermined(), looks=8)).then_is(QuestionAsked)


def test_state_that_is_satisfied_is_done_and_says_whose_doing() -> None:
    """The later undo depends on who put it there."""
    tool = caps(Effect.STATE, can_probe=True)
    for whose in ("ours", "theirs", "unknown"):
        story = unknown().when(next_action(tool, verdict=Happened(b"r", whose=whose)))
        after = story.then_is(IntentReconciled, verdict="happened", whose=whose)
        assert after.call.outcome == Done(b"r", whose=whose)


def test_state_is_sent_again_only_if_safe_and_fenced() -> None:
    """Not satisfied: sent again under the fence of the prior state, otherwise somebody undid it: ask."""
    safe = caps(Effect.STATE, can_probe=True, fence=True, resend_safe=True)
    unknown().when(next_action(safe, verdict=COMPLETE)).then_is(
        RecordIntent, attempt=2, same_prior=True
    )
    for less in ({"fence": True}, {"resend_safe": True}, {}):
        tool = caps(Effect.STATE, can_probe=True, **less)
        unknown().when(next_action(tool, verdict=COMPLETE)).then_is(QuestionAsked)


def test_blind_asks_and_names_the_missing_declaration() -> None:
    """Nothing tells what happened: never automatic, and the text says what would help."""
    story = unknown().when(next_action(caps(Effect.BLIND))).then_is(QuestionAsked, kind="unknown")
    assert "probe" in question_of(story)


# ---- policies ------------------------------------------------------------------------------------


def test_policy_resend_sends_again_and_says_so() -> None:
    """The author of the tool decided: the rule names the policy."""
    answer = unknown().when(next_action(caps(Effect.BLIND, on_unknown="resend"))).answer
    assert isinstance(answer, RecordIntent)
    assert answer.rule.startswith("policy: resend")


def test_policy_resend_ends_with_the_budget() -> None:
    """After the last attempt a human is asked."""
    tool = caps(Effect.BLIND, on_unknown="resend", attempts=2)
    unknown(attempts=2).when(next_action(tool)).then_is(QuestionAsked)


def test_policy_skip_leaves_the_verdict_unknown() -> None:
    """The caller goes on without knowing, the attempt stays unknown and is listed as such."""
    story = unknown().when(next_action(caps(Effect.BLIND, on_unknown="skip")))
    after = story.then_is(IntentReconciled, verdict="skipped", by="policy")
    assert isinstance(after.call.outcome, Skipped)
    assert after.call.attempts[0].status == "unknown"
    assert after.state.unsettled == [after.call]
    assert not after.call.settled


# ---- H02, H03 ------------------------------------------------------------------------------------


def test_H02_the_lookup_is_behind_the_write() -> None:
    """Within the lag "not found" cannot tell; after it, or with an authoritative read, it does."""
    lagging = marked(lag_s=5.0, late_s=0.0)
    for waited_s in (0.1, 4.0):
        story = unknown()
        answer = story.when(next_action(lagging, verdict=COMPLETE, looked_after_s=waited_s)).answer
        assert isinstance(answer, LookAtTool)
        assert story.call.unknown
    found = unknown().when(next_action(lagging, verdict=Happened(b"T-1"), looked_after_s=6.0))
    assert found.goes_on().call.outcome == Done(b"T-1")
    by_id = marked(lag_s=0.0, late_s=0.0)
    unknown().when(next_action(by_id, verdict=COMPLETE)).then_is(IntentReconciled, verdict="absent")
    nothing_declared = marked(lag_s=None)
    unknown().when(next_action(nothing_declared, verdict=COMPLETE, looked_after_s=1e9)).then_is(
        QuestionAsked
    )


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        (Happened(b"rule", whose="ours"), IntentReconciled),
        (Happened(b"rule", whose="theirs"), IntentReconciled),
        (Conflict("0.0.0.0/0 until never, wanted 198.51.100.7/32 until noon"), QuestionAsked),
    ],
)
def test_H03_second_attempt_meets_already_exists(verdict: AnyVerdict, kind: type) -> None:
    """Equal content is done, with whose doing; other content is a conflict that shows both values."""
    firewall = caps(Effect.STATE, can_probe=True)
    story = given(intent(1), OutcomeUnknown(CALL, 1, "already-there"))
    story.when(next_action(firewall)).then(LookAtTool(1))
    after = story.when(next_action(firewall, verdict=verdict)).then_is(kind)
    if isinstance(verdict, Conflict):
        assert verdict.found in question_of(after)


def test_explain_says_which_rule_decided_and_what_is_missing() -> None:
    """`explain` names the rule and the declaration, before and after the question."""
    tool = caps(Effect.BLIND)
    story = unknown()
    assert "probe" in explain(story.call, tool, None, START_NS)
    asked = story.when(next_action(tool)).goes_on()
    assert asked.call.question in explain(asked.call, tool, None, START_NS)
    look = Look(COMPLETE, 1.0)
    assert "horizon of 7 s" in explain(unknown().call, marked(), look, START_NS)
    done = unknown().and_then(IntentReconciled(CALL, 1, "happened", "probe"))
    assert explain(done.call, tool, None, START_NS) == "Settled: Done."
    closed = unknown().and_then(IntentReconciled(CALL, 1, "absent", "probe"))
    assert "closed without effect" in explain(closed.call, tool, None, START_NS)
