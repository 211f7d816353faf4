"""Departure: the last question before a request leaves. May it still, and if not, what is recorded instead?

Rule: every permission that time, a queue or another run can take away is checked here, and nowhere after:
before the intent, so that no intent says what is not so, and once more when the intent is down.
Does not know: tools, clocks, sweeps. What of them matters enters as `Departure`.
Must change together: core/decide.py (whether an attempt is owed at all).
"""

import msgspec

from evsrc.core.calls import CallState
from evsrc.core.events import CallNotSent, ErrorData, Event, IntentRecorded, OutcomeUnknown
from evsrc.core.reports import not_sent
from evsrc.core.verdicts import Capabilities

SEND_BY_S = 60.0
"""An intent older than this is not sent any more: a process that was stopped in between may have been
replaced. Long enough for a slow disk, far shorter than any take-over."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell knows at this instant."""

    now_ns: int
    stale: bool = False
    """Was the call already too old when the attempt was decided?"""
    failure: ErrorData | None = None
    """Why what must be known before the send could not be looked up."""
    gave_up: bool = False
    """Did the caller leave?"""
    seen_elsewhere: bool = False
    """May the effect be there already: swept without an intent, or made by another run under this key?"""


def instead_of_sending(
    call: CallState | None, intent: IntentRecorded, caps: Capabilities, at: Departure
) -> tuple[Event, ...]:
    """The events that take the place of the send; empty: it may leave now."""
    too_late = intent.not_after_ns is not None and at.now_ns > intent.not_after_ns
    if at.failure is not None:
        return (not_sent(call, intent, at.failure, caps, at.now_ns),)
    if at.stale or too_late:
        error = ErrorData("StaleIntent", "the call is older than its not_after: not sent")
        return (CallNotSent(intent.call, intent.attempt, error, final=True),)
    if intent.send_by_ns is not None and at.now_ns > intent.send_by_ns:
        error = ErrorData("NotSent", "the intent was too old to be sent")
        return (not_sent(call, intent, error, caps, at.now_ns),)
    if at.gave_up:
        error = ErrorData("NotSent", "the caller left before the send")
        return (not_sent(call, intent, error, caps, at.now_ns),)
    if at.seen_elsewhere and intent.attempt == 1:
        # Once the look that follows has excluded it, a further attempt is like any other.
        return (OutcomeUnknown(intent.call, intent.attempt, "swept", at_ns=at.now_ns),)
    return ()
