"""Keys and ids: all derived, never drawn, so that a lost log tail derives the same ones again.

Rule: parts are tagged and length-prefixed, never joined by a separator, so no two lists of parts run
together; a missing part differs from an empty one. Every derivation opens with a format tag of its
own: keys of different kinds never meet, and a derivation can be changed later beside the old one.
No attempt, time or random goes in.
Does not know: where its parts come from. Digests of files, code and values are handed in.
Must change together: docs/reference/keys.md; a changed derivation needs a new format tag.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import TypeAlias

import msgspec

from evsrc.errors import LimitExceeded

RUN_ID_BYTES_MAX = 200
"""Longest run id in UTF-8. It is the stream's name in the log, which has the same limit."""

ID_CHARS = 25
"""Characters after an id's letter: 125 bits of the digest; two of 2**50 ids meet with 1 in 2**26."""

MARKER_PREFIX = "evsrc-"
MARKER_NAMESPACE_CHARS = 6
"""30 bits tell namespaces apart in a sweep. Not a secret: the whole marker is compared, always."""
MARKER_KEY_CHARS = 20
"""100 bits of the key. With prefix and namespace 32 characters: short enough for any title or tag."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]

_Part: TypeAlias = "str | bytes | int | None | tuple[str, ...] | Mapping[str, str]"


# ---- calls ----------------------------------------------------------------------------------------


def idempotency_key(
    *,
    namespace: str,
    run_id: str,
    scope: tuple[str, ...],
    tool: str,
    instance: str,
    label: str,
    ordinal: int,
    arguments: bytes,
) -> str:
    """The key of one logical call, 64 hex digits: what a tool may remember it by.

    `arguments` is their canonical form. With a label the ordinal does not count; an empty label means
    that there is none.
    """
    place = _place(label, ordinal)
    return _hex("evsrc-key-1", namespace, run_id, scope, tool, instance, *place, arguments)


def own_key(namespace: str, tool: str, instance: str, own: str) -> str:
    """The key of a call whose caller gave a key of their own: without run, scope and arguments."""
    return _hex("evsrc-own-key-1", namespace, tool, instance, own)


def call_id(
    run_id: str, scope: tuple[str, ...], tool: str, instance: str, label: str, ordinal: int
) -> str:
    """The identity of a call: "c" and 25 characters of `[a-z2-7]`. Its arguments are not in it."""
    place = _place(label, ordinal)
    return "c" + _chars(ID_CHARS, "evsrc-call-1", run_id, scope, tool, instance, *place)


def step_id(run_id: str, scope: tuple[str, ...], name: str, label: str, ordinal: int) -> str:
    """The identity of a read: "s" and 25 characters of `[a-z2-7]`."""
    place = _place(label, ordinal)
    return "s" + _chars(ID_CHARS, "evsrc-step-1", run_id, scope, name, *place)


def question_id(subject: str, kind: str, attempt_or_digest: str) -> str:
    """The identity of a question: "q" and 25 characters of `[a-z2-7]`; the same over restarts."""
    return "q" + _chars(ID_CHARS, "evsrc-question-1", subject, kind, attempt_or_digest)


def _place(label: str, ordinal: int) -> tuple[str | None, int | None]:
    return (label, None) if label else (None, ordinal)


# ---- markers --------------------------------------------------------------------------------------


def marker(namespace: str, key: str) -> str:
    """What a tool's object carries so that it is found again: always 32 characters.

    `evsrc-`, 6 characters that say which namespace, 20 that say which call.
    """
    return (
        MARKER_PREFIX
        + marker_namespace(namespace)
        + _chars(MARKER_KEY_CHARS, "evsrc-marker-1", namespace, key)
    )


def marker_namespace(namespace: str) -> str:
    """The characters of a marker that say which namespace it is of."""
    return _chars(MARKER_NAMESPACE_CHARS, "evsrc-namespace-1", namespace)


def is_ours(marker: str, namespace: str) -> bool:
    """Is this exactly a marker of that namespace? Text around it, or another case, is a no."""
    start = MARKER_PREFIX + marker_namespace(namespace)
    return (
        len(marker) == len(start) + MARKER_KEY_CHARS
        and marker.startswith(start)
        and set(marker[len(start) :]).issubset(_ALPHABET)
    )


# ---- nodes ----------------------------------------------------------------------------------------


class NodeKeyParts(msgspec.Struct, frozen=True):
    """What a node's output depends on. Empty text: the node does not depend on it."""

    node: str
    code: str
    """Code version."""
    params: str
    """Digest of its parameters."""
    input: str = ""
    """Digest of the flow's input, if the node takes it."""
    run_id: str = ""
    """The run, if the node takes it: then nothing below is shared with other runs."""
    item: str = ""
    """Digest of the item of a fan-out."""
    upstream: dict[str, str] = {}
    """Node -> its key."""
    files: dict[str, str] = {}
    """Path as declared -> digest of the file."""


def node_key(parts: NodeKeyParts) -> str:
    """The content address of a node's output, 64 hex digits. The attempt is not in it."""
    return _hex(
        "evsrc-node-1",
        parts.node,
        parts.code,
        parts.params,
        parts.input or None,
        parts.run_id or None,
        parts.item or None,
        parts.upstream,
        parts.files,
    )


def parts_digests(parts: NodeKeyParts) -> dict[str, str]:
    """The parts by name, as recorded beside the output, so that a plan can say which one differs.

    Names: `code`, `params`, `input`, `run`, `item`, `upstream:NODE`, `file:PATH`.
    """
    digests = {"code": parts.code, "params": parts.params}
    if parts.input:
        digests["input"] = parts.input
    if parts.run_id:
        digests["run"] = bytes_digest(_text(parts.run_id))
    if parts.item:
        digests["item"] = parts.item
    digests.update({f"upstream:{name}": parts.upstream[name] for name in sorted(parts.upstream)})
    digests.update({f"file:{path}": parts.files[path] for path in sorted(parts.files)})
    return digests


def why(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the parts that differ, appeared or went: those of `now` first, in their order."""
    changed = [name for name, digest in now.items() if recorded.get(name) != digest]
    return changed + [name for name in recorded if name not in now]


# ---- runs -----------------------------------------------------------------------------------------


def run_id_for(workflow: str, input_digest: str) -> str:
    """The id of a run started without one: "r" and 25 characters of `[a-z2-7]`."""
    return "r" + _chars(ID_CHARS, "evsrc-run-1", workflow, input_digest)


def check_run_id(run_id: str) -> None:
    """Refuse a run id that could not name a stream. Ids come from alerts, which attackers write.

    Raises:
        LimitExceeded: it is empty, longer than `RUN_ID_BYTES_MAX`, or no valid Unicode.
    """
    try:
        size = len(run_id.encode())
    except UnicodeEncodeError as error:
        raise LimitExceeded(
            f"run id {run_id[:40]!a}: a lone surrogate at {error.start}; expected valid Unicode"
        ) from error
    if not 1 <= size <= RUN_ID_BYTES_MAX:
        raise LimitExceeded(
            f"run id {run_id[:40]!a}: {size} bytes of UTF-8; expected 1 to {RUN_ID_BYTES_MAX}: take "
            "a digest of the long one"
        )


# ---- how parts become bytes -----------------------------------------------------------------------


def bytes_digest(data: bytes) -> str:
    """SHA-256 of bytes as they are, 64 hex digits."""
    return sha256(data).hexdigest()


def _hex(format_tag: str, *parts: _Part) -> str:
    return sha256(_framed((format_tag, *parts))).hexdigest()


def _chars(count: int, format_tag: str, *parts: _Part) -> str:
    """The first characters of a digest in base 32: two at a time, since folds derive many ids."""
    bits = int.from_bytes(sha256(_framed((format_tag, *parts))).digest(), "big")
    return "".join([_PAIRS[bits >> shift & 1023] for shift in range(246, 116, -10)])[:count]


def _framed(parts: tuple[_Part, ...]) -> bytes:
    return b"".join([_frame(part) for part in parts])


def _frame(part: _Part) -> bytes:
    """One part: a letter for its type, its length, its bytes. Nothing else has the same bytes."""
    if part is None:
        return b"-"
    if isinstance(part, str):
        tag, body = b"s", _text(part)
    elif isinstance(part, bytes):
        tag, body = b"b", part
    elif isinstance(part, int):
        tag, body = b"i", b"%d" % part
    elif isinstance(part, tuple):
        tag, body = b"t", _framed(part)
    else:
        tag, body = b"m", b"".join([_framed(pair) for pair in sorted(part.items())])
    return tag + len(body).to_bytes(8, "big") + body


def _text(text: str) -> bytes:
    # A lone surrogate keeps bytes of its own that no valid text has. Refusing it is not done here:
    # deriving an id, as every fold does, never fails.
    return text.encode("utf-8", "surrogatepass")
