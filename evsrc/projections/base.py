"""The contract of a projection, and catching up with a log.

Rule: a projection is a fold over records in log order; it may be thrown away and rebuilt at any time.
Does not know: who reads it. It never appends.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from evsrc.core.codec import decode_events
from evsrc.core.events import Event
from evsrc.errors import UnknownEvent
from evsrc.log.base import Record


class Seen(msgspec.Struct, frozen=True):
    """One event with its place: what a projection is fed."""

    run: str
    event: Event
    position: int
    time_ns: int


class Projection(Protocol):
    """A view that is built by `apply`, one event after the other."""

    def apply(self, seen: Seen, /) -> None:
        """Take in one event. Deterministic; must not fail on events that it does not use."""
        ...


class CaughtUp(msgspec.Struct, frozen=True):
    """How far a catch-up came: last position, and runs that hold an event this version cannot read."""

    position: int
    unreadable: dict[str, str] = {}


def catch_up(projection: Projection, records: Iterable[Record], *, after: int = 0) -> CaughtUp:
    """Feed every event of `records` with a position beyond `after`, in log order.

    An unknown event stops its own run only: later records of that run are left out and named.

    Raises:
        LogCorrupt: as the reader of `records` does.
    """
    position, unreadable = after, dict[str, str]()
    for record in records:
        if record.position <= after:
            continue
        position = record.position
        if record.stream in unreadable:
            continue
        try:
            events = decode_events(record.body)
        except UnknownEvent as error:
            unreadable[record.stream] = f"position {record.position}: {error}"
            continue
        for event in events:
            projection.apply(Seen(record.stream, event, record.position, record.time_ns))
    return CaughtUp(position, unreadable)
