"""Plain data and its JSON."""

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import evsrc.events
from evsrc.cli.plain import event_object, jsonable, recorded, to_json, when
from evsrc.core.events import RunFailed, RunStarted
from evsrc.projections.base import Seen
from tests.projections.given import ERROR, intent

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.floats()
PLAIN = st.recursive(
    SCALARS | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_json_is_ascii_without_controls(value: Any) -> None:
    """Whatever an alert holds, the JSON on the terminal is printable ASCII, and JSON."""
    text = to_json(value)

    assert text.isascii()
    assert text.isprintable()
    json.loads(text, parse_constant=lambda _: 1 / 0)  # NaN is no JSON


def test_bytes_are_decoded_or_base64() -> None:
    """What is msgpack is shown as data, also inside; the rest as base64."""
    assert recorded(b"\x82\xa1a\x01\xa1b\xc4\x01\xff") == {"a": 1, "b": {"base64": "/w=="}}
    assert recorded(b"\xc1") == {"base64": "wQ=="}
    assert recorded(b"") == {"base64": ""}


def test_odd_values_have_a_plain_form() -> None:
    """Keys become text, times ISO, sets lists, NaN a word."""
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    assert jsonable({1: (moment, {2})}) == {"1": ["2026-03-01T00:00:00Z", [2]]}
    assert jsonable(float("nan")) == "nan"
    assert jsonable(object()).startswith("<object")


def test_an_event_is_its_place_and_its_fields() -> None:
    """Position, run, time and type come first; values are decoded; an error is a map."""
    seen = Seen("r-1", RunStarted("w", "1", b"\xa2hi", "d"), 7, 1_000_000_001_500)
    exported = event_object(seen)

    assert list(exported)[:4] == ["position", "run", "time", "type"]
    assert exported["time"] == "1970-01-01T00:16:40.000001Z"
    assert exported["input"] == "hi"
    failed = event_object(Seen("r-1", RunFailed(ERROR), 8, 0))
    assert failed["error"] == {"type": "Rejected", "message": "no"}
    assert event_object(Seen("r-1", intent(), 9, 0))["asked"] == {}


def test_no_field_of_an_event_hides_its_place() -> None:
    """No event has a field called position, run, time or type."""
    for name in evsrc.events.__all__:
        fields = getattr(getattr(evsrc.events, name), "__struct_fields__", ())
        assert name == "ErrorData" or not {"position", "run", "time", "type"} & set(fields), name


def test_a_mad_clock_is_shown() -> None:
    """A time that no calendar holds is shown as its number."""
    assert when(0) == ""
    assert when(10**30) == f"{10**30} ns"
