"""Messages from other processes: what may be dropped into a log's inbox, and how it is read.

Rule: a message is data from outside: it is decoded strictly, deduplicated by id, applied by the owner of
the log, and its file goes only after what it caused is durable.
Does not know: what an answer means (core/decide.py).
"""

from typing import Any, Literal

import msgspec

POLL_S = 0.1
"""How often a running agent looks into its inbox: a human's answer may wait that long."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message. `payload` depends on `kind`; `id` is unique per message, drawn by its sender."""

    id: str
    kind: Literal["answer", "start"]
    run: str = ""
    payload: dict[str, Any] = {}
    sender: str = ""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of an answer: about a call (or a question), by whom, and why.

    `value` is plain data, given with "happened" only.
    """

    subject: str
    answer: Literal["happened", "absent", "resend", "skip", "keep"]
    by: str
    reason: str = ""
    value: Any = None


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of a start: the workflow's name and its input as plain data."""

    workflow: str
    input: Any = None


def encode(message: Message) -> bytes:
    """As it lies in the inbox: JSON, readable by an operator."""
    return msgspec.json.encode(message)


def decode(data: bytes) -> Message:
    """Raises msgspec.DecodeError or ValidationError for what is no message."""
    return msgspec.json.decode(data, type=Message)
