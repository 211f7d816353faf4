"""Heads: each append gets the one place that follows, and nothing else is admitted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.errors import PositionConflict
from evsrc.log.base import Record
from evsrc.log.streams import Heads

appends = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=20)


@given(appends)
def test_what_one_gives_another_admits(appended: list[tuple[str, int]]) -> None:
    """Heads rebuilt from the records are the heads that gave them their places."""
    giving, admitting = Heads(), Heads()
    for stream, count in appended:
        before = giving.version(stream)
        record, _ = giving.next(stream, b"x", count=count, expected=before, time_ns=0)
        assert (record.version, giving.version(stream)) == (before, before + count)
        admitting.admit(record)
    assert admitting.position == giving.position == len(appended)
    assert all(admitting.version(stream) == giving.version(stream) for stream in "abc")


@pytest.mark.parametrize(
    "wrong", [{"position": 3}, {"position": 1}, {"version": 0}, {"version": 9}, {"previous": b"?"}]
)
def test_what_does_not_follow_is_refused(wrong: dict[str, object]) -> None:
    """A wrong position, version or predecessor is refused, and changes nothing."""
    heads = Heads()
    heads.next("s", b"1", count=2, expected=None, time_ns=0)
    other = Heads()
    other.next("s", b"1", count=2, expected=None, time_ns=0)
    fits, _ = other.next("s", b"2", count=1, expected=2, time_ns=0)
    damaged: Record = msgspec.structs.replace(fits, **wrong)
    with pytest.raises(ValueError, match="follows|version"):
        heads.admit(damaged)
    assert (heads.position, heads.version("s")) == (1, 2)
    heads.admit(fits)


def test_a_refused_place_leaves_no_trace() -> None:
    """A conflict names both versions and what to do, and takes no position."""
    heads = Heads()
    with pytest.raises(PositionConflict, match="at version 0, the append expected 4: read"):
        heads.next("s", b"", count=1, expected=4, time_ns=0)
    assert (heads.position, heads.version("s")) == (0, 0)
