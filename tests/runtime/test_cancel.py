"""Cancelled at every await: the record is there, what was sent is unknown, and replay gives up there too."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.calls import CallState
from evsrc.core.events import IntentReconciled, OutcomeUnknown, StepRecorded, WaitAbandoned
from tests.log.support import CountingFs
from tests.runtime.desk import Desk, SlowLog, cut, events, kinds, of_kind, until

pytestmark = pytest.mark.anyio

KINDS = ("anyio scope", "anyio sibling", "asyncio.timeout", "asyncio.TaskGroup", "trio scope")
PLACES = ("prepare", "IntentRecorded", "after_intent", "send", "ResultRecorded", "probe")
NEVER_S = 3600.0


class Boom(Exception):
    """The sibling's failure."""


class Patience:
    """Gives up when `now` is called (the first run), or after `after_s` (a replay)."""

    def __init__(self, kind: str, after_s: float = NEVER_S) -> None:
        self.kind = kind
        self.after_s = after_s
        self.cancel: Callable[[], None] = lambda: None
        self.gave_up = 0

    def now(self) -> None:
        """Give up at this instant; once."""
        cancel, self.cancel = self.cancel, lambda: None
        cancel()

    async def bear(self, body: Callable[[], Awaitable[str]]) -> str:
        """What `body` returned, or "gave up"."""
        ways: dict[str, Any] = {
            "anyio scope": self._scope,
            "anyio sibling": self._sibling,
            "asyncio.timeout": self._timeout,
            "asyncio.TaskGroup": self._asyncio_sibling,
            "trio scope": self._trio,
        }
        value: str | None = await ways[self.kind](body)
        if value is None:
            self.gave_up += 1
            return "gave up"
        return value

    async def _scope(self, body: Callable[[], Awaitable[str]]) -> str | None:
        with anyio.move_on_after(self.after_s) as scope:
            self.cancel = scope.cancel
            return await body()
        return None

    async def _sibling(self, body: Callable[[], Awaitable[str]]) -> str | None:
        fail, got = anyio.Event(), list[str]()
        self.cancel = fail.set

        async def sibling() -> None:
            with anyio.move_on_after(self.after_s):
                await fail.wait()
            raise Boom

        async def main() -> None:
            got.append(await body())
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(sibling)
                group.start_soon(main)
        except* Boom:
            got.clear()
        return got[0] if got else None

    async def _timeout(self, body: Callable[[], Awaitable[str]]) -> str | None:
        try:
            async with asyncio.timeout(self.after_s) as patience:
                self.cancel = lambda: patience.reschedule(asyncio.get_running_loop().time())
                return await body()
        except TimeoutError:
            return None

    async def _asyncio_sibling(self, body: Callable[[], Awaitable[str]]) -> str | None:
        fail, got = asyncio.Event(), list[str]()
        self.cancel = fail.set

        async def sibling() -> None:
            try:
                await asyncio.wait_for(fail.wait(), self.after_s)
            except TimeoutError:
                pass
            raise Boom

        async def main() -> None:
            got.append(await body())
            other.cancel()

        try:
            async with asyncio.TaskGroup() as group:
                other = group.create_task(sibling())
                group.create_task(main())
        except* Boom:
            got.clear()
        return got[0] if got else None

    async def _trio(self, body: Callable[[], Awaitable[str]]) -> str | None:
        import trio

        with trio.move_on_after(self.after_s) as scope:
            self.cancel = scope.cancel
            return await body()
        return None


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, anyio_backend: str) -> str:
    """Every way of giving up that the event loop knows."""
    if request.param.startswith(("asyncio", "trio")) and not request.param.startswith(
        anyio_backend
    ):
        pytest.skip(f"{request.param} on {anyio_backend}")
    return str(request.param)


class AtMoment:
    """Calls `now` at a moment of the runtime."""

    def __init__(self, name: str, now: Callable[[], None]) -> None:
        self.name = name
        self.now = now

    def on(self, moment: evsrc.Moment, /) -> None:
        if moment.name == self.name:
            self.now()


def ticket_flow(desk: Desk, patience: Patience, goes_on: Callable[[], None]) -> Any:
    """Ask for a ticket with little patience, then for a page."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def body() -> str:
            return await run.call(desk.ticket, subject)

        first = await patience.bear(body)
        goes_on()
        return f"{first}, {await run.call(desk.page, 'p')}"

    return flow


def the_call(log: evsrc.Log, tool: str = "ticket") -> CallState | None:
    """The state of the only call of that tool."""
    calls = evsrc.fold("r", events(log)).calls.values()
    return next((c for c in calls if c.intent.tool == tool), None)


def check_truth(place: str, log: evsrc.Log, desk: Desk) -> None:
    """What was sent is not recorded as not sent; what was not is not recorded as unknown."""
    call, sent = the_call(log), bool(desk.sent)
    assert sent == (place not in ("prepare", "IntentRecorded"))
    if not sent:
        assert desk.effects("disk") == 0
        assert "OutcomeUnknown" not in kinds(log)
        assert call is None or call.without_effect
        assert (call is None) == (place == "prepare")
        return
    assert call is not None
    assert "CallNotSent" not in kinds(log)
    assert not call.unknown
    causes = [u.cause for u in of_kind(log, OutcomeUnknown)]
    if place == "after_intent":  # the send begins in that very instant, and stops before it commits
        assert causes == ["cancelled"]
        assert desk.effects("disk") == 0
        assert call.without_effect
        return
    assert desk.effects("disk") == 1
    assert call.settled
    assert causes == {"send": ["cancelled"], "ResultRecorded": [], "probe": ["error"]}[place]


@pytest.mark.parametrize("place", PLACES)
async def test_giving_up_is_recorded_and_replayed(place: str, kind: str) -> None:
    """Wherever a call is when its caller gives up: recorded first, true, and raised there on replay."""
    desk, log, patience = Desk(), SlowLog(namespace="n"), Patience(kind)
    moment = AtMoment(place, patience.now)
    if place in ("prepare", "after_intent", "send", "probe"):
        desk.linger_s = 0.03
    if place == "send":
        desk.faults = ["hang"]
    if place == "probe":
        desk.faults = ["lose"]
    log.event, log.hook = place, lambda _: patience.now()
    went_on: list[list[str]] = []

    def hook(at: str) -> None:
        # A hung send is given up after it committed.
        if at == {"send": "committed"}.get(place, place):
            patience.now()

    desk.hook = hook
    async with evsrc.open_runtime(log, tools=desk.all_tools, observers=[moment]) as runtime:
        flow = ticket_flow(desk, patience, lambda: went_on.append(kinds(log)))
        outcome = await runtime.run(flow, "disk", run_id="r")
        await until(lambda: (call := the_call(log)) is None or not call.unknown)

    assert (outcome.value, patience.gave_up) == ("gave up, p-" + outcome.value[-1], 1)
    assert "WaitAbandoned" in went_on[0]
    assert len(of_kind(log, WaitAbandoned)) == 1
    desk.sent = [s for s in desk.sent if s[0] != of_page(log)]
    check_truth(place, log, desk)
    await replayed(log, desk, kind, outcome.value)


def of_page(log: evsrc.Log) -> str:
    """The key of the page."""
    call = the_call(log, "page")
    assert call is not None
    return call.intent.key


async def replayed(log: evsrc.Log, desk: Desk, kind: str, value: str) -> None:
    """A replay of everything but the end gives up at the same place, sends nothing, ends the same."""
    again = await cut(log, before="RunCompleted")
    before, patience = list(desk.sent), Patience(kind, after_s=0.02)
    desk.hook = lambda place: None
    async with evsrc.open_runtime(again, tools=desk.all_tools) as runtime:
        flow = ticket_flow(desk, patience, lambda: None)
        outcome = await runtime.run(flow, "disk", run_id="r")
        assert (outcome.value, patience.gave_up) == (value, 1)
    assert desk.sent == before
    assert len(of_kind(again, WaitAbandoned)) == 1


# ---- reads ---------------------------------------------------------------------------------------


@contextmanager
def slow_disk(fs: CountingFs, on: Callable[[], None]) -> Iterator[None]:
    """Every fdatasync takes 30 ms and tells, on the writer's thread."""
    import time

    def before(call: str) -> None:
        if call == "fdatasync":
            on()
            time.sleep(0.03)

    fs.before = before
    yield
    fs.before = lambda call: None


def step_flow(patience: Patience, work: Callable[[], Awaitable[str]], saw: list[str]) -> Any:
    """A durable step with little patience, and a second one."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def look() -> str:
            return await work()

        async def body() -> str:
            saw.append("cancelled")
            value = await run.options(durable=True).step(look)
            saw[-1] = value
            return value

        first = await patience.bear(body)

        async def second() -> str:
            return "second"

        return f"{first}, {await run.step(second)}"

    return flow


@pytest.mark.parametrize("place", ["work", "append", "sync"])
async def test_a_read_given_up_is_recorded_and_replayed(
    place: str, kind: str, tmp_path: Path
) -> None:
    """A read given up in its work, or while its value is written, shows the same to its caller again."""
    fs, patience, runs, saw = CountingFs(), Patience(kind), list[str](), list[str]()

    async def work() -> str:
        runs.append("x")
        if place == "work":
            patience.now()
            await anyio.sleep(0.05)
        if place == "append":
            patience.now()
        return "value"

    log = await evsrc_log(tmp_path, fs)
    async with log, evsrc.open_runtime(log) as runtime:
        loop_call = in_loop(patience.now)
        with slow_disk(fs, loop_call if place == "sync" else lambda: None):
            outcome = await runtime.run(step_flow(patience, work, saw), "disk", run_id="r")
        if saw[0] == "cancelled":
            assert outcome.value == "gave up, second"
        again = await cut(log, before="RunCompleted")
        assert len(of_kind(log, StepRecorded)) == 2

    async with evsrc.open_runtime(again) as runtime:
        later = Patience(kind, after_s=0.02)
        replay = await runtime.run(step_flow(later, work, saw), "disk", run_id="r")
        if saw[0] == "cancelled":
            assert (replay.value, later.gave_up) == ("gave up, second", 1)
    assert saw[0] == saw[1]
    assert saw[0] == "cancelled" or place != "work"
    assert len(runs) == 1
    assert len(of_kind(again, StepRecorded)) == 2


async def evsrc_log(folder: Path, fs: CountingFs) -> Any:
    """A file log that syncs only when asked to."""
    from evsrc.log.file.log import FileLog

    return await FileLog.open(folder / "log", fs=fs, lazy_sync_s=None)


def in_loop(call: Callable[[], None]) -> Callable[[], None]:
    """`call`, once, on this event loop, from the writer's thread."""
    from anyio.lowlevel import current_token

    token, done = current_token(), list[int]()

    def from_thread() -> None:
        if not done:
            done.append(1)
            anyio.from_thread.run_sync(call, token=token)

    return from_thread


async def test_a_read_that_waits_for_replay_records_giving_up() -> None:
    """A new read held back by an unfinished replay is recorded as given up, before its code goes on."""
    desk, log = Desk(), evsrc.MemoryLog(namespace="n")
    new = False

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def look() -> str:
            return "seen"

        async def late() -> None:
            await anyio.sleep(0.1 if new else 0)
            await run.call(desk.ticket, subject)

        async def impatient() -> str:
            with anyio.move_on_after(0.03):
                return await run.step(look)
            assert [e.abandoned for e in of_kind(again, StepRecorded)] == [True]
            return "gave up"

        async with anyio.create_task_group() as group:
            group.start_soon(late)
            if new:
                return await impatient()
        return "first"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.run(flow, "disk", run_id="r")
    again, new = await cut(log, before="RunCompleted"), True
    async with evsrc.open_runtime(again, tools=desk.all_tools) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "gave up"
    assert len(desk.sent) == 1


async def test_a_call_that_waits_in_a_queue_is_given_up_without_a_trace_of_sending() -> None:
    """Given up while the tool's own limit holds it back, a call leaves no intent at all."""
    desk, log = Desk(), evsrc.MemoryLog()
    desk.linger_s = 0.1

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async with anyio.create_task_group() as group:
            for name in "ab":
                group.start_soon(run.options(label=name).call, desk.note, name)
            await anyio.sleep(0.02)
            with anyio.move_on_after(0.02):
                await run.options(label="c").call(desk.note, "c")
        return "two"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "two"
    assert kinds(log).count("IntentRecorded") == 2
    assert len(of_kind(log, WaitAbandoned)) == 1
    assert desk.effects("c") == 0


async def test_a_call_given_up_while_parked_keeps_its_question() -> None:
    """The caller of a call that waits for a human may give up; the question stays, the run goes on."""
    desk, log = Desk("lose"), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def busy() -> None:
            async def wait() -> None:
                await anyio.sleep(0.2)

            await run.step(wait)

        async with anyio.create_task_group() as group:
            group.start_soon(busy)
            with anyio.move_on_after(0.1):
                return await run.call(desk.page, subject)
            return "gave up"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        outcome = await runtime.run(flow, "disk", run_id="r")
        assert outcome.value == "gave up"
        ((_, question),) = runtime.questions()
        answered = await runtime.answers.answer(
            "r", question.subject, "happened", by="ann", value="p"
        )
        assert answered.fits
    assert [r.by for r in of_kind(log, IntentReconciled)] == ["human:ann"]
    assert the_call(log, "page").settled  # type: ignore[union-attr]


async def test_a_failing_asyncio_group_fails_the_run(anyio_backend: str) -> None:
    """A failed asyncio.TaskGroup that nobody catches ends the run as failed; 3.11 leaves a cancel behind."""
    if anyio_backend != "asyncio":
        pytest.skip("asyncio only")
    desk, log = Desk(), evsrc.MemoryLog()
    desk.linger_s = 1

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def fails() -> None:
            await asyncio.sleep(0.02)
            raise Boom

        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            group.create_task(run.call(desk.note, subject))
        return "never"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        outcome = await runtime.run(flow, "disk", run_id="r")
    assert isinstance(outcome, evsrc.Failed)
    assert len(of_kind(log, WaitAbandoned)) == 1
