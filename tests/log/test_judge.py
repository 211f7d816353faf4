"""Damage to what was acknowledged is always refused; a crash alone never is."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.errors import LogCorrupt
from evsrc.log.base import Record
from evsrc.log.file.framing import (
    CLOSE,
    DATA,
    IGNORABLE,
    LAST_OF_GROUP,
    SEGMENT_HEADER_BYTES,
    Cursor,
    RecordHeader,
    SegmentHeader,
    encode_record,
    encode_segment_header,
    start_of,
)
from evsrc.log.file.judge import Judgement, judge
from evsrc.log.file.log import FileLog
from evsrc.log.file.mark import Mark
from evsrc.log.file.segments import Segment, chain, parse_header, segment_name
from evsrc.log.streams import Heads
from tests.log.support import files_of, mark_of, segments_of

SECTOR = 512


def make(
    flushes: list[list[int]], *, kind: int = DATA, flags: int = LAST_OF_GROUP
) -> tuple[bytes, list[Cursor]]:
    """A segment with flushes of records with bodies of these sizes; and where each record ends.

    `kind` and `flags` are those of the last record.
    """
    header = SegmentHeader(
        log_id=bytes(range(16)),
        number=1,
        base_sequence=1,
        salt=b"s" * 16,
        created_ns=0,
        previous_number=0,
        previous_end_offset=0,
        previous_last_sequence=0,
        previous_digest=bytes(32),
        base_position=1,
    )
    data, cursor, heads = encode_segment_header(header), start_of(header), Heads()
    ends = [start_of(header)]
    total = sum(len(flush) for flush in flushes)
    for number, flush in enumerate(flushes, 1):
        for index, size in enumerate(flush):
            _, payload = heads.next("s", bytes(size), count=1, expected=None, time_ns=1)
            last = cursor.sequence + 1 == total
            record = RecordHeader(
                len(payload),
                cursor.sequence + 1,
                kind if last else DATA,
                flags if last else LAST_OF_GROUP,
                number,
                index,
                cursor.digest,
            )
            piece, digest = encode_record(payload, record, salt=header.salt)
            data += piece
            cursor = Cursor(len(data), record.sequence, digest, number, index)
            ends.append(cursor)
    return data, ends


def mark_at(end: Cursor) -> Mark:
    return Mark(
        log_id=bytes(range(16)),
        counter=1,
        segment=1,
        end_offset=end.offset,
        last_sequence=end.sequence,
        digest=end.digest,
    )


def judged(data: bytes, mark: Mark) -> tuple[Judgement, list[Record]]:
    heads, records = Heads(), list[Record]()

    def visit(record: Record) -> None:
        heads.admit(record)
        records.append(record)

    name = segment_name(1, b"abcd")
    return judge(segments_of({name: data}), mark, visit), records


def test_every_bit_of_an_acknowledged_log(tmp_path: Path) -> None:
    """Any flipped bit of twelve acknowledged records is refused, with its place."""

    async def fill() -> None:
        async with await FileLog.open(tmp_path / "log", lazy_sync_s=None) as log:
            for number in range(12):
                await log.append("ab"[number % 2], b"%d" % number, durable=number % 3 != 0)

    anyio.run(fill)
    files, mark = files_of(tmp_path / "log"), mark_of(tmp_path / "log")
    (name,) = [name for name in files if name.endswith(".evlog")]
    whole = files[name]
    assert judge(segments_of({name: whole}), mark, Heads().admit).position == 12
    for bit in range(len(whole) * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LogCorrupt) as damage:
            judge(segments_of({name: bytes(data)}), mark, Heads().admit)
        where = damage.value
        assert where.segment == name
        # The place is that of the record, or of the header, that holds the bit.
        assert where.offset <= bit // 8
        assert where.sequence >= 1


@pytest.mark.parametrize("marked", [0, 5])
def test_without_the_mark_no_wrong_record_is_believed(marked: int) -> None:
    """Whatever bit flips: refused, or a prefix. Records below the mark, or a later flush, are there."""
    data, ends = make([[10, 20], [5], [0, 7], [30]])
    _, all_records = judged(data, mark_at(ends[marked]))
    refused = 0
    for bit in range(SEGMENT_HEADER_BYTES * 8, len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            _, records = judged(bytes(damaged), mark_at(ends[marked]))
        except LogCorrupt:
            refused += 1
            # The last flush began behind everything before it, so only its own damage can be a tear.
            assert bit // 8 < ends[5].offset
            continue
        assert records == all_records[: len(records)]
        assert len(records) >= 5
    assert refused == (ends[5].offset - SEGMENT_HEADER_BYTES) * 8


def test_every_truncation() -> None:
    """Cut below the mark the log is refused, cut above it is torn or whole."""
    data, ends = make([[10, 20], [5, 40], [3]])
    for size in range(SEGMENT_HEADER_BYTES, len(data)):
        if size < ends[2].offset:
            with pytest.raises(LogCorrupt):
                judged(data[:size], mark_at(ends[2]))
        else:
            found, _ = judged(data[:size], mark_at(ends[2]))
            assert found.end == max((e for e in ends if e.offset <= size), key=lambda e: e.offset)
            assert (found.torn is not None) == (found.end.offset != size)


@st.composite
def crashes(draw: st.DrawFn) -> tuple[bytes, list[Cursor], int]:
    """A log at a loss of power: each sector behind the last sync new, zero or garbage, any size."""
    synced = draw(st.lists(st.lists(st.integers(0, 600), min_size=1, max_size=4), max_size=4))
    in_flight = draw(st.lists(st.integers(0, 600), min_size=1, max_size=6))
    data, ends = make([*synced, in_flight])
    known = sum(len(flush) for flush in synced)
    start = ends[known].offset
    size = draw(st.integers(start, len(data)))
    image = bytearray(data[:size])
    for sector in range(start // SECTOR, len(image) // SECTOR + 1):
        begin, end = max(sector * SECTOR, start), min((sector + 1) * SECTOR, size)
        fate = draw(st.sampled_from(["new", "zero", "garbage"]))
        if fate == "zero":
            image[begin:end] = bytes(max(end - begin, 0))
        elif fate == "garbage":
            image[begin:end] = (draw(st.binary(min_size=8, max_size=8)) * 64)[: max(end - begin, 0)]
    return bytes(image), ends, known


@given(crashes(), st.integers(0, 3))
def test_a_crash_alone_never_halts(crash: tuple[bytes, list[Cursor], int], lag: int) -> None:
    """Whatever of the last flush reached the disk, in whatever order: a prefix with all acknowledged."""
    data, ends, known = crash
    found, records = judged(data, mark_at(ends[max(known - lag, 0)]))
    assert len(records) >= known
    assert found.end == ends[len(records)]


def test_a_group_that_does_not_end_is_dropped() -> None:
    """An unfinished group at the end is no part of the log, unless the mark says that it was."""
    data, ends = make([[1, 2], [3]], flags=0)
    found, records = judged(data, mark_at(ends[2]))
    assert len(records) == 2
    assert found.torn is not None
    assert (found.end, found.position) == (ends[2], 2)
    assert (found.torn.offset, found.torn.bytes) == (ends[2].offset, len(data) - ends[2].offset)
    with pytest.raises(LogCorrupt):
        judged(data, mark_at(ends[3]))


@pytest.mark.parametrize(("kind", "flags"), [(9, LAST_OF_GROUP), (DATA, 3), (DATA, 5)])
def test_what_this_version_does_not_know_is_not_torn(kind: int, flags: int) -> None:
    """Bytes that verify but are of an unknown kind or flag stop everything, also at the end."""
    data, ends = make([[1], [2]], kind=kind, flags=flags)
    with pytest.raises(LogCorrupt, match="not known to this version"):
        judged(data, mark_at(ends[0]))


def test_an_ignorable_kind_is_passed_over() -> None:
    """A kind with the high bit is skipped and takes no position."""
    data, ends = make([[1], [2]], kind=IGNORABLE | 9)
    found, records = judged(data, mark_at(ends[2]))
    assert (len(records), found.end.sequence, found.position) == (1, 2, 1)


def test_a_close_that_the_mark_does_not_know_is_not_clean() -> None:
    """Only a close record at the very end that the mark covers says that nothing was in flight."""
    data, ends = make([[1], [2]], kind=CLOSE)
    assert judged(data, mark_at(ends[2]))[0].closed
    assert not judged(data, mark_at(ends[1]))[0].closed
    assert not judged(data + bytes(8), mark_at(ends[2]))[0].closed


def test_a_replaced_tail_is_noticed() -> None:
    """A log with the same length and sequence numbers, but other records, is not what was synced."""
    _, ends = make([[8], [8]])
    other, _ = make([[8], [7]])
    with pytest.raises(LogCorrupt, match="rolled back or replaced"):
        judged(other, mark_at(ends[2]))


def _rolled(tmp_path: Path) -> dict[str, bytes]:
    async def fill() -> None:
        log = await FileLog.open(tmp_path / "log", segment_bytes_max=700)
        async with log:
            for number in range(12):
                await log.append("s", b"%d" % number)

    anyio.run(fill)
    return files_of(tmp_path / "log")


def _without_one(files: dict[str, bytes]) -> Iterator[dict[str, bytes]]:
    for lost in files:
        if lost.endswith(".evlog"):
            yield {name: data for name, data in files.items() if name != lost}


def test_no_segment_may_be_missing_or_changed(tmp_path: Path) -> None:
    """A lost segment, also the last one, and any flipped byte in any of them, is refused."""
    files = _rolled(tmp_path)
    mark = mark_of(tmp_path / "log")
    assert judge(segments_of(files), mark, Heads().admit).position == 12
    assert sum(name.endswith(".evlog") for name in files) >= 3
    for rest in _without_one(files):
        with pytest.raises(LogCorrupt):
            judge(segments_of(rest), mark, Heads().admit)
    with pytest.raises(LogCorrupt, match="no segment"):
        judge([], mark, Heads().admit)
    for name, whole in files.items():
        for at in range(0, len(whole) * name.endswith(".evlog"), 5):
            data = bytearray(whole)
            data[at] ^= 0x10
            with pytest.raises(LogCorrupt):
                judge(segments_of({**files, name: bytes(data)}), mark, Heads().admit)


def test_segments_of_two_logs_do_not_mix(tmp_path: Path) -> None:
    """A segment, or a mark, of another log is refused."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = _rolled(tmp_path / "one"), _rolled(tmp_path / "two")
    mark = mark_of(tmp_path / "two" / "log")
    with pytest.raises(LogCorrupt, match="the mark is of log"):
        judge(segments_of(one), mark, Heads().admit)
    first, second = min(n for n in one if n.endswith("evlog")), sorted(two)[1]
    with pytest.raises(LogCorrupt, match="another log"):
        segments_of({first: one[first], second: two[second]})


def test_names_and_numbers_agree(tmp_path: Path) -> None:
    """A segment under another's name, or one that follows another number, is refused."""
    files = _rolled(tmp_path)
    first, second, *_ = sorted(name for name in files if name.endswith(".evlog"))
    with pytest.raises(LogCorrupt, match="the header says first sequence 1"):
        parse_header(second, files[first])
    header = parse_header(second, files[second])
    odd = msgspec.structs.replace(header, previous_number=7)
    one = Segment(first, parse_header(first, files[first]), lambda: b"")
    with pytest.raises(LogCorrupt, match="expected segment number 2"):
        chain([one, Segment(second, odd, lambda: b"")])


def test_a_record_that_does_not_fit_its_stream_is_refused() -> None:
    """A record that verifies but has no place in its stream stops everything, with its place."""
    data, ends = make([[1], [2], [3]])
    heads = Heads()
    heads.next("other", b"", count=1, expected=None, time_ns=0)
    with pytest.raises(LogCorrupt, match="position 1 does not fit its stream") as damage:
        judge(segments_of({segment_name(1, b"abcd"): data}), mark_at(ends[3]), heads.admit)
    assert (damage.value.offset, damage.value.sequence) == (ends[1].offset, 1)


def test_a_dead_tail_stays_dead(tmp_path: Path) -> None:
    """Bytes behind the end that the next segment names are no part of the log, whatever they are."""
    files = _rolled(tmp_path)
    mark = mark_of(tmp_path / "log")
    first = min(name for name in files if name.endswith(".evlog"))
    files[first] += b"\xf5evr" + bytes(100)
    assert judge(segments_of(files), mark, Heads().admit).position == 12
