"""Semantics 3, replay: outcomes are owed in log order, patience is history."""

from evsrc.core.events import (
    CallNotSent,
    CallRejected,
    ErrorData,
    Event,
    IntentReconciled,
    OutcomeUnknown,
    ResultRecorded,
    StepRecorded,
    WaitAbandoned,
)
from evsrc.core.keys import step_id
from evsrc.core.replay import Recorded, owed, recorded, within
from evsrc.testing.specification import RUN, given, intent

UNIT = ("node",)


def effect(call: str, attempt: int = 1) -> Event:
    """The intent of one of several calls."""
    return intent(attempt, call=call, scope=UNIT, ordinal=1, tool=f"tool-{call}")


def read(name: str, **fields: object) -> StepRecorded:
    """A read in the unit."""
    return StepRecorded(UNIT, name, "args", ordinal=1, value=b"v", **fields)  # type: ignore[arg-type]


def read_id(name: str) -> str:
    """Its id."""
    return step_id(RUN, UNIT, name, "", 1)


def order(*events: Event) -> list[tuple[str, str]]:
    """What user code saw, in order."""
    return [(r.id, r.kind) for r in recorded(given(*events).state, UNIT)]


def test_outcomes_are_owed_in_log_order_not_in_the_order_of_intents() -> None:
    """What came back first is handed out first, among calls and reads alike."""
    found = order(
        effect("a"),
        effect("b"),
        read("r"),
        ResultRecorded("b", 1, b"B"),
        CallRejected("a", 1, ErrorData("Rejected", "no")),
    )
    assert found == [(read_id("r"), "outcome"), ("b", "outcome"), ("a", "outcome")]


def test_a_call_without_an_outcome_is_owed_but_has_no_place() -> None:
    """It must be asked for again, and nothing can be handed out yet."""
    state = given(effect("a"), OutcomeUnknown("a", 1, "crash")).state
    assert recorded(state, UNIT) == []
    assert owed(state, UNIT) == {"a": "tool-a #1 in node"}


def test_a_call_closed_without_effect_and_without_outcome_is_not_owed() -> None:
    """It pins nothing: the code may have taken another way."""
    state = given(effect("a"), CallNotSent("a", 1, ErrorData("NotSent", "no"))).state
    assert owed(state, UNIT) == {}
    told = given(effect("a"), CallRejected("a", 1, ErrorData("Rejected", "no"))).state
    assert list(owed(told, UNIT)) == ["a"]


def test_a_caller_that_gave_up_sees_that_for_ever() -> None:
    """A later outcome of the call does not reach code that went on without it."""
    gave_up = WaitAbandoned("a", 1.5, UNIT, "tool-a")
    found = order(
        effect("a"), OutcomeUnknown("a", 1, "timeout"), gave_up, ResultRecorded("a", 1, b"A")
    )
    assert found == [("a", "abandoned")]
    state = given(effect("a"), gave_up).state
    assert recorded(state, UNIT) == [Recorded("a", 2, "abandoned", 1.5)]


def test_giving_up_before_the_intent_is_history_too() -> None:
    """The caller left while it waited for its turn: there is no intent, and replay gives up again."""
    state = given(WaitAbandoned("a", 0.5, UNIT, "tool-a")).state
    assert [r.kind for r in recorded(state, UNIT)] == ["abandoned"]
    assert list(owed(state, UNIT)) == ["a"]


def test_an_abandoned_read_is_given_up_again() -> None:
    """A read whose caller left is recorded as such."""
    found = order(read("r", abandoned=True, waited_s=2.0))
    assert found == [(read_id("r"), "abandoned")]


def test_a_skip_is_an_outcome() -> None:
    """User code saw that it was skipped."""
    skipped = IntentReconciled("a", 1, "skipped", "policy")
    assert order(effect("a"), OutcomeUnknown("a", 1, "timeout"), skipped) == [("a", "outcome")]


def test_the_first_record_of_a_read_stands() -> None:
    """A second record of one read (none should exist) does not change what was seen."""
    state = given(read("r"), StepRecorded(UNIT, "r", "args", ordinal=1, value=b"w")).state
    assert [r.event.value for r in state.reads.values()] == [b"v"]


def test_a_unit_owes_what_stands_in_its_scope() -> None:
    """A node's unit knows its items and maps, and nothing of its neighbours."""
    assert within(("node", "map:#1", "item:x"), UNIT)
    assert within(UNIT, UNIT)
    assert within(UNIT, ())
    assert not within(("nod",), UNIT)
    assert not within((), UNIT)
    other = intent(call="o", scope=("other",))
    assert order(other, ResultRecorded("o", 1, b"O")) == []
    assert owed(given(other).state, UNIT) == {}
