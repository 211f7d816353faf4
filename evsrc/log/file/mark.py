"""`durable.mark`, as pure bytes: what must exist at least, written behind every acknowledged flush.

4608 bytes: two slots of 512, at 0 and 4096, written in turn (slot = counter modulo 2), the rest zero.

    off size                                       off size
      0   8  magic "EVSRMRK1"                       40   8  end offset in that segment
      8  16  log id                                 48   8  last sequence number
     24   8  counter, +1 per write                  56  32  chain digest there
     32   8  segment number                         88  32  SHA-256 of bytes 0..87
                                                   120 392  zeros

The slot that verifies and has the higher counter counts. One bad slot is a torn write of the mark, the
other then still is a lower bound; two bad slots are damage.

Rule: the mark may lag behind the segments, it never leads: it is written after their fdatasync.
Does not know: files.
"""

import struct
from hashlib import sha256

import msgspec

MARK_NAME = "durable.mark"
MARK_BYTES = 4096 + 512
SLOT_BYTES = 512
SLOT_OFFSETS = (0, 4096)
"""A page apart: one damaged page, or one torn write, cannot take both."""

_MAGIC = b"EVSRMRK1"
_FIELDS = struct.Struct("<8s16sQQQQ32s")


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Everything up to `last_sequence`, which ends at `end_offset` of `segment`, was synced."""

    log_id: bytes
    counter: int
    segment: int
    end_offset: int
    last_sequence: int
    digest: bytes

    @property
    def slot_offset(self) -> int:
        """Where in the file this mark is written."""
        return SLOT_OFFSETS[self.counter % 2]


def encode_slot(mark: Mark) -> bytes:
    """Return the 512 bytes of one slot."""
    fields = _FIELDS.pack(
        _MAGIC,
        mark.log_id,
        mark.counter,
        mark.segment,
        mark.end_offset,
        mark.last_sequence,
        mark.digest,
    )
    return (fields + sha256(fields).digest()).ljust(SLOT_BYTES, b"\0")


def encode_file(mark: Mark) -> bytes:
    """Return a whole mark file, both slots filled, so that one torn write never leaves none."""
    slot = encode_slot(mark)
    return slot.ljust(SLOT_OFFSETS[1], b"\0") + slot


def decode_file(data: bytes) -> Mark | None:
    """Return the newest mark of a mark file, None if no slot verifies."""
    slots = [_decode_slot(data[at : at + SLOT_BYTES]) for at in SLOT_OFFSETS]
    return max((m for m in slots if m is not None), key=lambda m: m.counter, default=None)


def _decode_slot(slot: bytes) -> Mark | None:
    fields, digest, rest = slot[:88], slot[88:120], slot[120:]
    if len(slot) != SLOT_BYTES or any(rest):
        return None
    if fields[:8] != _MAGIC or sha256(fields).digest() != digest:
        return None
    _, log_id, counter, segment, end_offset, last_sequence, chain = _FIELDS.unpack(fields)
    return Mark(
        log_id=log_id,
        counter=counter,
        segment=segment,
        end_offset=end_offset,
        last_sequence=last_sequence,
        digest=chain,
    )
