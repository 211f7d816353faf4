"""H17: the first run and its replay give equal values of equal type, or the value is refused."""

from collections import namedtuple
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest

import evsrc
from tests.runtime.desk import cut
from tests.runtime.flows import go


class Level(Enum):
    """An enum."""

    HIGH = "high"


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


class Inner(msgspec.Struct, frozen=True):
    """Nested."""

    at: datetime
    seen: frozenset[str]


class Outer(msgspec.Struct):
    """Holds another Struct, in containers."""

    inner: dict[int, tuple[Inner, ...]]


class Text(str):
    """A subclass of str."""

    __slots__ = ()


UNTYPED = namedtuple("UNTYPED", "x")

AWARE = datetime(2026, 12, 1, 3, tzinfo=timezone(timedelta(hours=2)))
INNER = Inner(AWARE, frozenset({"a", "b"}))

KEPT: list[tuple[Any, Any]] = [
    ((1, "a"), tuple[int, str]),
    ({3, 1, 2}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    ({1: "a", 2: "b"}, dict[int, str]),
    (b"\x00\xff", bytes),
    (AWARE, datetime),
    (datetime(2026, 12, 1, 3), datetime),
    (Level.HIGH, Level),
    (Decimal("1.10"), Decimal),
    (Point(1, 2), Point),
    (Outer({7: (INNER,)}), Outer),
    (None, str | None),
    ([1, None, "x", {"k": [1.5]}], Any),
]

REFUSED: list[tuple[Any, Any]] = [
    ((1, 2), Any),
    ({1, 2}, Any),
    (Text("x"), str),
    (Text("x"), Any),
    (Level.HIGH, Any),
    (Point(1, 2), Any),
    (UNTYPED(1), Any),
    ({1: "a"}, dict[str, str]),
    ([1, 2], tuple[int, int]),
    (1, float),
    (True, int),
]


def flow(value: Any, annotation: Any, seen: list[Any]) -> evsrc.Flow[int]:
    """A node that returns the value, and one below it that keeps what it sees."""
    made = evsrc.Flow("types", input=int)

    async def node(start: int) -> Any:
        return value

    async def below(node: Any) -> int:
        seen.append(node)
        return 1

    node.__annotations__["return"] = annotation
    below.__annotations__["node"] = annotation
    made.node(version="1")(node)
    made.node(version="1")(below)
    return made


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types down the tree."""
    return left == right and type(left) is type(right) and repr(left) == repr(right)


@pytest.mark.parametrize(("value", "annotation"), KEPT)
async def test_the_first_run_sees_what_the_replay_sees(value: Any, annotation: Any) -> None:
    """The node below, and the caller, get the decoded value from the start."""
    seen: list[Any] = []
    log = evsrc.MemoryLog()
    first = await go(log, flow(value, annotation, seen), 1)
    outputs = [i for i, record in enumerate(log.records()) if b"NodeOutput" in record.body]
    replay = await go(await cut(log, outputs[1]), flow(value, annotation, seen), 1)
    assert len(seen) == 2
    assert same(seen[0], seen[1])
    assert seen[0] == value
    assert type(seen[0]) is type(value)
    assert same(first.value["node"], replay.value["node"])


@pytest.mark.parametrize(("value", "annotation"), REFUSED)
async def test_what_would_come_back_otherwise_is_refused(value: Any, annotation: Any) -> None:
    """A value that would lose its type is a failure of the node that returned it, and nobody sees it."""
    seen: list[Any] = []
    outcome = await go(evsrc.MemoryLog(), flow(value, annotation, seen), 1)
    assert isinstance(outcome, evsrc.Failed)
    assert outcome.error.type == "UnusableValue"
    assert seen == []
