"""Replaying: which recorded outcomes are owed to user code, and in which order.

Rule: replay first, then live. Recorded outcomes are handed out one at a time, in log order, each to the
call that asked for it; nothing new is asked of the world before the last of them was handed out.
Does not know: tasks and waiting. The queue that makes user code wait is runtime/replay.py.
"""

from typing import Literal, TypeAlias

import msgspec

from evsrc.core import keys
from evsrc.core.events import Event, Scope, StepRecorded
from evsrc.core.state import ReadState, RunState

Kind: TypeAlias = Literal["outcome", "abandoned"]


class Recorded(msgspec.Struct, frozen=True):
    """One outcome that user code saw: of a call or a read, or that its caller gave up waiting."""

    id: str
    order: int
    kind: Kind
    waited_s: float = 0.0


def within(scope: Scope, unit: Scope) -> bool:
    """Does `scope` lie in `unit`?"""
    return scope[: len(unit)] == unit


def recorded(state: RunState, unit: Scope) -> list[Recorded]:
    """What user code in `unit` saw, in the order in which it saw it."""
    # Cancelled while its value was being written: the caller saw the cancel, not the value.
    seen_reads = [r for r in state.reads.values() if r.id not in state.gave_up]
    found = [_read(r) for r in seen_reads if within(r.event.scope, unit)]
    for given_up in state.gave_up.values():
        event = given_up.event
        if within(event.scope, unit):
            found.append(Recorded(event.subject, given_up.order, "abandoned", event.waited_s))
    for call in state.calls.values():
        # A caller that gave up saw that, whatever became of the call afterwards.
        seen = call.outcome is not None and call.id not in state.gave_up
        if seen and within(call.intent.scope, unit):
            found.append(Recorded(call.id, call.outcome_order, "outcome"))
    return sorted(found, key=lambda r: r.order)


def _read(read: ReadState) -> Recorded:
    kind: Kind = "abandoned" if read.event.abandoned else "outcome"
    return Recorded(read.id, read.order, kind, read.event.waited_s)


def owed(state: RunState, unit: Scope) -> dict[str, str]:
    """Id -> description of every call and read in `unit` that the code must ask for again."""
    names = {
        r.id: _name(r.event.name, r.event.label, r.event.ordinal, r.event.scope)
        for r in state.reads.values()
        if within(r.event.scope, unit)
    }
    for given_up in state.gave_up.values():
        event = given_up.event
        if within(event.scope, unit):
            names[event.subject] = _name(event.name, "", 0, event.scope)
    for call in state.calls.values():
        i = call.intent
        if within(i.scope, unit) and not (call.without_effect and call.outcome is None):
            names[call.id] = _name(i.tool, i.label, i.ordinal, i.scope)
    return names


def _name(name: str, label: str, ordinal: int, scope: Scope) -> str:
    which = repr(label) if label else f"#{ordinal}"
    return f"{name} {which} in {'/'.join(scope) or '(run)'}"


def outcome_of(state: RunState, event: Event) -> str:
    """Id of the call or read whose outcome this event, just folded into `state`, is; else empty."""
    if isinstance(event, StepRecorded):
        return keys.step_id(state.run_id, event.scope, event.name, event.label, event.ordinal)
    call = state.calls.get(getattr(event, "call", ""))
    ended = call is not None and call.outcome is not None and call.outcome_order == state.events
    return call.id if call is not None and ended else ""
