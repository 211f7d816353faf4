"""Reports: what one send said, and the events that this makes true.

Rule: an attempt is settled once; a report on a settled one only adds evidence. Anything that is no clear
answer is a doubt.
Does not know: what is done next (core/decide.py), or how a tool's exceptions become a report.
"""

from typing import TypeAlias

import msgspec

from evsrc.core.calls import CallState
from evsrc.core.events import (
    CallAccepted,
    CallNotSent,
    CallRejected,
    ErrorData,
    Event,
    EvidenceAdded,
    IntentRecorded,
    OutcomeUnknown,
    ResultRecorded,
)
from evsrc.core.verdicts import Capabilities

RETRY_PAUSE_S = 0.05
"""First pause before a request that was not sent is tried again; doubles per attempt."""

RETRY_PAUSE_S_MAX = 30.0
"""Longest pause before a request that was not sent is tried again; a tool that throttles may ask for
more, and then the time is looked at again after each such pause."""

DOUBLINGS_MAX = 30
"""After so many doublings every pause has met its longest; more would overflow, at a look every few
seconds, within a day's lag."""


class Answered(msgspec.Struct, frozen=True):
    """`send` returned. Without `value` the result cannot be recorded, `why` says so."""

    value: bytes | None
    why: str = ""
    digest: str = ""
    value_type: str = ""


class NoByteLeft(msgspec.Struct, frozen=True):
    """`send` said that nothing was sent, or was cancelled before it began."""

    error: ErrorData
    retry_after_s: float | None = None


class RefusedByTool(msgspec.Struct, frozen=True):
    """`send` said that the tool refused and nothing happened."""

    error: ErrorData


class Doubt(msgspec.Struct, frozen=True):
    """Anything else. `cause`: cancelled, timeout, error, already-there."""

    cause: str
    error: ErrorData | None = None


SendReport: TypeAlias = Answered | NoByteLeft | RefusedByTool | Doubt


def after_send(
    call: CallState, attempt: int, report: SendReport, caps: Capabilities, now_ns: int
) -> tuple[Event, ...]:
    """The events that one send's report makes true. A settled attempt only gains evidence."""
    known = call.attempt(attempt)
    late = known is not None and known.status == "closed" and isinstance(report, Answered)
    if not late and (known is None or known.status in ("done", "closed")):
        return (EvidenceAdded(call.id, attempt, "late answer", type(report).__name__),)
    match report:
        case Answered() if caps.asynchronous and not late:
            # A receipt is not a result: done only when the tool's own look says so.
            return (CallAccepted(call.id, attempt, report.value or b""),)
        case Answered(value, why, digest, value_type):
            return (ResultRecorded(call.id, attempt, value, why, digest, value_type),)
        case RefusedByTool(error):
            return (CallRejected(call.id, attempt, error),)
        case NoByteLeft(error, retry_after_s):
            intent = msgspec.structs.replace(call.intent, attempt=attempt)
            return (not_sent(call, intent, error, caps, now_ns, retry_after_s),)
        case Doubt(cause, error):
            return (OutcomeUnknown(call.id, attempt, cause, error, now_ns),)


def not_sent(
    call: CallState | None,
    intent: IntentRecorded,
    error: ErrorData,
    caps: Capabilities,
    now_ns: int,
    retry_after_s: float | None = None,
) -> CallNotSent:
    """The event of an attempt of which no byte left, recorded already or not: when the next one is due.

    Final once it was the last attempt of the budget, and no other one is out.
    """
    others = [] if call is None else [a for a in call.attempts if a.number != intent.attempt]
    renewed = call is not None and call.intent.asked_digest != intent.asked_digest
    superseded = len(others) if renewed else 0 if call is None else call.superseded
    spent = len(others) + 1 - superseded >= caps.attempts
    final = spent and all(a.status == "closed" for a in others)
    pause_s = retry_after_s
    if pause_s is None:
        pause_s = doubled(RETRY_PAUSE_S, intent.attempt - 1, RETRY_PAUSE_S_MAX)
    retry_at_ns = None if final else now_ns + round(pause_s * 1e9)
    return CallNotSent(intent.call, intent.attempt, error, final, retry_at_ns)


def budget_left(call: CallState, caps: Capabilities) -> bool:
    return len(call.attempts) - call.superseded < caps.attempts


def doubled(first_s: float, times: int, most_s: float) -> float:
    """`first_s` doubled so often, at most `most_s`: long before 2 to the power of `times` overflows."""
    return min(first_s * 2.0 ** min(times, DOUBLINGS_MAX), most_s)
