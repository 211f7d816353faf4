"""Effects, declared capabilities and verdicts: what a tool can tell us, as data.

Rule: undeclared takes the worst value. An effect class is only a preset of capabilities; the one
predicate that reads them stands in core/decide.py.
Does not know: how a tool is called, or what a verdict leads to.
"""

from enum import Enum
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

R = TypeVar("R")

TIMEOUT_S_DEFAULT = 60.0
"""A send that has not answered after this is of unknown outcome: long enough for slow ticketing tools."""


class Effect(Enum):
    """What a tool does to the world, and how it can be recognised later."""

    READ = "read"
    """Changes nothing: run again at will."""
    KEYED = "keyed"
    """The tool remembers our idempotency key, for a declared window."""
    NAMED = "named"
    """Our id is the object's id: a second create is refused by the tool."""
    STATE = "state"
    """A target state is set: read first, satisfied is done."""
    MARKED = "marked"
    """Only a search for our marker tells, with a declared lag."""
    BLIND = "blind"
    """Nothing tells. The default of an undeclared tool."""


OnUnknown: TypeAlias = Literal["ask", "resend", "skip"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool declares. Durations in seconds; None means undeclared, which is the worst."""

    effect: Effect = Effect.BLIND
    timeout_s: float = TIMEOUT_S_DEFAULT
    window_s: float | None = None
    """How long the tool remembers a key, from its first use. None: no window at all."""
    lag_s: float | None = None
    """How long an effect that happened may stay invisible to `probe`."""
    late_s: float | None = None
    """How long after the end of `send` a request may still land."""
    history: bool = False
    """Does `probe` still see an effect after it was closed, deleted or undone?"""
    resend_safe: bool = False
    """Is sending the same state twice harmless, also late?"""
    fence: bool = False
    """Does the tool refuse a send whose prior state has changed?"""
    atomic: bool = False
    asynchronous: bool = False
    """Accepted is not done: only `probe` says done."""
    can_probe: bool = False
    can_sweep: bool = False
    on_unknown: OnUnknown = "ask"
    attempts: int = 3
    """How many intents one call may have."""
    cost: float = 0.0


class Happened(msgspec.Struct, Generic[R], frozen=True, tag="happened"):
    """The effect is there. `gone`: it was, and has ended since: done, never resent."""

    value: R
    whose: Literal["ours", "theirs", "unknown"] = "ours"
    gone: bool = False
    evidence: str = ""


class Absent(msgspec.Struct, frozen=True, tag="absent"):
    """The effect was not seen. `complete`: the look covered every place where it could be."""

    complete: bool = False
    evidence: str = ""


class InProgress(msgspec.Struct, frozen=True, tag="in-progress"):
    """The tool is still at it."""

    retry_after_s: float = 1.0
    evidence: str = ""


class Undetermined(msgspec.Struct, frozen=True, tag="undetermined"):
    """The tool cannot tell, now."""

    reason: str = ""


class Conflict(msgspec.Struct, frozen=True, tag="conflict"):
    """More than one match, or an equal name with other content: always a question to a human."""

    found: str
    evidence: str = ""


Verdict: TypeAlias = Happened[R] | Absent | InProgress | Undetermined | Conflict
AnyVerdict: TypeAlias = Happened[Any] | Absent | InProgress | Undetermined | Conflict


class Found(msgspec.Struct, frozen=True):
    """One effect that a sweep saw: its marker, the tool's reference, and when (ns, 0 if unknown)."""

    marker: str
    ref: str
    at_ns: int = 0
