"""Delivering: a recorded outcome as user code gets it, the same on the first run and on every replay.

Rule: what is handed out is decoded from what was recorded; an error has the same type and text for ever.
Does not know: when it is handed out (replay.py), or how it came about (driver.py).
"""

from typing import Any

from evsrc.core import canonical
from evsrc.core.calls import CallState, Done, NeverSent, Refused, Skipped
from evsrc.core.codec import decode_value, plain
from evsrc.core.events import StepRecorded
from evsrc.core.state import ReadState
from evsrc.errors import (
    DivergenceError,
    NotSent,
    OutcomeSkipped,
    Rejected,
    ResultUnusable,
    StaleIntent,
    StepFailed,
    UnusableValue,
)
from evsrc.runtime.signature import Signature
from evsrc.tools.binding import Bound
from evsrc.tools.bound import BoundTool


def differing(call: CallState | None, bound: Bound) -> list[str]:
    """Paths of the arguments that differ from the recorded ones."""
    if call is None:
        return []
    recorded, asked = plain(call.intent.asked), plain(bound.asked)
    return canonical.differing(recorded, asked)


def check_read(known: ReadState, digest: str) -> None:
    """Raises DivergenceError if a recorded read is asked for with other arguments."""
    if known.event.args_digest != digest:
        raise DivergenceError(
            f"step {known.event.name} #{known.event.ordinal} in scope "
            f"{'/'.join(known.event.scope) or '(run)'} was recorded with other arguments. "
            "Deploy the code that recorded it, or give the new step a label of its own."
        )


def deliver_read(signature: Signature, event: StepRecorded) -> Any:
    """The recorded value of a read, decoded. Raises StepFailed as recorded."""
    if event.error is not None:
        raise StepFailed(event.error.type, event.error.message, event.error.transient)
    return decode_value(event.value or b"", signature.returns)


def deliver(tool: BoundTool, call: CallState) -> Any:
    """The recorded outcome, as the caller gets it: the same on the first run and on every replay."""
    match call.outcome:
        case Done(value=None, why=why):
            raise ResultUnusable(f"call {call.id} of {tool.name} is done, but {why}")
        case Done(value=bytes() as value):
            try:
                return decode_value(value, tool.return_annotation)
            except UnusableValue as error:
                raise ResultUnusable(
                    f"call {call.id} of {tool.name} is done; its value as recorded does not fit "
                    f"{tool.return_annotation!r}: {error}"
                ) from error
        case Refused(error):
            raise Rejected(error.message)
        case NeverSent(error):
            if error.type == "StaleIntent":
                raise StaleIntent(error.message)
            raise NotSent(error.message)
        case Skipped(by, why):
            raise OutcomeSkipped(f"call {call.id} of {tool.name}: skipped by {by}: {why}")
        case _:
            raise AssertionError(f"call {call.id} ended without an outcome")
