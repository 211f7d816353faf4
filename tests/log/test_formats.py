"""The pure formats: what is written is read back, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.log.base import Record
from evsrc.log.envelope import seal, unseal
from evsrc.log.file import framing
from evsrc.log.file.framing import (
    DATA,
    LAST_OF_GROUP,
    PAYLOAD_BYTES_LIMIT,
    Fault,
    Frame,
    RecordHeader,
    SegmentHeader,
    decode_segment_header,
    encode_record,
    encode_segment_header,
    next_frame,
    start_of,
)
from evsrc.log.file.mark import MARK_BYTES, Mark, decode_file, encode_file, encode_slot
from evsrc.log.file.meta import Meta, decode_meta, encode_meta

u64 = st.integers(0, 2**64 - 1)
digest = st.binary(min_size=32, max_size=32)

headers = st.builds(
    SegmentHeader,
    log_id=st.binary(min_size=16, max_size=16),
    number=u64,
    base_sequence=st.integers(1, 2**63),
    salt=st.binary(min_size=16, max_size=16),
    created_ns=u64,
    previous_number=u64,
    previous_end_offset=u64,
    previous_last_sequence=u64,
    previous_digest=digest,
    base_position=u64,
)
marks = st.builds(
    Mark,
    log_id=st.binary(min_size=16, max_size=16),
    counter=st.integers(0, 2**64 - 2),
    segment=u64,
    end_offset=u64,
    last_sequence=u64,
    digest=digest,
)


@given(headers)
def test_segment_header(header: SegmentHeader) -> None:
    """192 bytes, read back equal."""
    data = encode_segment_header(header)
    assert len(data) == 192
    assert decode_segment_header(data + b"records") == header


@given(headers, st.integers(0, 192 * 8 - 1))
def test_segment_header_damaged(header: SegmentHeader, bit: int) -> None:
    """Any flipped bit, and any cut, is refused."""
    data = bytearray(encode_segment_header(header))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="segment"):
        decode_segment_header(bytes(data))
    with pytest.raises(ValueError, match="192"):
        decode_segment_header(bytes(data[: bit // 8]))


@given(headers, st.lists(st.binary(max_size=100), max_size=6), st.data())
def test_records(header: SegmentHeader, payloads: list[bytes], data: st.DataObject) -> None:
    """Records are read back in order from any offset on, each at a multiple of 8."""
    written, cursor, offsets = b"", start_of(header), list[int]()
    chained = cursor.digest
    for index, payload in enumerate(payloads):
        record = RecordHeader(
            len(payload), header.base_sequence + index, DATA, LAST_OF_GROUP, 1, index, chained
        )
        piece, chained = encode_record(payload, record, salt=header.salt)
        offsets.append(192 + len(written))
        written += piece
    assert all(offset % 8 == 0 for offset in offsets)
    for offset, payload in zip(offsets, payloads, strict=True):
        base = data.draw(st.integers(192, offset))
        frame = next_frame(written[base - 192 :], base, cursor, salt=header.salt)
        assert isinstance(frame, Frame)
        assert (frame.offset, frame.payload, frame.end) == (offset, payload, cursor.offset)
    assert next_frame(written, 192, cursor, salt=header.salt) is None


def test_a_record_out_of_place_is_a_fault() -> None:
    """Another salt, sequence number, flush order, digest before it or length is refused."""
    header = SegmentHeader(
        log_id=bytes(16),
        number=1,
        base_sequence=1,
        salt=b"1" * 16,
        created_ns=0,
        previous_number=0,
        previous_end_offset=0,
        previous_last_sequence=0,
        previous_digest=bytes(32),
        base_position=1,
    )
    before = start_of(header).digest

    def fault(sequence: int, flush: int, index: int, chained: bytes, salt: bytes) -> str:
        record = RecordHeader(3, sequence, DATA, LAST_OF_GROUP, flush, index, chained)
        piece, _ = encode_record(b"abc", record, salt=salt)
        cursor = start_of(header)
        found = next_frame(piece, 192, cursor, salt=header.salt)
        if isinstance(found, Frame):
            return ""
        assert isinstance(found, Fault)
        assert cursor == start_of(header), "the cursor moved at a fault"
        return found.reason

    assert fault(1, 1, 0, before, header.salt) == ""
    assert fault(1, 7, 0, before, header.salt) == ""
    assert "no record header" in fault(1, 1, 0, before, b"2" * 16)
    assert "expected sequence number 1" in fault(2, 1, 0, before, header.salt)
    assert "cannot follow" in fault(1, 1, 1, before, header.salt)
    assert "cannot follow" in fault(1, 0, 1, before, header.salt)
    assert "digest" in fault(1, 1, 0, bytes(32), header.salt)


def test_a_length_beyond_the_limit_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that verifies and claims more than a payload may have is a fault."""
    monkeypatch.setattr(framing, "PAYLOAD_BYTES_LIMIT", 2)
    assert PAYLOAD_BYTES_LIMIT == 16 * 1024 * 1024
    cursor = framing.Cursor(192, 0, bytes(32), 0, -1)
    record = RecordHeader(3, 1, DATA, LAST_OF_GROUP, 1, 0, bytes(32))
    piece, _ = encode_record(b"abc", record, salt=b"s")
    found = next_frame(piece, 192, cursor, salt=b"s")
    assert isinstance(found, Fault)
    assert "over 2" in found.reason


@given(marks, st.integers(0, 511 * 8))
def test_mark(mark: Mark, bit: int) -> None:
    """The newer slot counts; a damaged slot leaves the older one; two damaged ones leave nothing."""
    data = bytearray(encode_file(mark))
    assert len(data) == MARK_BYTES
    newer = Mark(
        log_id=mark.log_id,
        counter=mark.counter + 1,
        segment=7,
        end_offset=8,
        last_sequence=9,
        digest=bytes(32),
    )
    at = newer.slot_offset
    data[at : at + 512] = encode_slot(newer)
    assert decode_file(bytes(data)) == newer
    data[at + bit // 8] ^= 1 << bit % 8
    assert decode_file(bytes(data)) == mark
    data[mark.slot_offset + bit // 8] ^= 1 << bit % 8
    assert decode_file(bytes(data)) is None


@given(marks, st.integers(0, MARK_BYTES - 1))
def test_mark_cut(mark: Mark, size: int) -> None:
    """A cut mark file gives the slot that is whole, or nothing."""
    assert decode_file(encode_file(mark)[:size]) == (mark if size >= 512 else None)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), u64)
def test_meta(namespace: str, created_ns: int) -> None:
    """`log.meta` is read back equal, whatever the namespace; another format is refused."""
    meta = Meta(1, "ab" * 16, namespace, min(created_ns, 2**63))
    data = encode_meta(meta)
    assert decode_meta(data) == meta
    assert data.count(b"\n") == 2
    with pytest.raises(ValueError, match="format 2"):
        decode_meta(encode_meta(Meta(2, "", namespace, 0)))


def test_meta_damaged() -> None:
    """Any flipped bit and any cut of `log.meta` is refused: the namespace gives the keys."""
    data = encode_meta(Meta(1, "ab" * 16, "soc/production", 5))
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"log\.meta"):
            decode_meta(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"log\.meta"):
            decode_meta(data[:size])


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.integers(0, 2**40),
    st.integers(1, 2**40),
    st.integers(0, 2**63),
    st.sampled_from([b"", b"p" * 32]),
    st.binary(max_size=100),
    st.integers(0, 99),
    st.text(max_size=5, alphabet="ab"),
)
def test_envelope(
    stream: str,
    version: int,
    count: int,
    time_ns: int,
    previous: bytes,
    body: bytes,
    epoch: int,
    token: str,
) -> None:
    """A record is read back equal from its payload; any flipped byte is refused."""
    record, payload = seal(
        position=3,
        stream=stream,
        version=version,
        count=count,
        time_ns=time_ns,
        previous=previous,
        body=body,
        epoch=epoch,
        token=token,
    )
    assert isinstance(record, Record)
    assert unseal(payload, 3) == record
    damaged = bytearray(payload)
    damaged[len(payload) // 2] ^= 1
    with pytest.raises(ValueError, match="record id"):
        unseal(bytes(damaged), 3)
