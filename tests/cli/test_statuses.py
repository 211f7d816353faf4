"""What a command's end means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.cli.statuses import (
    FAILED,
    INTEGRITY,
    INTERRUPTED,
    OK,
    QUESTIONS,
    USAGE,
    UsageError,
    leaves,
    status_of,
    worst,
)
from evsrc.errors import DivergenceError, LogCorrupt, LogLocked, Rejected, UnknownEvent

KNOWN = st.sampled_from([OK, FAILED, QUESTIONS, INTEGRITY])


@pytest.mark.parametrize(
    ("several", "one"),
    [
        ([], OK),
        ([OK, OK], OK),
        ([OK, QUESTIONS], QUESTIONS),
        ([QUESTIONS, FAILED], FAILED),
        ([FAILED, INTEGRITY, QUESTIONS], INTEGRITY),
        ([OK, 77], FAILED),
    ],
)
def test_four_over_one_over_three(several: list[int], one: int) -> None:
    """The gravest of several is not the largest number."""
    assert worst(several) == one


@given(st.lists(KNOWN), st.lists(KNOWN))
def test_worst_does_not_depend_on_order_or_grouping(a: list[int], b: list[int]) -> None:
    """The worst of all is the worst of the worst, and one of them."""
    assert worst(a + b) == worst(b + a) == worst([worst(a), worst(b)])
    assert worst(a + b) in [*a, *b, OK]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LogCorrupt("x"), INTEGRITY),
        (UnknownEvent("x"), INTEGRITY),
        (UsageError("x"), USAGE),
        (LogLocked("x"), FAILED),
        (DivergenceError("x"), FAILED),
        (Rejected("x"), FAILED),
        (OSError("x"), FAILED),
        (KeyboardInterrupt(), INTERRUPTED),
        (BaseExceptionGroup("", [BaseExceptionGroup("", [KeyboardInterrupt()])]), INTERRUPTED),
        (ExceptionGroup("", [Rejected("x"), LogCorrupt("x")]), INTEGRITY),
    ],
)
def test_an_error_has_a_status(error: BaseException, status: int) -> None:
    """By class; a group has the worst of its members."""
    assert status_of(error) == status


def test_leaves_are_found_however_deep() -> None:
    """A lone error is its own leaf; groups are opened."""
    one, two = ValueError("1"), KeyError("2")

    assert leaves(one) == [one]
    assert leaves(ExceptionGroup("", [one, ExceptionGroup("", [two])])) == [one, two]
