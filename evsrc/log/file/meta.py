"""`log.meta`, as pure bytes: who the log is. Written once, last of all when a log is made.

Two lines: a JSON object with format, log_id (hex), namespace, created_ns; then the hex SHA-256 of the
first line, its line feed included. The namespace enters idempotency keys, so a flipped bit in it would
send everything twice: hence the digest.

Rule: a folder without it is not a log yet.
Does not know: files, segments.
"""

from hashlib import sha256

import msgspec

from evsrc.log.file.framing import FORMAT_VERSION

META_NAME = "log.meta"

META_BYTES_MAX = 4096
"""What is read of the file: ids are 32 digits, a namespace is short."""

NAMESPACE_BYTES_MAX = 200
"""As long as a stream name: room for a team, a system and an environment."""


class Meta(msgspec.Struct, frozen=True):
    """The identity of a log."""

    format: int
    log_id: str
    namespace: str
    created_ns: int


def encode_meta(meta: Meta) -> bytes:
    """Return the bytes of `log.meta`."""
    line = msgspec.json.encode(meta) + b"\n"
    return line + sha256(line).hexdigest().encode() + b"\n"


def decode_meta(data: bytes) -> Meta:
    """Read `log.meta`.

    Raises: ValueError: its digest does not fit, or it is of another format version.
    """
    line, separator, digest = data.partition(b"\n")
    line += separator
    if digest != sha256(line).hexdigest().encode() + b"\n":
        raise ValueError("log.meta does not verify")
    meta = msgspec.json.decode(line, type=Meta)
    if meta.format != FORMAT_VERSION:
        raise ValueError(f"log format {meta.format} is not known here, expected {FORMAT_VERSION}")
    return meta
