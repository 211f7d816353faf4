"""Settling: what a look at the tool allows, given what the tool declares.

Rule: only this file turns "absent" into "safe to resend". Every doubt, above all about time, forbids it.
Does not know: how the tool is asked, who waits, or what is done with the answer (core/decide.py).
Must change together: docs/how-to/write-an-adapter.md, which tells authors what each declaration buys.

Sources: semantics of intents and outcomes, section 4 of the design; the five causes of a wrong "absent"
(lagging index, effect undone since, marker dropped, look cut short, request still in flight).
"""

from typing import Literal, TypeAlias

import msgspec

from evsrc.core.calls import CallState
from evsrc.core.verdicts import Absent, AnyVerdict, Capabilities, Effect

Permission: TypeAlias = Literal["proven-absent", "resend", "look-again", "forbidden"]

LATE_S_UNDECLARED = 60.0
"""How long a resend waits after a human's "absent" where the tool declares no `late_s`: as long as the
default time-out, since a request that is still under way is rarely older than its own time-out."""


class Look(msgspec.Struct, frozen=True):
    """One answer of `probe`, and how long after the last possible departure it was begun (seconds)."""

    verdict: AnyVerdict
    waited_s: float


class Allowed(msgspec.Struct, frozen=True):
    """What may follow, by which rule, and which declaration would have allowed more."""

    permission: Permission
    rule: str
    missing: tuple[str, ...] = ()
    wait_s: float = 0.0


def horizon_s(caps: Capabilities) -> float | None:
    """Seconds after which an effect must be visible, None where a declaration is missing."""
    if caps.lag_s is None or caps.late_s is None:
        return None
    return caps.lag_s + caps.late_s


def window_open(call: CallState, caps: Capabilities, now_ns: int) -> bool:
    """Does the tool surely still remember our key when a request sent now arrives at its latest?

    Measured from the first attempt's intent. A clock that went backwards is a doubt: closed. So is a
    request that may land whenever it likes, which is what an undeclared `late_s` means.
    """
    if caps.effect is not Effect.KEYED or caps.window_s is None or caps.late_s is None:
        return False
    if not call.attempts:
        return False
    age_s = (now_ns - call.attempts[0].at_ns) / 1e9
    newest_s = (now_ns - call.attempts[-1].at_ns) / 1e9
    reserve_s = caps.timeout_s + caps.late_s
    return newest_s >= 0 and 0 <= age_s < caps.window_s - reserve_s


def may_resend(call: CallState, caps: Capabilities, look: Look | None, now_ns: int) -> Allowed:
    """May a further attempt be sent, given the newest look (None: not looked, or it cannot look)?"""
    if call.resend_by:
        return Allowed("resend", f"{call.resend_by} said by name that it may be sent again")
    if window_open(call, caps, now_ns):
        return Allowed("resend", "keyed, inside the window: the tool drops a second request")
    absent = look is not None and isinstance(look.verdict, Absent)
    if caps.effect is Effect.NAMED and (absent or not caps.can_probe):
        return Allowed("resend", "named: a second create meets the first one and is refused")
    if look is None or not isinstance(look.verdict, Absent):
        return _not_absent(caps, look)
    return _absent(caps, look, look.verdict)


def _not_absent(caps: Capabilities, look: Look | None) -> Allowed:
    if caps.can_probe:
        return Allowed("look-again", "no answer yet that excludes the effect")
    missing = ["probe"]
    if caps.effect is Effect.KEYED:
        missing += [name for name in ("window_s", "late_s") if getattr(caps, name) is None]
    return Allowed("forbidden", "the tool cannot be asked what happened", tuple(missing))


def _absent(caps: Capabilities, look: Look, verdict: Absent) -> Allowed:
    if not verdict.complete:
        return Allowed(
            "look-again", "the look did not cover every place", ("Absent(complete=True)",)
        )
    missing = [name for name in ("lag_s", "late_s") if getattr(caps, name) is None]
    if not caps.history:
        missing.append("history")
    horizon = horizon_s(caps)
    if not missing and horizon is not None and look.waited_s >= horizon:
        return Allowed("proven-absent", f"complete look, {horizon:g} s of lag and lateness passed")
    if caps.effect is Effect.STATE and caps.fence and caps.resend_safe:
        return Allowed("resend", "state: not satisfied, and the send is fenced by the prior state")
    if horizon is not None and look.waited_s < horizon:
        # Also where absence will prove nothing: what shows up until then spares a question.
        return Allowed(
            "look-again",
            f"absent within the horizon of {horizon:g} s says nothing yet",
            tuple(missing),
            wait_s=horizon - look.waited_s,
        )
    rule = "absent proves nothing while the tool does not declare more"
    return Allowed("forbidden", rule, tuple(missing))
