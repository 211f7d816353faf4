"""What takes the place of a send: given the events, when a request is about to leave, then ..."""

import msgspec
import pytest

from evsrc.core.departure import SEND_BY_S, Departure, instead_of_sending
from evsrc.core.events import CallNotSent, ErrorData, OutcomeUnknown
from evsrc.testing.specification import CALL, SECOND_NS, START_NS, Given, given, intent, marked

REFUSED = ErrorData("NotSent", "the desk is closed")


def departs(story: Given, attempt: int = 1, asked: str = "", **at: object) -> tuple[object, ...]:
    """What `instead_of_sending` says of the next intent of the story's call, two attempts allowed."""
    following = intent(attempt)
    if asked:
        following = msgspec.structs.replace(following, asked_digest=asked)
    now = {"now_ns": START_NS, **at}
    not_after_ns = now.pop("not_after_ns", None)
    following = msgspec.structs.replace(
        following, not_after_ns=not_after_ns, send_by_ns=START_NS + round(SEND_BY_S * 1e9)
    )
    caps = msgspec.structs.replace(marked(), attempts=2)
    call = story.state.calls.get(CALL)
    return instead_of_sending(call, following, caps, msgspec.convert(now, Departure))


def test_nothing_stands_against_it() -> None:
    """A fresh intent in time leaves."""
    assert departs(given()) == ()


@pytest.mark.parametrize("at", [{"stale": True}, {"not_after_ns": START_NS - 1}])
def test_a_call_that_is_too_old_does_not_leave(at: dict[str, object]) -> None:
    """Too old when it was decided, or by now: recorded as not sent, for good."""
    (event,) = departs(given(), **at)

    assert isinstance(event, CallNotSent)
    assert (event.final, event.error.type) == (True, "StaleIntent")


def test_an_intent_that_lay_too_long_does_not_leave() -> None:
    """After `send_by` another owner may have taken over; the next attempt is due after a pause."""
    late_ns = START_NS + round((SEND_BY_S + 1) * SECOND_NS)

    (event,) = departs(given(), now_ns=late_ns)

    assert isinstance(event, CallNotSent)
    assert not event.final
    assert event.retry_at_ns is not None
    assert event.retry_at_ns > late_ns


def test_a_caller_that_left_sends_nothing() -> None:
    """Cancelled between the intent and the first byte: recorded as not sent, not as unknown."""
    (event,) = departs(given(), gave_up=True)

    assert isinstance(event, CallNotSent)


def test_an_effect_seen_elsewhere_is_looked_for_first() -> None:
    """The first attempt of a swept marker counts as sent; a further one is like any other."""
    (event,) = departs(given(), seen_elsewhere=True)

    assert isinstance(event, OutcomeUnknown)
    assert event.cause == "swept"
    assert departs(given(intent(1)), attempt=2, seen_elsewhere=True) == ()


def test_what_cannot_be_looked_up_first_counts_as_an_attempt() -> None:
    """A failing `prepare` is not sent, and the last attempt of the budget says so for good."""
    (first,) = departs(given(), failure=REFUSED)
    closed = given(intent(1), CallNotSent(CALL, 1, REFUSED))
    (second,) = departs(closed, attempt=2, failure=REFUSED)

    assert isinstance(first, CallNotSent)
    assert isinstance(second, CallNotSent)
    assert (first.final, second.final) == (False, True)


def test_it_is_not_final_while_another_attempt_is_out() -> None:
    """That nothing left now says nothing of an earlier attempt that is unknown."""
    unknown = given(intent(1), OutcomeUnknown(CALL, 1, "crash"))

    (event,) = departs(unknown, attempt=2, failure=REFUSED)

    assert isinstance(event, CallNotSent)
    assert not event.final


def test_new_arguments_have_a_budget_of_their_own() -> None:
    """Attempts under arguments that had no effect do not use up the budget of new ones."""
    closed = given(
        intent(1), CallNotSent(CALL, 1, REFUSED), intent(2), CallNotSent(CALL, 2, REFUSED, True)
    )

    (event,) = departs(closed, attempt=3, asked="other", failure=REFUSED)

    assert isinstance(event, CallNotSent)
    assert not event.final
