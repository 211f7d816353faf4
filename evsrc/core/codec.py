"""Codec: events and users' values to msgpack bytes and back, and the round trip that is type-true.

Rule: what is recorded is decoded before it is handed on, and a value that would come back as another
type or another value is refused first, with the path to it. Digests are never taken over these bytes
for identity: that is core/canonical.py.
Does not know: records, streams, keys; whose values these are.
Must change together: core/events.py (the union), docs/reference/canonical-form.md (the zone of times).

Dicts are written in their own order: msgspec's deterministic order refuses keys that are no strings and
forgets the order, which the first run would still show and a replay would not.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, cast

import msgspec

from evsrc.core.events import Event
from evsrc.errors import DefinitionError, UnknownEvent, UnusableValue

DECODERS_MAX = 512
"""Decoders kept: one per annotation of a process's tools, steps and nodes; each is a few kilobytes."""

WHY_CHARS_MAX = 300
"""Longest reason quoted from another library: it may quote the value, which may be a megabyte."""

_ENCODER = msgspec.msgpack.Encoder()
_EVENTS: msgspec.msgpack.Decoder[list[Event]] = msgspec.msgpack.Decoder(list[Event])
_MAPS: msgspec.msgpack.Decoder[list[dict[str, Any]]] = msgspec.msgpack.Decoder(list[dict[str, Any]])
_TAGS = frozenset(cast("type", event).__name__ for event in Event.__args__)

_FLAT = frozenset({type(None), bool, int, float, str, bytes})
"""Types of which `==` and the type say everything. A list of only these is compared in one go."""

# Says the type only: values, which may be secrets or a megabyte, stay out of messages that are logged.
_CHANGED = ("", "would come back with another value (NaN is never the same)")

_Change: TypeAlias = tuple[str, str] | None
"""Where two values differ, as a path built from the inside out, and how. None: they do not."""


# ---- events ---------------------------------------------------------------------------------------


def encode_events(events: Sequence[Event]) -> bytes:
    """The body of one record: a msgpack array of maps.

    Raises:
        UnusableValue: a text in an event cannot be written as UTF-8 (a lone surrogate).
    """
    return _encode(list(events), "events")


def decode_events(body: bytes) -> list[Event]:
    """The events of one record's body. Fields that this version does not know are ignored.

    Raises:
        UnknownEvent: an event has a tag that this version does not know, or does not fit its tag;
            names the tag and the index in the body. Only the run that holds it is unreadable.
    """
    try:
        return _EVENTS.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unknown(body, error) from error


def decode_plain(body: bytes) -> list[dict[str, Any]]:
    """The events of one record's body as maps, the tag under `type`; also those of later versions.

    Raises:
        UnknownEvent: the body is no array of maps.
    """
    try:
        return _MAPS.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnknownEvent(f"the body of a record is no array of events: {error}") from error


def _unknown(body: bytes, error: Exception) -> UnknownEvent:
    for index, event in enumerate(decode_plain(body)):
        tag: Any = event.get("type")
        if not isinstance(tag, str) or tag not in _TAGS:
            return UnknownEvent(
                f"event {index} of the record has the tag {tag!r}, which this version of evsrc does "
                "not know: read this run with the version that wrote it, or a later one"
            )
    return UnknownEvent(
        f"an event of the record does not fit its tag: {error} (`$[i]` counts the events from 0)"
    )


# ---- values ---------------------------------------------------------------------------------------


def encode_value(value: Any, annotation: Any) -> bytes:
    """A value as msgpack, after making sure that `annotation` gives it back (see `round_trip`).

    Raises:
        UnusableValue: as `round_trip`.
    """
    return round_trip(value, annotation)[0]


def decode_value(data: bytes, annotation: Any) -> Any:
    """A recorded value as its declared type. `Any` gives plain data, `None` only None.

    Raises:
        UnusableValue: the bytes do not fit the annotation, or a class refused them; says where.
        DefinitionError: no decoder can be built for the annotation.
    """
    decoder = _decoder(annotation)
    try:
        return decoder.decode(data)
    except RecursionError as error:
        raise UnusableValue("value", "is nested too deep to be read back") from error
    except Exception as error:  # a class's own __post_init__ may raise anything
        raise UnusableValue("value", f"cannot be read back: {_short(error)}") from error


def plain(data: bytes) -> Any:
    """Recorded bytes as plain data, without the user's classes.

    Raises:
        UnusableValue: the bytes are no msgpack.
    """
    return decode_value(data, Any)


def round_trip(value: Any, annotation: Any) -> tuple[bytes, Any]:
    """The bytes to record, and the value as a replay will see it: hand out that one, not `value`.

    Type and value are the same down the whole tree, which `==` would not say. One exception: an aware
    datetime comes back as the same instant in UTC. With `Any` only plain data passes: None, bool, int,
    float, str, bytes, list, dict, aware datetime.

    Raises:
        UnusableValue: the value cannot be written, cannot be read back, or would come back changed;
            `path` says where: `value.hosts[2]`. NaN, subclasses of a declared class, and int for
            float are among what is refused.
        DefinitionError: no decoder can be built for the annotation.
    """
    data = _encode(value, "value")
    decoded = decode_value(data, annotation)
    try:
        change = _change(value, decoded)
    except RecursionError as error:
        raise UnusableValue("value", "is nested too deep to be compared") from error
    if change is not None:
        raise UnusableValue(f"value{change[0]}", change[1])
    return data, decoded


def same(a: Any, b: Any) -> bool:
    """Are type and value the same down the whole tree? NaN is the same as nothing."""
    return _change(a, b) is None


def check_annotation(annotation: Any, where: str) -> None:
    """Refuse, at definition, an annotation whose values could not be recorded.

    Raises:
        DefinitionError: no decoder can be built (two untagged classes in a union, a name that is not
            defined), or a class in it is unknown to msgspec; `where` opens the message.
    """
    from msgspec import inspect

    try:
        _decoder(annotation)
        info = inspect.type_info(_not_none(annotation))
    except DefinitionError as error:
        raise DefinitionError(f"{where}: {error}") from error
    # msgspec builds a decoder for a class it does not know, and fails at the first value.
    for part in _parts(info):
        if isinstance(part, inspect.CustomType):
            raise DefinitionError(
                f"{where}: {part.cls!r} cannot be recorded; expected a Struct, dataclass, TypedDict, "
                "NamedTuple, Enum or a standard type, or `Any` for plain data"
            )


def _parts(info: Any) -> Iterator[Any]:
    """Everything inside a type's description; classes that contain themselves are seen once."""
    seen: set[int] = set()
    stack: list[Any] = [info]
    while stack:
        part = stack.pop()
        if type(part) is tuple:
            stack += part
        elif isinstance(part, msgspec.Struct) and id(part) not in seen:
            seen.add(id(part))
            yield part
            stack += [getattr(part, name) for name in part.__struct_fields__]


def _not_none(annotation: Any) -> Any:
    return type(None) if annotation is None else annotation


def _decoder(annotation: Any) -> msgspec.msgpack.Decoder[Any]:
    annotation = _not_none(annotation)
    try:
        hash(annotation)
    except TypeError:  # Annotated with a list or dict in it
        return _build(annotation)
    return _cached(annotation)


def _build(annotation: Any) -> msgspec.msgpack.Decoder[Any]:
    try:
        return msgspec.msgpack.Decoder(annotation)
    except (TypeError, ValueError, NameError, AttributeError, RecursionError) as error:
        raise DefinitionError(f"{annotation!r} cannot be recorded: {_short(error)}") from error


_cached = lru_cache(DECODERS_MAX)(_build)


# ---- the encoder's refusals, with a path ----------------------------------------------------------


def _encode(value: Any, root: str) -> bytes:
    try:
        return _ENCODER.encode(value)
    except RecursionError as error:
        raise UnusableValue(root, "is nested too deep, or contains itself") from error
    except Exception as error:  # a property or __iter__ of the user's may raise anything
        path, cause = _culprit(value, error)
        raise UnusableValue(f"{root}{path}", f"cannot be recorded: {_short(cause)}") from error


def _culprit(value: Any, error: Exception) -> tuple[str, Exception]:
    """The innermost part that the encoder refuses: its own errors do not say where."""
    for step, child in _children(value):
        try:
            _ENCODER.encode(child)
        except Exception as inner:  # noqa: BLE001  the same error again, nearer to its cause
            path, cause = _culprit(child, inner)
            return step + path, cause
    return "", error


def _children(value: Any) -> list[tuple[str, Any]]:
    cls: type[object] = type(cast("object", value))
    if issubclass(cls, dict):
        keys = [(f"[key {_short(key)}]", key) for key in value]
        return keys + [(f"[{_short(key)}]", child) for key, child in value.items()]
    if issubclass(cls, list | tuple):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if issubclass(cls, set | frozenset):
        return [("{...}", child) for child in value]
    return [(f".{name}", getattr(value, name, None)) for name in _fields(cls)]


# ---- the comparison -------------------------------------------------------------------------------


def _change(a: object, b: object) -> _Change:
    cls: type[Any] = type(a)
    if cls is not type(b):
        return "", f"is {_name(a)} and would come back as {_name(b)}"
    if cls in _FLAT:
        return None if a == b else _CHANGED
    if cls is list or issubclass(cls, tuple):
        return _sequence_change(a, b)
    if cls is dict:
        return _dict_change(a, b)
    if cls is set or cls is frozenset:
        return _set_change(a, b)
    fields = _fields(cls)
    if not fields:
        return _leaf_change(a, b)
    for name in fields:
        change = _change(getattr(a, name), getattr(b, name))
        if change is not None:
            return f".{name}{change[0]}", change[1]
    return None


def _leaf_change(a: Any, b: Any) -> _Change:
    if isinstance(a, datetime):
        equal = (a.tzinfo is None) == (b.tzinfo is None) and a == b
    elif isinstance(a, Decimal):
        equal = a == b and a.as_tuple() == b.as_tuple()
    elif isinstance(a, Enum):
        equal = a is b
    else:
        # A class without fields compares by its own `==`, and one without `==` by nothing.
        equal = bool(a == b) or cast("Any", type(a)).__eq__ is object.__eq__
    return None if equal else _CHANGED


def _sequence_change(a: Any, b: Any) -> _Change:
    if len(a) != len(b):
        return "", f"has {len(a)} elements and would come back with {len(b)}"
    types = list(map(type, a))
    if _FLAT.issuperset(types) and types == list(map(type, b)) and a == b:
        # The same NaN object is "equal" inside a list; a decoded one is another object.
        return None
    for index, (one, other) in enumerate(zip(a, b, strict=True)):
        change = _change(one, other)
        if change is not None:
            return f"[{index}]{change[0]}", change[1]
    return None


def _dict_change(a: Any, b: Any) -> _Change:
    if len(a) != len(b):
        return "", f"has {len(a)} keys and would come back with {len(b)}"
    for (key, one), (other_key, other) in zip(a.items(), b.items(), strict=True):
        change = _change(key, other_key)
        if change is not None:
            return f"[key {_short(key)}]{change[0]}", change[1]
        change = _change(one, other)
        if change is not None:
            return f"[{_short(key)}]{change[0]}", change[1]
    return None


def _set_change(a: Any, b: Any) -> _Change:
    if len(a) != len(b):
        return "", f"has {len(a)} elements and would come back with {len(b)}"
    found = {element: element for element in b}
    for element in a:
        if element not in found:
            return "{...}", _CHANGED[1]
        change = _change(element, found[element])
        if change is not None:
            return "{...}" + change[0], change[1]
    return None


def _fields(cls: Any) -> tuple[str, ...]:
    if issubclass(cls, msgspec.Struct):
        names: tuple[str, ...] = cls.__struct_fields__
        return names
    if hasattr(cls, "__dataclass_fields__"):
        from dataclasses import fields

        return tuple(field.name for field in fields(cls))
    return ()


def _name(value: Any) -> str:
    return type(value).__qualname__


def _short(value: object) -> str:
    text = str(value) if isinstance(value, BaseException) else repr(value)
    return text if len(text) <= WHY_CHARS_MAX else text[:WHY_CHARS_MAX] + "..."
