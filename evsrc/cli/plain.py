"""Plain data: events, states and values as what JSON can say, and JSON that a terminal survives.

Rule: bytes of users are shown decoded where they are msgpack, else under the key "base64". JSON is
written in ASCII: a control character of an alert stays an escape on its way through a terminal.
Does not know: which event means what.
"""

import base64
import json
import math
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from evsrc.core.codec import plain
from evsrc.errors import UnusableValue
from evsrc.projections.base import Seen


def jsonable(value: Any) -> Any:
    """The value as dicts with text keys, lists, and scalars that JSON knows."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode("ascii")}
        case dict():
            pairs = cast("Any", value)
            return {k if isinstance(k, str) else repr(k): jsonable(v) for k, v in pairs.items()}
        case list() | tuple() | set() | frozenset():
            return [jsonable(member) for member in cast("list[Any]", value)]
        case _:
            return jsonable(msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=repr))


def recorded(data: bytes) -> Any:
    """Recorded bytes as plain data; what is no msgpack as {"base64": ...}."""
    try:
        return jsonable(plain(data))
    except UnusableValue:
        return jsonable(data)


def fields(event: dict[str, Any]) -> dict[str, Any]:
    """The fields of one event, bytes decoded."""
    return {
        name: recorded(value) if isinstance(value, bytes) else jsonable(value)
        for name, value in event.items()
    }


def event_object(seen: Seen) -> dict[str, Any]:
    """One event with its place: position, run, time, type, then its fields."""
    event = seen.event
    return place(seen.position, seen.run, seen.time_ns, type(event).__name__) | fields(
        msgspec.structs.asdict(event)
    )


def place(position: int, run: str, time_ns: int, type_name: str) -> dict[str, Any]:
    """Where an event stands."""
    return {"position": position, "run": run, "time": when(time_ns), "type": type_name}


def when(time_ns: int) -> str:
    """Nanoseconds since 1970 as UTC, to the microsecond; empty for 0."""
    if time_ns == 0:
        return ""
    try:
        moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"  # a clock gone mad is no reason to hide the event
    moment = moment.replace(microsecond=time_ns // 1000 % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """As ASCII: not even a C1 control or a bidi override is written as itself."""
    return json.dumps(jsonable(value), ensure_ascii=True, indent=indent)
