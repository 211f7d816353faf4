"""The canonical form: one byte string per value, the same in every process, on every Python.

Rule: nothing distinct collides, and what has no stable form is refused with the path to it. Every part
is a letter for its type, the length of its body, its body; so no two values run together, and no value
looks like two. Sets and dicts are sorted by these bytes, never by `hash`, which differs by process.
Does not know: what the form is used for. Secret and default arguments are left out before.
Must change together: docs/reference/canonical-form.md and tests/golden/canonical.json. A changed form
needs a new `FORMAT`, since keys already given to tools must be derived again after a restart.

Not msgspec's deterministic order: it gives one form to a tuple and a list, an Enum and its value, a
UUID and its text, and takes NaN and datetimes without a zone.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from typing import Any, TypeAlias, cast
from uuid import UUID

import msgspec

from evsrc.errors import NoStableForm

FORMAT = b"evsrc-canonical-1\n"

DEPTH_MAX = 100
"""Deepest nesting, far above any real argument. It also ends a value that contains itself."""

PATHS_MAX = 20
"""Differing fields named in a message: enough to see what happened, short enough to be read."""

STEPS_MAX = 20
"""Steps of a path that are shown: a value that contains itself would give `DEPTH_MAX` of them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_Encode: TypeAlias = Callable[[Any, int], bytes]


class _Refused(Exception):
    """A part without a stable form; each container on the way out adds its step to the path."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.steps: list[str] = []


def canonical(value: Any) -> bytes:
    """The canonical form of a value, with the format tag in front.

    Raises:
        NoStableForm: the value, or a part of it, has none; `path` says where: `value.hosts[2]`.
            docs/reference/canonical-form.md has the table.
    """
    try:
        return FORMAT + _form(value, 0)
    except _Refused as refused:
        steps = [*reversed(refused.steps)]
        cut = "..." if len(steps) > STEPS_MAX else ""
        raise NoStableForm("value" + "".join(steps[:STEPS_MAX]) + cut, refused.why) from None


def digest(value: Any) -> str:
    """SHA-256 of the canonical form, 64 hex digits. Raises NoStableForm, as `canonical`."""
    return sha256(canonical(value)).hexdigest()


def differing(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Paths of the fields that differ between two maps of plain data: `host.name`, `tags[1]`.

    1, 1.0 and True differ. A field that only one side has is named. Of more than `PATHS_MAX` paths
    the rest is counted: `and 3 more`. Values are not shown: they may be secret.
    """
    paths: list[str] = []
    stack: list[tuple[str, Any, Any]] = [("", dict(recorded), dict(asked))]
    while stack:
        path, a, b = stack.pop()
        pairs = _paired(path, a, b)
        if pairs is not None:
            stack += reversed(pairs)
        elif type(a) is not type(b) or a != b or (a == 0 and str(a) != str(b)):  # -0.0
            paths.append(path or "value")
    more = len(paths) - PATHS_MAX
    return paths if more <= 0 else [*paths[:PATHS_MAX], f"and {more} more"]


_ABSENT = object()


def _paired(path: str, a: Any, b: Any) -> list[tuple[str, Any, Any]] | None:
    """The children of two containers of one kind, side by side. None: compare them as they are."""
    kinds: set[Any] = {type(a), type(b)}
    if kinds == {dict}:
        return _by_name(f"{path}." if path else "", a, b)
    if kinds == {list}:
        return _by_index(path, a, b)
    return None


def _by_name(path: str, a: Mapping[Any, Any], b: Mapping[Any, Any]) -> list[tuple[str, Any, Any]]:
    names = [*a, *(name for name in b if name not in a)]
    return [(f"{path}{name}", a.get(name, _ABSENT), b.get(name, _ABSENT)) for name in names]


def _by_index(path: str, a: list[Any], b: list[Any]) -> list[tuple[str, Any, Any]]:
    longest = max(len(a), len(b))
    return [(f"{path}[{index}]", _at(a, index), _at(b, index)) for index in range(longest)]


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else _ABSENT


# ---- one part -------------------------------------------------------------------------------------


def _form(value: Any, depth: int) -> bytes:
    cls: type[Any] = type(cast("object", value))
    if depth > DEPTH_MAX:
        raise _Refused(f"is nested deeper than {DEPTH_MAX}, or contains itself")
    encode = _BY_TYPE.get(cls)
    if encode is not None:
        return encode(value, depth)
    if issubclass(cls, Enum):
        return _frame(b"M", _text(cls.__qualname__) + _inside(".value", value.value, depth))
    if issubclass(cls, msgspec.Struct):
        return _record(b"R", value, cls.__struct_fields__, depth)
    bases: tuple[Any, ...] = cls.__mro__
    if tuple in bases and hasattr(value, "_fields"):
        return _record(b"Q", value, value._fields, depth)
    base = next((base for base in bases if base in _BY_TYPE), None)
    if base is not None:
        raise _Refused(
            f"is a {cls.__qualname__}, a subclass of {base.__name__}, and may mean more than its "
            f"value: give the plain {base.__name__}"
        )
    if hasattr(value, "__dataclass_fields__") and not issubclass(cls, type):
        from dataclasses import fields

        return _record(b"K", value, [field.name for field in fields(value)], depth)
    raise _Refused(
        f"a {cls.__qualname__} has no stable form: give plain data, a Struct or a dataclass"
    )


def _frame(tag: bytes, body: bytes) -> bytes:
    return tag + len(body).to_bytes(8, "big") + body


def _inside(step: str, value: Any, depth: int) -> bytes:
    """A child's form; if it is refused, `step` becomes part of the path."""
    try:
        return _form(value, depth + 1)
    except _Refused as refused:
        refused.steps.append(step)
        raise


def _none(value: None, depth: int) -> bytes:
    return _frame(b"N", b"")


def _bool(value: bool, depth: int) -> bytes:
    return _frame(b"B", b"\x01" if value else b"\x00")


def _integer(value: int) -> bytes:
    # Two's complement in as few bytes as hold it: one form per number, of any size.
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _int(value: int, depth: int) -> bytes:
    return _frame(b"I", _integer(value))


def _float(value: float, depth: int) -> bytes:
    if value != value:
        raise _Refused("is NaN, which equals nothing, not even itself")
    return _frame(b"F", struct.pack(">d", value))


def _text(value: str) -> bytes:
    try:
        return _frame(b"S", value.encode())
    except UnicodeEncodeError as error:
        raise _Refused(f"has a lone surrogate at {error.start}: it is no valid Unicode") from None


def _str(value: str, depth: int) -> bytes:
    return _text(value)


def _bytes(value: bytes, depth: int) -> bytes:
    return _frame(b"Y", value)


def _bytearray(value: bytearray, depth: int) -> bytes:
    return _frame(b"A", bytes(value))


def _decimal(value: Decimal, depth: int) -> bytes:
    if value.is_nan():
        raise _Refused("is a Decimal NaN, which equals nothing, not even itself")
    # Not str(): its form depends on the decimal context.
    sign, digits, exponent = value.as_tuple()
    return _frame(b"C", f"{sign} {''.join(map(str, digits))} {exponent}".encode())


def _uuid(value: UUID, depth: int) -> bytes:
    return _frame(b"U", value.bytes)


def _date(value: date, depth: int) -> bytes:
    return _frame(b"D", value.isoformat().encode())


def _time(value: time, depth: int) -> bytes:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise _Refused("is a time whose zone has no fixed offset: give a datetime, or a plain time")
    return _frame(b"H", value.isoformat().encode())


def _datetime(value: datetime, depth: int) -> bytes:
    if value.utcoffset() is None:
        raise _Refused("is a datetime without a time zone: which instant it is depends on the host")
    # The instant alone: a replay sees it in UTC, whatever zone it was given in.
    return _frame(b"W", _integer((value - _EPOCH) // _MICROSECOND))


def _timedelta(value: timedelta, depth: int) -> bytes:
    return _frame(b"P", _integer(value // _MICROSECOND))


def _unset(value: object, depth: int) -> bytes:
    return _frame(b"X", b"")


# ---- containers -----------------------------------------------------------------------------------


def _sequence(tag: bytes) -> _Encode:
    def encode(value: Iterable[Any], depth: int) -> bytes:
        parts = [_inside(f"[{index}]", part, depth) for index, part in enumerate(value)]
        return _frame(tag, b"".join(parts))

    return encode


def _unordered(tag: bytes) -> _Encode:
    def encode(value: Iterable[Any], depth: int) -> bytes:
        return _frame(tag, b"".join(sorted([_inside("{...}", part, depth) for part in value])))

    return encode


def _dict(value: dict[Any, Any], depth: int) -> bytes:
    pairs = [
        (_inside(f"[key {_short(key)}]", key, depth), _inside(f"[{_short(key)}]", part, depth))
        for key, part in value.items()
    ]
    # Keys differ, so the values are never compared.
    return _frame(b"O", b"".join([key + part for key, part in sorted(pairs)]))


def _record(tag: bytes, value: Any, names: Iterable[str], depth: int) -> bytes:
    # The qualified name without the module: a script's classes are in `__main__` in one process and
    # in a module in the next. Fields are sorted: their order in the class is layout.
    parts = [_text(type(value).__qualname__)]
    for name in sorted(names):
        part = getattr(value, name, _ABSENT)
        if part is _ABSENT:
            raise _Refused(f"has no value in its field {name}")
        parts += (_text(name), _inside(f".{name}", part, depth))
    return _frame(tag, b"".join(parts))


def _short(key: object) -> str:
    text = ascii(key)
    return text if len(text) <= 40 else text[:40] + "..."


_BY_TYPE: dict[type[Any], _Encode] = {
    type(None): _none,
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    bytearray: _bytearray,
    list: _sequence(b"L"),
    tuple: _sequence(b"T"),
    set: _unordered(b"E"),
    frozenset: _unordered(b"Z"),
    dict: _dict,
    Decimal: _decimal,
    UUID: _uuid,
    date: _date,
    time: _time,
    datetime: _datetime,
    timedelta: _timedelta,
    msgspec.UnsetType: _unset,
}
