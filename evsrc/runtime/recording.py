"""Recording: errors, results and verdicts as the data that events hold.

Rule: bounded, encodable, and free of a call's secrets as far as its tool echoes them literally. What
cannot be recorded is described instead, never dropped.
Does not know: events, or what follows from what it describes.
"""

import hashlib
from typing import Any

import msgspec

from evsrc.core.codec import round_trip
from evsrc.core.events import ErrorData
from evsrc.core.reports import Answered
from evsrc.core.verdicts import AnyVerdict
from evsrc.errors import StepFailed, Transient, UnusableValue
from evsrc.tools.call import Call

VALUE_BYTES_MAX = 512 * 1024
"""Largest result of a tool: half a record's body, so that the event around it always fits."""

ERROR_TEXT_MAX = 2000
"""Characters kept of an error's text: enough for a stack of causes, not for a page of HTML."""


def error_data(error: BaseException, call: Call | None = None) -> ErrorData:
    """An error as data, its text without the secrets that `call` has looked up."""
    if isinstance(error, StepFailed):
        return ErrorData(error.type_name, error.message, error.transient)
    transient = isinstance(error, ConnectionError | TimeoutError | Transient)
    text = str(error) if call is None else call.redact(str(error))
    # Tools echo what attackers wrote: a lone surrogate would make the event itself unrecordable.
    text = text[:ERROR_TEXT_MAX].encode("utf-8", "backslashreplace").decode()
    return ErrorData(type(error).__name__, text, transient)


def answered(value: Any, annotation: Any) -> Answered:
    """A tool's result, encoded; or, where it cannot be recorded, why not, with its digest and type."""
    try:
        data, _ = round_trip(value, annotation)
    except UnusableValue as error:
        digest = hashlib.sha256(repr(value).encode("utf-8", "replace")).hexdigest()
        return Answered(None, str(error)[:500], digest, type(value).__qualname__)
    if len(data) > VALUE_BYTES_MAX:
        why = f"result of {len(data)} bytes, at most {VALUE_BYTES_MAX}"
        return Answered(None, why, hashlib.sha256(data).hexdigest(), type(value).__qualname__)
    return Answered(data)


def redacted(verdict: AnyVerdict, call: Call) -> AnyVerdict:
    """The verdict without secrets in its texts: they end in questions, which people read and forward."""
    texts = {
        name: call.redact(text)
        for name in ("evidence", "reason", "found")
        if (text := getattr(verdict, name, ""))
    }
    return msgspec.structs.replace(verdict, **texts)
