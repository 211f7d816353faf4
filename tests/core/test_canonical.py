"""The canonical form: the published tables hold, nothing distinct collides, every process agrees."""

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.core import canonical as module
from evsrc.core.canonical import FORMAT, canonical, differing, digest
from evsrc.core.codec import same
from evsrc.errors import NoStableForm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/canonical-form.md").read_text(encoding="utf-8")
GOLDEN = ROOT / "tests/golden/canonical.json"


def page_names() -> dict[str, Any]:
    """What the page's example block defines, in a module that does not exist."""
    names: dict[str, Any] = {"__name__": "page"}
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    exec(block[1], names)
    return names


NAMES = page_names()


def value_of(expression: str) -> Any:
    return eval(expression.strip("`"), NAMES)


def rows(heading: str) -> list[tuple[str, ...]]:
    """The rows of the table under a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines[2:]]


@pytest.mark.parametrize(("type_name", "letter", "body", "example"), rows("Bytes"))
def test_table_of_types(type_name: str, letter: str, body: str, example: str) -> None:
    """Each type has the letter of the table, and a length that is that of its body."""
    form = canonical(value_of(example)).removeprefix(FORMAT)
    assert form[:1].decode() == letter
    assert int.from_bytes(form[1:9], "big") == len(form) - 9


def test_table_of_types_is_complete() -> None:
    """Every letter that the code can write is in the table, once."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    written = re.findall(r'(?:_frame|_record|_sequence|_unordered)\(b"(.)"', source)
    assert sorted(written) == sorted(row[1] for row in rows("Bytes"))


@pytest.mark.parametrize(("one", "other", "because"), rows("Equal"))
def test_table_of_equals(one: str, other: str, because: str) -> None:
    """What the table calls equal has one form."""
    assert canonical(value_of(one)) == canonical(value_of(other))


@pytest.mark.parametrize(("one", "other", "because"), rows("Different"))
def test_table_of_differences(one: str, other: str, because: str) -> None:
    """What the table calls different has two forms, alone and inside a container."""
    a, b = value_of(one), value_of(other)
    assert canonical(a) != canonical(b)
    assert canonical({"x": [a]}) != canonical({"x": [b]})


@pytest.mark.parametrize(("value", "path", "says"), rows("Refused"))
def test_h05_table_of_refusals(value: str, path: str, says: str) -> None:
    """H05: what has no stable form is refused by name and by its path inside the input."""
    with pytest.raises(NoStableForm, match=re.escape(says)) as caught:
        canonical(value_of(value))
    assert caught.value.path == path.strip("`")


@pytest.mark.parametrize("vector", json.loads(GOLDEN.read_text(encoding="utf-8")), ids=str)
def test_golden_vectors(vector: dict[str, str]) -> None:
    """Recorded forms never change under one format tag."""
    value = value_of(vector["value"])
    assert canonical(value).hex() == vector["form"]
    assert digest(value) == vector["sha256"]


def test_golden_vectors_cover_every_type() -> None:
    """Each letter of the table has a vector."""
    first = {
        bytes.fromhex(v["form"])[len(FORMAT) :][:1].decode() for v in json.loads(GOLDEN.read_text())
    }
    assert first == {row[1] for row in rows("Bytes")}


# ---- processes ------------------------------------------------------------------------------------

CHILD = """
import enum, sys
from dataclasses import dataclass
from evsrc.core.canonical import digest

class Zone(enum.Enum):
    EU = "eu"

@dataclass
class Alert:
    hosts: set[str]
    zones: frozenset[Zone]
    extra: dict[object, object]

names = {f"host-{i}" for i in range(40)}
first = {name: {"zone": Zone.EU, "n": i} for i, name in enumerate(sorted(names))}
second = dict(reversed(first.items()))
made = [digest(Alert(names, frozenset(Zone), {"m": m, 1: names, (1, "a"): frozenset(names)}))
        for m in (first, second)]
assert made[0] == made[1]
sys.stdout.write(made[0])
"""


def test_h05_ten_processes_agree() -> None:
    """H05: sets, frozensets, enums and dicts of two orders give one digest under ten hash seeds."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(1, 11)
    ]
    answers = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0] * 10
    assert len(set(answers)) == 1
    assert len(answers[0]) == 64


# ---- properties -----------------------------------------------------------------------------------

HOST, SITE, FINDING, PAIR = (NAMES[name] for name in ("Host", "Site", "Finding", "Pair"))
SMALL = st.sampled_from(
    [None, True, False, 0, 1, -1, 0.0, -0.0, 1.0, "", "0", "1", "a", "ab", b"", b"a", bytearray(b"a"),
     Decimal(1), Decimal("1.0"), UUID(int=1), date(2026, 3, 1), datetime(2026, 3, 1, tzinfo=UTC),
     timedelta(1), NAMES["Zone"].EU, NAMES["Region"].EU, NAMES["Level"].LOW]
)  # fmt: skip
HASHABLE = SMALL.filter(lambda value: not isinstance(value, bytearray))
LEAF = (
    SMALL | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3)
)
VALUE = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.builds(
            lambda cls, a, b: cls(a, b), st.sampled_from([HOST, SITE, FINDING, PAIR]), inner, inner
        )
    ),
    max_leaves=6,
)


def sorted_dicts(value: Any) -> Any:
    """The same value with every dict in one order and -0.0 told apart: what `same` then compares."""
    if type(value) is dict:
        pairs = [(sorted_dicts(k), sorted_dicts(v)) for k, v in value.items()]
        return dict(sorted(pairs, key=lambda pair: (type(pair[0]).__name__, repr(pair[0]))))
    if type(value) is float:
        return struct.pack(">d", value), "float"
    if type(value) in (set, frozenset):
        parts = sorted((type(v).__name__, repr(v)) for v in value)
        return type(value).__name__, parts
    if type(value) in (list, tuple):
        return type(value)(map(sorted_dicts, value))
    if type(value) in (HOST, SITE, FINDING, PAIR):
        return type(value).__name__, sorted_dicts(value.name), sorted_dicts(value.rack)
    return value


@given(VALUE, VALUE)
def test_nothing_distinct_collides(a: Any, b: Any) -> None:
    """Two values have one form exactly if they are the same, types included, down the whole tree."""
    assert (canonical(a) == canonical(b)) == same(sorted_dicts(a), sorted_dicts(b))


def test_no_two_leaves_collide() -> None:
    """Among all pairs of nearly equal leaves, each has a form of its own."""
    every = [None, True, False, 0, 1, -1, 255, 256, 0.0, -0.0, 1.0, "", "0", "1", "a", b"", b"a",
             bytearray(b"a"), [], (), set(), frozenset(), {}, [0], (0,), {0}, frozenset({0}), {0: 0},
             Decimal(0), Decimal(1), timedelta(0), UUID(int=0), date(1970, 1, 1),
             datetime(1970, 1, 1, tzinfo=UTC), HOST("a"), SITE("a"), FINDING("a"), PAIR("a")]  # fmt: skip
    assert len({canonical(value) for value in every}) == len(every)
    assert len({canonical([value]) for value in every}) == len(every)


@given(st.lists(VALUE, max_size=4), st.lists(VALUE, max_size=4))
def test_elements_do_not_run_together(a: list[Any], b: list[Any]) -> None:
    """Joining and splitting lists never gives the form of another list."""
    joined = canonical([*a, *b])
    assert canonical([a, b]) != joined
    assert canonical([*a, b]) != joined


@given(st.dictionaries(HASHABLE, VALUE, max_size=6), st.randoms(use_true_random=False))
def test_order_of_a_dict_does_not_count(value: dict[Any, Any], random: Any) -> None:
    """However a dict was filled, it has one form."""
    pairs = list(value.items())
    random.shuffle(pairs)
    assert canonical(dict(pairs)) == canonical(value)


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    st.integers(-23 * 60, 23 * 60),
)
def test_an_instant_has_one_form_in_every_zone(naive: datetime, minutes: int) -> None:
    """The zone in which an instant is written does not count; a microsecond does."""
    there = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert canonical(there) == canonical(there.astimezone(UTC))
    assert canonical(there) != canonical(there + timedelta(microseconds=1))


@given(st.integers(), st.integers())
def test_integers_of_any_size_differ(a: int, b: int) -> None:
    """Numbers are told apart beyond 64 bits, and beyond what int to str converts."""
    assert (canonical(a) == canonical(b)) == (a == b)
    assert canonical(a << 20_000) != canonical((a << 20_000) + 1)


def test_decimal_context_does_not_count() -> None:
    """A changed decimal context of the process changes no form."""
    import decimal

    before = digest([Decimal("1E+30"), Decimal("-0")])
    with decimal.localcontext() as context:
        context.prec, context.capitals = 2, 0
        assert digest([Decimal("1E+30"), Decimal("-0")]) == before


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_has_a_limit() -> None:
    """Nesting up to the limit passes; deeper, and a value that contains itself, is refused."""
    canonical(nested(module.DEPTH_MAX))
    cycle: dict[str, Any] = {}
    cycle["me"] = cycle
    for value in (nested(module.DEPTH_MAX + 1), cycle):
        with pytest.raises(NoStableForm, match="deeper than 100, or contains itself") as caught:
            canonical(value)
        assert len(caught.value.path) < 300


def test_half_made_object_is_refused() -> None:
    """A dataclass that lacks a field is refused, naming the field."""
    with pytest.raises(NoStableForm, match="no value in its field name"):
        canonical(object.__new__(FINDING).__class__.__new__(FINDING))


def test_open_handle_is_refused_by_path(tmp_path: Path) -> None:
    """H05: an open file inside the input is refused by its path."""
    with (tmp_path / "f").open("wb") as handle, pytest.raises(NoStableForm) as caught:
        canonical({"evidence": [handle]})
    assert caught.value.path == "value['evidence'][0]"


# ---- which fields differ --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "asked", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": 1}, {"a": 1.0}, ["a"]),
        ({"a": 0.0}, {"a": -0.0}, ["a"]),
        ({"host": {"name": "a", "n": 1}}, {"host": {"name": "b", "n": 1}}, ["host.name"]),
        ({"tags": ["a", "b"]}, {"tags": ["a", "c", "d"]}, ["tags[1]", "tags[2]"]),
        ({"tags": ["a"]}, {"tags": {"a": 1}}, ["tags"]),
        ({"x": [{"y": 1}]}, {"x": [{"y": 2}]}, ["x[0].y"]),
        ({"old": None}, {"new": None}, ["old", "new"]),
        ({"b": 1, "a": 1}, {"a": 2, "b": 2}, ["b", "a"]),
        ({"a": {"b": 1}, "c": 2}, {"c": 2, "a": {"b": 1}}, []),
    ],
)
def test_differing_fields_are_named(
    recorded: dict[str, Any], asked: dict[str, Any], paths: list[str]
) -> None:
    """Each field that differs in type or value is named by its path, in the record's order."""
    assert differing(recorded, asked) == paths


def test_many_differing_fields_are_counted() -> None:
    """A message stays readable however much differs."""
    found = differing({f"f{i}": i for i in range(30)}, {})
    assert len(found) == module.PATHS_MAX + 1
    assert found[-1] == "and 10 more"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
MAPS = st.dictionaries(st.text(max_size=2), PLAIN, max_size=3)


@given(MAPS, MAPS)
def test_differing_agrees_with_the_form(a: dict[str, Any], b: dict[str, Any]) -> None:
    """Fields differ exactly if the forms do, so a divergence always names one."""
    assert (differing(a, b) == []) == (canonical(a) == canonical(b))


def leaves(value: Any) -> Iterator[Any]:
    yield value
    for part in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from leaves(part)


@given(MAPS)
def test_forms_hold_no_hidden_state(value: dict[str, Any]) -> None:
    """A form is a function of its value: the second time it is the same, and no leaf was changed."""
    before = repr(list(leaves(value)))
    assert canonical(value) == canonical(value)
    assert repr(list(leaves(value))) == before
