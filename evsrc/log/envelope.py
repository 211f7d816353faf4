"""The envelope: how a record's fields become the payload bytes that a log stores, and back.

Payload = 32 bytes record id, then a msgpack array of eight:
stream, version, count, time_ns, previous, epoch, token, body. The record id is the SHA-256 of that
array *as stored*. Elements may be added at the end of the array; readers ignore what they do not know.

Rule: the id is verified over the stored bytes, never over a re-encoding.
Does not know: positions, files, what a body means.
Must change together: `tests/log/independent_reader.py`, and the format number if an element changes.
"""

from hashlib import sha256

import msgspec

from evsrc.log.base import BODY_BYTES_MAX, STREAM_BYTES_MAX, Record

ID_BYTES = 32
"""A record id is a SHA-256."""

PAYLOAD_BYTES_MAX = BODY_BYTES_MAX + STREAM_BYTES_MAX + 1024
"""Largest payload this version writes: the body, the stream's name, and room for the other fields."""


class _Fields(msgspec.Struct, array_like=True, frozen=True):
    stream: str
    version: int
    count: int
    time_ns: int
    previous: bytes
    epoch: int
    token: str
    body: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Fields)


def seal(
    *,
    position: int,
    stream: str,
    version: int,
    count: int,
    time_ns: int,
    previous: bytes,
    body: bytes,
    epoch: int = 0,
    token: str = "",
) -> tuple[Record, bytes]:
    """Return the record with its id, and its payload bytes."""
    fields = _encoder.encode(_Fields(stream, version, count, time_ns, previous, epoch, token, body))
    record_id = sha256(fields).digest()
    record = Record(
        position, stream, version, count, time_ns, previous, body, record_id, epoch, token
    )
    return record, record_id + fields


def unseal(payload: bytes, position: int) -> Record:
    """Return the record that `payload` holds, as the record at `position`.

    Raises: ValueError: the id does not fit the bytes, or the bytes are not an envelope.
    """
    record_id, fields = payload[:ID_BYTES], payload[ID_BYTES:]
    found = sha256(fields).digest()
    if found != record_id:
        raise ValueError(f"record id is {record_id.hex()}, its bytes give {found.hex()}")
    # A msgspec error is a ValueError already: the caller adds where it happened.
    f = _decoder.decode(fields)
    return Record(
        position,
        f.stream,
        f.version,
        f.count,
        f.time_ns,
        f.previous,
        f.body,
        record_id,
        f.epoch,
        f.token,
    )
