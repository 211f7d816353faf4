"""Codec: events and values come back as they went in, or are refused before anything is recorded."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar, get_args
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.core import codec
from evsrc.core.events import ErrorData, Event, IntentRecorded, RunClaimed, StepRecorded
from evsrc.errors import DefinitionError, UnknownEvent, UnusableValue

T = TypeVar("T")


class Zone(Enum):
    EU = "eu"


class Level(IntEnum):
    LOW = 1


class Host(msgspec.Struct, frozen=True):
    name: str
    tags: tuple[str, ...] = ()


class Server(Host, frozen=True):
    rack: int = 0


class Box(msgspec.Struct, Generic[T]):
    content: T


class Left(msgspec.Struct, tag=True):
    n: int


class Right(msgspec.Struct, tag=True):
    n: int


@dataclass
class Finding:
    host: Host
    seen: list[datetime] = field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: str


class Named(TypedDict):
    name: str


class Text(str):
    pass


class Numbers(list[int]):
    pass


@dataclass
class Doubling:
    n: int

    def __post_init__(self) -> None:
        self.n *= 2


@dataclass
class Angry:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise KeyError("n")


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAIVE = datetime(2026, 3, 1, 12)

SAME: list[tuple[Any, Any]] = [
    (None, None),
    (None, int | None),
    (True, bool),
    (2**64 - 1, int),
    (-(2**63), int),
    (-0.0, float),
    (float("inf"), float),
    ("é\0", str),
    (b"\xff", bytes),
    (bytearray(b"\x01"), bytearray),
    ((1, "a"), tuple[int, str]),
    ([(1, 2)], list[tuple[int, int]]),
    ({1, 2}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    ({1: "a", 2: "b"}, dict[int, str]),
    ({(1, 2): 1}, dict[tuple[int, int], int]),
    ({Zone.EU: 1}, dict[Zone, int]),
    (NOON, datetime),
    (NAIVE, datetime),
    (date(2026, 3, 1), date),
    (timedelta(seconds=1, microseconds=5), timedelta),
    (Zone.EU, Zone),
    (Level.LOW, Level),
    (Decimal("1.00"), Decimal),
    (UUID(int=5), UUID),
    (Host("a", ("x",)), Host),
    (Finding(Host("a"), [NOON]), Finding),
    (Box(Host("a")), Box[Host]),
    ([Left(1), Right(2)], list[Left | Right]),
    (Pair(1, "a"), Pair),
    ({"name": "a"}, Named),
    ({"b": [1, None, 2.5], "a": b"x", "t": NOON}, Any),
    ([1] * 1000, list[int]),
    (7, Annotated[int, ["unhashable"]]),
]

CHANGED: list[tuple[Any, Any, str]] = [
    (Server("a"), Host, ""),
    ({"name": "a", "more": 1}, Named, ""),
    (1, float, ""),
    ([2.0, 1], list[float], "[1]"),
    (Level.LOW, int, ""),
    (frozenset({1}), set[int], ""),
    (OrderedDict(a=1), dict[str, int], ""),
    (defaultdict(int, a=1), dict[str, int], ""),
    (Numbers([1]), list[int], ""),
    ((1, 2), Sequence[int], ""),
    (Doubling(1), Doubling, ".n"),
    (float("nan"), float, ""),
    ([1.0, float("nan")], list[float], "[1]"),
    ({"a": [float("nan")]}, dict[str, list[float]], "['a'][0]"),
    (Decimal("NaN"), Decimal, ""),
    ((1, 2), Any, ""),
    ({"a": (1,)}, Any, "['a']"),
    ([(1,)], list, "[0]"),  # type: ignore[type-arg]
    ({1}, Any, ""),
    (Host("a"), Any, ""),
    (Finding(Host("a")), Any, ""),
    (Zone.EU, Any, ""),
    ({Zone.EU: 1}, Any, "[key <Zone.EU: 'eu'>]"),
    (Decimal(1), Any, ""),
    (UUID(int=1), Any, ""),
    (NAIVE, Any, ""),
    (timedelta(1), Any, ""),
    (Box([Zone.EU]), Box[Any], ".content[0]"),
]

REFUSED: list[tuple[Any, Any, str]] = [
    (Path("a"), Any, ""),
    (Text("a"), str, ""),
    ({"a": [1, object()]}, Any, "['a'][1]"),
    (Box(ValueError("x")), Box[Any], ".content"),
    (1j, Any, ""),
    (iter([1]), Any, ""),
    (2**64, int, ""),
    (["ok", "\ud800"], list[str], "[1]"),
    ({"\ud800": 1}, dict[str, int], "[key '\\ud800']"),
    (True, int, ""),
    ("1", int, ""),
    (Host(1), Host, ""),  # type: ignore[arg-type]
]


def refused(value: Any, annotation: Any) -> UnusableValue:
    with pytest.raises(UnusableValue) as caught:
        codec.round_trip(value, annotation)
    return caught.value


@pytest.mark.parametrize(("value", "annotation"), SAME, ids=repr)
def test_h17_what_passes_comes_back_with_its_type(value: Any, annotation: Any) -> None:
    """H17: a value that passes is handed on as a replay will see it, of the same type all the way."""
    data, decoded = codec.round_trip(value, annotation)
    assert decoded == value
    assert codec.same(value, decoded)
    assert codec.same(codec.decode_value(data, annotation), decoded)
    assert codec.encode_value(value, annotation) == data


@pytest.mark.parametrize(("value", "annotation", "path"), CHANGED, ids=repr)
def test_h17_what_would_change_is_refused(value: Any, annotation: Any, path: str) -> None:
    """H17: a value that would come back as another type or value is refused, with the path."""
    assert refused(value, annotation).path == f"value{path}"


@pytest.mark.parametrize(("value", "annotation", "path"), REFUSED, ids=lambda v: type(v).__name__)
def test_what_cannot_be_written_or_read_is_refused(value: Any, annotation: Any, path: str) -> None:
    """Errors of the encoder and decoder become one refusal, with the path where the encoder failed."""
    assert refused(value, annotation).path == f"value{path}"


def test_zone_of_a_datetime_becomes_utc() -> None:
    """An aware datetime comes back as the same instant in UTC, on the first run too."""
    there = NOON.astimezone(timezone(timedelta(hours=2)))
    _, decoded = codec.round_trip(there, datetime)
    assert decoded == there
    assert decoded.utcoffset() == timedelta(0)


def test_order_of_a_dict_is_kept() -> None:
    """A dict comes back in its own order: the first run and a replay iterate alike."""
    value = {"z": 1, "a": 2, "m": 3}
    assert list(codec.round_trip(value, dict[str, int])[1]) == ["z", "a", "m"]


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_too_deep_is_refused(depth: int) -> None:
    """Nesting that encodes but would not decode, or not even encode, is refused before recording."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    assert "nested too deep" in refused(value, Any).why


def test_value_that_contains_itself_is_refused() -> None:
    """A cycle is refused, not followed."""
    value: list[Any] = []
    value.append(value)
    assert "contains itself" in refused(value, Any).why


def test_error_of_a_users_class_is_a_refusal() -> None:
    """Whatever a class raises while it is read back, the caller gets the one error it expects."""
    good, bad = Angry(1), Angry(1)
    bad.n = -1
    codec.round_trip(good, Angry)
    assert "'n'" in refused(bad, Angry).why


def test_refusal_shows_no_value() -> None:
    """A changed value is not quoted: the message is logged, and the value may be secret."""
    assert "hunter2" not in str(refused(("hunter2",), Any))
    assert "hunter2" not in str(refused([Host("hunter2")], Any))


def test_same_is_stricter_than_equal() -> None:
    """What `==` calls equal and is of another type is not the same, anywhere down the tree."""
    pairs: list[tuple[Any, Any]] = [
        (1, True),
        (1, 1.0),
        ([1, 2], [1, True]),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1}, {1.0}),
        (Pair(1, "a"), (1, "a")),
        (Decimal("1.0"), Decimal("1.00")),
        ([1], [1, 2]),
        ({1: 1}, {}),
        ({1}, {1, 2}),
        ({1}, {2}),
    ]
    for a, b in pairs:
        assert not codec.same(a, b), (a, b)
        assert not codec.same([a], [b]), (a, b)
        assert codec.same(a, a)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN)
def test_plain_data_round_trips(value: Any) -> None:
    """Any plain data passes under `Any`, and `plain` reads it."""
    data, decoded = codec.round_trip(value, Any)
    assert codec.same(decoded, value)
    assert codec.same(codec.plain(data), value)


@given(st.recursive(PLAIN, lambda inner: st.tuples(inner) | st.frozensets(st.integers())))
def test_under_any_it_is_the_same_or_refused(value: Any) -> None:
    """Under `Any` nothing passes that a replay would see otherwise."""
    try:
        _, decoded = codec.round_trip(value, Any)
    except UnusableValue:
        return
    assert codec.same(value, decoded)


@pytest.mark.parametrize(
    "annotation",
    [Left | Host, str | datetime, str | bytes, Zone | str, list[int] | tuple[int], "Nowhere",
     object, Path, Callable[[], int], dict[str, list[complex]], Box[Path], list[Exception] | None],
    ids=repr,
)  # fmt: skip
def test_annotation_that_cannot_be_recorded_is_refused(annotation: Any) -> None:
    """What msgspec cannot decode is refused where it is declared, naming the place."""
    with pytest.raises(DefinitionError, match="^node triage: .*cannot be recorded"):
        codec.check_annotation(annotation, "node triage")


class Tree(msgspec.Struct):
    children: list["Tree"] = []


@pytest.mark.parametrize("annotation", [annotation for _, annotation in SAME] + [Tree, Any])
def test_annotation_that_can_be_recorded_passes(annotation: Any) -> None:
    """What round-trips, and a class that contains itself, is accepted at declaration."""
    codec.check_annotation(annotation, "node triage")


# ---- events ---------------------------------------------------------------------------------------


def test_events_round_trip() -> None:
    """The events of one record come back equal, in order."""
    events: list[Event] = [
        RunClaimed("me", 1, "token"),
        StepRecorded(("node", "item:a"), "enrich", "d", error=ErrorData("E", "no", True)),
        StepRecorded((), "enrich", "d", value=b"\xc0", ordinal=3),
    ]
    body = codec.encode_events(events)
    assert codec.decode_events(body) == events
    assert [event["type"] for event in codec.decode_plain(body)] == [
        "RunClaimed", "StepRecorded", "StepRecorded",
    ]  # fmt: skip


@pytest.mark.parametrize("event", get_args(Event), ids=lambda cls: cls.__name__)
def test_every_event_round_trips(event: Any) -> None:
    """Each event of the union is told apart by its tag alone."""
    samples: dict[Any, Any] = {str: "x", int: 1, bytes: b"x", bool: True, float: 1.5}
    values: dict[str, Any] = {}
    for one in msgspec.structs.fields(event):
        if one.required:
            other = ErrorData("E", "m") if one.type is ErrorData else ("x",)
            values[one.name] = samples.get(one.type, other)
    if "kind" in values:
        values["kind"] = "unknown"
    if "verdict" in values:
        values["verdict"] = "absent"
    made = event(**values)
    assert codec.decode_events(codec.encode_events([made])) == [made]


def test_unknown_tag_is_named_with_its_index() -> None:
    """A record of a later version stops with the tag and where it stands; as maps it is readable."""
    body = msgspec.msgpack.encode(
        [msgspec.to_builtins(RunClaimed("a", 1, "t")), {"type": "RunTeleported", "to": 1}]
    )
    with pytest.raises(UnknownEvent, match=r"event 1 .*'RunTeleported'"):
        codec.decode_events(body)
    assert codec.decode_plain(body)[1] == {"type": "RunTeleported", "to": 1}


def test_event_without_tag_is_unknown() -> None:
    """A map without a tag is no event."""
    with pytest.raises(UnknownEvent, match="event 0 .* None"):
        codec.decode_events(msgspec.msgpack.encode([{"owner": "a"}]))


def test_event_that_does_not_fit_its_tag_is_named() -> None:
    """A known tag with an unfitting field says which field of which event."""
    with pytest.raises(UnknownEvent, match=r"\$\[0\]\.owner"):
        codec.decode_events(msgspec.msgpack.encode([{"type": "RunClaimed", "owner": 1}]))


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\xc0", b"\x91\x01", b"\x91\x81\x01\x01", b"\x91" * 5000]
)
def test_body_that_holds_no_events_is_unknown(body: bytes) -> None:
    """Bytes that are no array of maps raise nothing else than what readers of a run expect."""
    for read in (codec.decode_events, codec.decode_plain):
        with pytest.raises(UnknownEvent):
            read(body)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    """Whatever the bytes: events, or UnknownEvent."""
    try:
        codec.decode_events(body)
    except UnknownEvent:
        pass


def test_field_of_a_later_version_is_ignored() -> None:
    """Fields are only added: an event with one more field than we know is still that event."""
    event = {**msgspec.to_builtins(RunClaimed("a", 1, "t")), "later": [1]}
    assert codec.decode_events(msgspec.msgpack.encode([event])) == [RunClaimed("a", 1, "t")]


def test_event_text_that_is_no_unicode_is_refused_by_path() -> None:
    """A lone surrogate in an event is refused before the append, naming the field."""
    event = IntentRecorded("c", 1, "tool", "k", "m", ("a", "\ud800"), b"", b"", "d")
    with pytest.raises(UnusableValue) as caught:
        codec.encode_events([event])
    assert caught.value.path == "events[0].scope[1]"
