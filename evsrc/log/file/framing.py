"""Format 1 of the file log, as pure bytes: how records lie in segments, and when a record is good.

A log is a folder. All integers are little-endian; H is SHA-256; `+` joins bytes.

    log.meta            who the log is (see meta.py)
    durable.mark        what must exist at least (see mark.py)
    NUMBER-RANDOM.evlog segments. NUMBER: 20 digits, the first sequence number; RANDOM: 8 hex digits.
                        Names do not order them, the segment number in the header does: 1, 2, 3 ...
    *.tmp               not part of the log

A segment is a header of 192 bytes, then records, each at a multiple of 8.

    segment header                                   record header
    off size                                         off size
      0   8  magic "EVSRLOG1"                          0   4  magic F5 65 76 72
      8   2  format version, 1                         4   4  payload length, at most 16 MiB
     10   2  size of this header, 192                  8   8  sequence number
     12   4  flags, 0                                 16   2  kind: 1 data, 2 close, 3 skip
     16  16  log id                                   18   2  flags: 1 last of its group, 2 encrypted
     32   8  segment number                           20   4  flush number
     40   8  first sequence number                    24   4  index inside the flush
     48  16  salt, random                             28   4  CRC-32 of bytes 0..27, see below
     64   8  created, ns since 1970                   32  32  chain digest, see below
     72   8  previous segment's number, or 0          64   n  payload
     80   8  previous segment's logical end               p  zeros up to a multiple of 8
     88   8  previous segment's last sequence number
     96  32  previous segment's last chain digest    CRC-32 starts from the CRC-32 of the salt:
    128   8  position of the first data record         zlib.crc32(header[:28], zlib.crc32(salt))
    136  24  zeros                                   chain digest = H(digest before it
    160  32  H(bytes 0..159)                                          + header[:32] + payload)

The digest before a segment's first record is H(header bytes 96..127 + header bytes 160..191): the
chain goes on over segments and is bound to the header. The first segment has zeros at 72..127.

A reader walks the segments by number. In each but the last it reads up to the logical end that the
NEXT segment's header gives; what lies behind is dead. There, number, last sequence number and digest
must be those that the next header gives. A record is good if its CRC fits, its sequence number is one
more than that of the record before it (over the whole log), its flush number is that of the record
before and its index one more, or its flush number is higher and its index 0 (a segment starts at flush
1, index 0), its digest fits and its padding is zero. A kind with the high bit set may be ignored, any
other unknown kind or flag may not. Records up to and including the one with flag 1 form a group; a
group that does not end is not part of the log. `close` and `skip` carry nothing; the payload of the
n-th `data` record of the log is the record at position n (see ../envelope.py).

A flush is what one fdatasync made durable. Flush f is only written after flush f - 1 was synced, so a
good header with sequence number s and index i proves that everything before s - i was acknowledged:
that, and durable.mark, tell damage from a tail that was never acknowledged (see recovery.py).

Rule: pure; a byte that is not covered by CRC, digest or the zero check does not exist.
Does not know: files, marks, what a payload means.
Must change together: tests/log/independent_reader.py, which was written from this text alone.
"""

import struct
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

import msgspec

FORMAT_VERSION = 1
SEGMENT_MAGIC = b"EVSRLOG1"
SEGMENT_HEADER_BYTES = 192
RECORD_MAGIC = b"\xf5evr"
"""No text starts with F5 and zeros are never a record: text and holes cannot look like one."""
RECORD_HEADER_BYTES = 64
PAYLOAD_BYTES_LIMIT = 16 * 1024 * 1024
"""What a reader believes at most; the writer's own limit is lower."""
ALIGNMENT = 8
"""No field straddles a sector, and a search for later headers steps by this."""

DATA, CLOSE, SKIP = 1, 2, 3
IGNORABLE = 0x8000
LAST_OF_GROUP = 1

_SEGMENT = struct.Struct("<8sHHI16sQQ16sQQQQ32sQ24x")
_HEAD = struct.Struct("<4sIQHHII")
_CRC = struct.Struct("<I")


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment says about itself and about where the segment before it ends."""

    log_id: bytes
    number: int
    base_sequence: int
    salt: bytes
    created_ns: int
    previous_number: int
    previous_end_offset: int
    previous_last_sequence: int
    previous_digest: bytes
    base_position: int


class RecordHeader(NamedTuple):
    """A record header whose CRC fits."""

    length: int
    sequence: int
    kind: int
    flags: int
    flush: int
    flush_index: int
    digest: bytes


class Frame(NamedTuple):
    """A good record: where it starts and ends in its segment, and what it holds."""

    offset: int
    end: int
    header: RecordHeader
    payload: bytes


class Fault(NamedTuple):
    """Why there is no good record at `offset`, where `sequence` was expected."""

    offset: int
    sequence: int
    reason: str
    header: RecordHeader | None = None
    """The header there, if its CRC fits."""
    intact: bool = False
    """The bytes verify, but this version must not read on: never a torn tail."""


class Cursor(msgspec.Struct):
    """Where a walk stands in a segment: behind the record with this sequence number and digest."""

    offset: int
    sequence: int
    digest: bytes
    flush: int
    flush_index: int


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Return the 192 bytes that open a segment."""
    fields = _SEGMENT.pack(
        SEGMENT_MAGIC,
        FORMAT_VERSION,
        SEGMENT_HEADER_BYTES,
        0,
        header.log_id,
        header.number,
        header.base_sequence,
        header.salt,
        header.created_ns,
        header.previous_number,
        header.previous_end_offset,
        header.previous_last_sequence,
        header.previous_digest,
        header.base_position,
    )
    return fields + sha256(fields).digest()


def decode_segment_header(data: bytes) -> SegmentHeader:
    """Read the first 192 bytes of a segment.

    Raises: ValueError: too short, digest does not fit, or another format version or flag.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        raise ValueError(f"a segment header has {SEGMENT_HEADER_BYTES} bytes, found {len(data)}")
    fields = data[:160]
    if data[:8] != SEGMENT_MAGIC or sha256(fields).digest() != data[160:192]:
        raise ValueError("the segment header does not verify")
    _, version, size, flags, log_id, number, base, salt, created, *previous = _SEGMENT.unpack(
        fields
    )
    if (version, size, flags) != (FORMAT_VERSION, SEGMENT_HEADER_BYTES, 0):
        raise ValueError(f"segment format {version}, size {size}, flags {flags}: not known here")
    return SegmentHeader(
        log_id=log_id,
        number=number,
        base_sequence=base,
        salt=salt,
        created_ns=created,
        previous_number=previous[0],
        previous_end_offset=previous[1],
        previous_last_sequence=previous[2],
        previous_digest=previous[3],
        base_position=previous[4],
    )


def start_of(header: SegmentHeader) -> Cursor:
    """Return where the records of a segment begin."""
    digest = sha256(header.previous_digest + encode_segment_header(header)[160:]).digest()
    return Cursor(SEGMENT_HEADER_BYTES, header.base_sequence - 1, digest, 0, -1)


def encode_record(payload: bytes, header: RecordHeader, *, salt: bytes) -> tuple[bytes, bytes]:
    """Return a record's bytes and its chain digest; `header.digest` is the digest *before* it."""
    head = _HEAD.pack(
        RECORD_MAGIC,
        len(payload),
        header.sequence,
        header.kind,
        header.flags,
        header.flush,
        header.flush_index,
    )
    head += _CRC.pack(crc32(head, crc32(salt)))
    digest = sha256(header.digest + head + payload).digest()
    return head + digest + payload + bytes(-len(payload) % ALIGNMENT), digest


def read_record_header(data: bytes, at: int, *, salt: bytes) -> RecordHeader | None:
    """Return the header at `at` if magic and CRC fit; a random hit needs 2^64 tries."""
    head = data[at : at + RECORD_HEADER_BYTES]
    if len(head) < RECORD_HEADER_BYTES or head[:4] != RECORD_MAGIC:
        return None
    if _CRC.unpack_from(head, 28)[0] != crc32(head[:28], crc32(salt)):
        return None
    _, length, sequence, kind, flags, flush, index = _HEAD.unpack_from(head)
    return RecordHeader(length, sequence, kind, flags, flush, index, head[32:])


def next_frame(data: bytes, base: int, cursor: Cursor, *, salt: bytes) -> Frame | Fault | None:
    """Read the record behind `cursor` and move it; None at the exact end of `data`.

    `data` are the segment's bytes from offset `base` on. At a fault the cursor stays.
    """
    at = cursor.offset - base
    if at == len(data):
        return None
    expected = cursor.sequence + 1
    header = read_record_header(data, at, salt=salt)
    if header is None:
        short = len(data) - at < RECORD_HEADER_BYTES
        reason = "the file ends inside a record header" if short else "no record header verifies"
        return Fault(cursor.offset, expected, reason)
    misfit = _misfit(data, at, header, cursor)
    if misfit:
        return Fault(cursor.offset, expected, misfit, header)
    body = at + RECORD_HEADER_BYTES
    end = body + header.length + -header.length % ALIGNMENT
    frame = Frame(cursor.offset, base + end, header, data[body : body + header.length])
    unknown = _unknown(header)
    if unknown:
        return Fault(cursor.offset, expected, unknown, header, intact=True)
    cursor.offset, cursor.sequence, cursor.digest = frame.end, header.sequence, header.digest
    cursor.flush, cursor.flush_index = header.flush, header.flush_index
    return frame


def _misfit(data: bytes, at: int, header: RecordHeader, cursor: Cursor) -> str:
    """Say why a record with a good CRC is not the one that belongs here; empty if it is."""
    if header.sequence != cursor.sequence + 1:
        return f"expected sequence number {cursor.sequence + 1}, found {header.sequence}"
    if header.length > PAYLOAD_BYTES_LIMIT:
        return f"payload length {header.length} is over {PAYLOAD_BYTES_LIMIT}"
    same = header.flush == cursor.flush and header.flush_index == cursor.flush_index + 1
    if not same and not (header.flush > cursor.flush and header.flush_index == 0):
        return (
            f"flush {header.flush} index {header.flush_index} cannot follow"
            f" flush {cursor.flush} index {cursor.flush_index}"
        )
    body = at + RECORD_HEADER_BYTES
    pad = body + header.length
    end = pad + -header.length % ALIGNMENT
    if end > len(data):
        return f"the file ends inside the record: {end - len(data)} bytes are missing"
    if sha256(cursor.digest + data[at : at + 32] + data[body:pad]).digest() != header.digest:
        return "the chain digest does not fit"
    if any(data[pad:end]):
        return "the padding is not zero"
    return ""


def _unknown(header: RecordHeader) -> str:
    if header.flags & ~LAST_OF_GROUP:
        return f"record flags {header.flags:#x} are not known to this version"
    if header.kind not in (DATA, CLOSE, SKIP) and not header.kind & IGNORABLE:
        return f"record kind {header.kind} is not known to this version"
    return ""
