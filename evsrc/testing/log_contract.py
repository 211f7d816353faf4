"""The contract suite of logs: what every backend must keep, as plain functions with plain asserts.

A backend's test gives a factory and runs each of CHECKS with it:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_contract(check, tmp_path):
        await check(lambda: MyLog.open(tmp_path / "log"))

Rule: only what `Log` says is asked for; what a backend does not claim by `guarantees()` is not tested.
Does not know: any backend, nor pytest.
"""

from collections.abc import Awaitable, Callable

import anyio

from evsrc.errors import Closed, InternalError, LimitExceeded, PositionConflict
from evsrc.log.base import STREAM_BYTES_MAX, Log, Record

OpenLog = Callable[[], Awaitable[Log]]
"""Opens an empty log; called once per check."""

Check = Callable[[OpenLog], Awaitable[None]]


async def new_log_is_empty(open_log: OpenLog) -> None:
    """A new log holds nothing, and has an id and a namespace."""
    async with await open_log() as log:
        assert list(log.records()) == []
        assert (log.last_position, log.durable_position, log.version("s")) == (0, 0, 0)
        assert log.log_id
        assert log.namespace


async def append_returns_the_record(open_log: OpenLog) -> None:
    """An append returns what `records` then gives, with positions without gaps."""
    async with await open_log() as log:
        first = await log.append("a", b"one", count=3)
        second = await log.append("b", b"", durable=False)
        third = await log.append("a", b"three")
        assert [r.position for r in (first, second, third)] == [1, 2, 3]
        assert (first.version, first.count, third.version) == (0, 3, 3)
        assert (first.previous, second.previous, third.previous) == (b"", b"", first.id)
        assert list(log.records()) == [first, second, third]
        assert (log.last_position, log.version("a"), log.version("b")) == (3, 4, 1)


async def records_can_be_selected(open_log: OpenLog) -> None:
    """`records` begins behind `after`, and gives one stream where asked."""
    async with await open_log() as log:
        for number in range(6):
            await log.append("ab"[number % 2], b"%d" % number, durable=False)
        assert [r.position for r in log.records(after=4)] == [5, 6]
        assert [r.position for r in log.records(stream="b")] == [2, 4, 6]
        assert [r.position for r in log.records(after=2, stream="a")] == [3, 5]
        assert list(log.records(after=6)) == []
        assert list(log.records(after=99)) == []
        assert list(log.records(stream="unknown")) == []


async def records_are_those_landed_when_asked(open_log: OpenLog) -> None:
    """What lands while somebody iterates does not lengthen that iteration without end."""
    async with await open_log() as log:
        await log.append("a", b"1")
        seen: list[int] = []
        for record in log.records():
            seen.append(record.position)
            await log.append("a", b"more")
        assert seen == [1]


async def bodies_are_opaque(open_log: OpenLog) -> None:
    """Any bytes up to the limit come back unchanged, and any text as stream name."""
    bodies = [b"", b"\0" * 9, bytes(range(256)), b"\xf5evr" * 50, b"EVSRLOG1" + bytes(200)]
    names = ["s", "\u00e9" * (STREAM_BYTES_MAX // 2), "../x\n\x1b[31m", "\U0001f600"]
    async with await open_log() as log:
        bodies.append(bytes(log.guarantees().body_bytes_max))
        for body in bodies:
            await log.append("bodies", body)
        for name in names:
            await log.append(name, b"x")
        records = list(log.records())
        assert [r.body for r in records[: len(bodies)]] == bodies
        assert [r.stream for r in records[len(bodies) :]] == names


async def limits_are_refused(open_log: OpenLog) -> None:
    """Over a limit nothing is written, and the next append is unharmed."""
    async with await open_log() as log:
        too_large = bytes(log.guarantees().body_bytes_max + 1)
        for stream, body, count in [
            ("", b"x", 1),
            ("s" * (STREAM_BYTES_MAX + 1), b"x", 1),
            ("\ud800", b"x", 1),
            ("s", too_large, 1),
            ("s", b"x", 0),
        ]:
            await _raises(LimitExceeded, log.append(stream, body, count=count))
        assert log.version("s") == 0
        assert (await log.append("s", b"x")).position == 1


async def expected_is_checked(open_log: OpenLog) -> None:
    """An append that expects another version is refused and leaves no trace."""
    async with await open_log() as log:
        await log.append("a", b"1", count=2, expected=0)
        await _raises(PositionConflict, log.append("a", b"2", expected=0))
        await _raises(PositionConflict, log.append("b", b"2", expected=1))
        record = await log.append("a", b"2", expected=2)
        assert (record.position, record.version, log.version("a")) == (2, 2, 3)


async def one_of_many_wins_a_place(open_log: OpenLog) -> None:
    """Of tasks that expect one version at one moment exactly one is served."""
    outcomes: list[str] = []

    async def claim(log: Log) -> None:
        try:
            await log.append("a", b"mine", expected=0)
            outcomes.append("won")
        except PositionConflict:
            outcomes.append("lost")

    async with await open_log() as log:
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(claim, log)
        assert sorted(outcomes) == ["lost"] * 19 + ["won"]
        assert log.last_position == 1


async def landed_runs_in_log_order(open_log: OpenLog) -> None:
    """`landed` runs in log order over all streams, and before its appender goes on."""
    seen: list[int] = []
    late: list[int] = []

    async with await open_log() as log:

        def landed(record: Record) -> None:
            assert log.last_position == record.position
            seen.append(record.position)

        async def some(name: str) -> None:
            for number in range(10):
                record = await log.append(name, b"x", durable=number % 3 == 0, landed=landed)
                if record.position not in seen:
                    late.append(record.position)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(some, f"s{number}")
    assert seen == list(range(1, 81))
    assert late == []


async def landed_that_raises_harms_nobody_else(open_log: OpenLog) -> None:
    """A `landed` that raises, against its contract, is told to its appender; the record stays."""

    def landed(record: Record) -> None:
        raise RuntimeError("no")

    async with await open_log() as log:
        await _raises(InternalError, log.append("a", b"1", landed=landed))
        assert (await log.append("a", b"2")).position == 2
        assert [r.body for r in log.records()] == [b"1", b"2"]


async def durable_covers_everything_before(open_log: OpenLog) -> None:
    """A durable append, and a sync, make everything before them durable; a second sync is free."""
    async with await open_log() as log:
        await log.append("a", b"1", durable=False)
        await log.append("b", b"2")
        assert log.durable_position == 2
        await log.append("a", b"3", durable=False)
        await log.sync()
        assert log.durable_position == 3
        syncs = log.statistics().syncs
        await log.sync()
        assert log.statistics().syncs == syncs
        assert log.statistics().records == 3


async def cancelled_before_is_nothing(open_log: OpenLog) -> None:
    """An append in a scope that is already cancelled does nothing."""
    async with await open_log() as log:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.append("a", b"never")
        assert scope.cancelled_caught
        assert (log.version("a"), log.last_position) == (0, 0)


async def cancelled_after_is_there(open_log: OpenLog) -> None:
    """Under any time-out an append that was handed over has landed when the scope is left."""
    async with await open_log() as log:
        for number in range(30):
            landed: list[Record] = []
            with anyio.move_on_after(number % 4 / 2000):
                await log.append("a", b"x", landed=landed.append)
            assert log.version("a") == log.last_position
            assert not landed or landed[0].position == log.last_position
        assert [r.position for r in log.records()] == list(range(1, log.last_position + 1))


async def closed_refuses(open_log: OpenLog) -> None:
    """A closed log refuses appends and syncs; closing again is fine; what landed can be read."""
    log = await open_log()
    await log.append("a", b"1", durable=False)
    await log.aclose()
    await log.aclose()
    assert log.durable_position == 1
    await _raises(Closed, log.append("a", b"2"))
    await _raises(Closed, log.sync())
    assert [r.body for r in log.records()] == [b"1"]


async def closing_lands_what_was_handed_over(open_log: OpenLog) -> None:
    """Appends on their way when the log is closed land, or say that it was closed."""
    landed: list[Record] = []

    async def some(log: Log, name: str) -> None:
        try:
            for _ in range(50):
                await log.append(name, b"x" * 100, durable=False, landed=landed.append)
        except Closed:
            pass

    log = await open_log()
    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(some, log, f"s{number}")
        await anyio.sleep(0.001)
        await log.aclose()
    assert [r.position for r in landed] == list(range(1, log.last_position + 1))
    assert list(log.records()) == landed


CHECKS: tuple[Check, ...] = (
    new_log_is_empty,
    append_returns_the_record,
    records_can_be_selected,
    records_are_those_landed_when_asked,
    bodies_are_opaque,
    limits_are_refused,
    expected_is_checked,
    one_of_many_wins_a_place,
    landed_runs_in_log_order,
    landed_that_raises_harms_nobody_else,
    durable_covers_everything_before,
    cancelled_before_is_nothing,
    cancelled_after_is_there,
    closed_refuses,
    closing_lands_what_was_handed_over,
)
"""Every check; a backend passes all of them."""


async def _raises(kind: type[Exception], call: Awaitable[object]) -> None:
    try:
        await call
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, nothing was raised")
