"""Calls with effects: one effect per call, whatever the tool answers and wherever the process ends."""

import asyncio
from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import CallNotSent, IntentReconciled, IntentRecorded, OutcomeUnknown
from evsrc.errors import (
    AmbiguousCall,
    CallerError,
    KeyReuseError,
    NotSent,
    Rejected,
    ResultUnusable,
    RunNotCompleted,
    StaleIntent,
)
from tests.runtime.desk import Desk, cut, events, kinds, of_kind, until

pytestmark = pytest.mark.anyio


def one_ticket(desk: Desk) -> Any:
    """A workflow of one call."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        return await run.call(desk.ticket, subject)

    return flow


async def run(log: evsrc.Log, flow: Any, desk: Desk, **options: Any) -> Any:
    """Open the log, run `flow` as run "r" on "disk", close."""
    async with evsrc.open_runtime(log, tools=desk.all_tools, **options) as runtime:
        return await runtime.run(flow, "disk", run_id="r")


async def test_a_call_is_an_intent_a_send_and_a_result() -> None:
    """The intent stands in the log before the send, the result before the caller gets it."""
    desk, log = Desk(), evsrc.MemoryLog()
    desk.hook = lambda place: stood.setdefault(place, kinds(log))
    stood: dict[str, list[str]] = {}

    outcome = await run(log, one_ticket(desk), desk)

    assert outcome.value == "disk-1"
    assert desk.rows == [(of_kind(log, IntentRecorded)[0].marker, "disk")]
    assert stood["prepare"] == ["RunStarted"]
    assert stood["send"] == ["RunStarted", "IntentRecorded"]
    assert kinds(log) == ["RunStarted", "IntentRecorded", "ResultRecorded", "RunCompleted"]


async def test_the_intent_is_durable_at_the_send() -> None:
    """Everything before the send is durable when the first byte leaves, reads included."""
    desk, log = Desk(), evsrc.MemoryLog()
    durable: list[int] = []
    desk.hook = lambda place: durable.append(log.last_position - log.durable_position)

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def look() -> str:
            return "seen"

        await run.step(look)
        assert log.durable_position < log.last_position
        return await run.call(desk.note, subject)

    await run(log, flow, desk)
    assert durable == [0, 0]


async def test_a_completed_run_sends_nothing_again() -> None:
    """Asked again after its end, a run gives its recorded value, in this process and the next."""
    desk, log = Desk(), evsrc.MemoryLog()
    for _ in range(2):
        assert (await run(log, one_ticket(desk), desk)).value == "disk-1"
    assert len(desk.sent) == 1


def small(desk: Desk) -> Any:
    """A workflow with two kinds of reads and two kinds of effects."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> list[str]:
        async def look() -> str:
            return subject

        found = [await run.step(look), await run.call(desk.query, "q")]
        found.append(await run.call(desk.ticket, subject))
        found.append(await run.call(desk.block, "srv", "seen"))
        found.append(await run.call(desk.ticket, "second", priority=1))
        return found

    return flow


@pytest.mark.parametrize("landed", [True, False])
async def test_every_prefix_resumes_to_one_effect_each(landed: bool) -> None:
    """Cut after any record, with the last effect there or not, the resumed run does each act once."""
    whole, done = evsrc.MemoryLog(namespace="n"), Desk()
    expected = (await run(whole, small(done), done)).value
    acts = {m: s for m, s in done.rows if s != "q"}
    for count in range(1, whole.last_position + 1):
        log = await cut(whole, count)
        intents = [i.marker for i in of_kind(log, IntentRecorded)]
        unanswered = len(intents) > kinds(log).count("ResultRecorded")
        there = intents[:-1] if unanswered and not landed else intents
        desk = Desk(rows=[(m, acts[m]) for m in there])

        outcome = await run(log, small(desk), desk)

        subjects = sorted(s for _, s in desk.rows if s != "q")
        assert subjects == ["disk", "second", "srv"], (count, events(log))
        assert isinstance(outcome.value, list) and len(outcome.value) == len(expected)
        assert all(call.settled for call in evsrc.fold("r", events(log)).calls.values())
        unknown = of_kind(log, OutcomeUnknown)
        assert [u.cause for u in unknown] == ["crash"] * unanswered
        assert outcome.value[0] == "disk"


@pytest.mark.parametrize("fault", ["lose", "hang", "there"])
async def test_a_lost_answer_is_looked_for_and_adopted(fault: str) -> None:
    """An error after the commit, a time-out or "already there" is unknown, then found, never repeated."""
    desk, log = Desk(fault), evsrc.MemoryLog()

    outcome = await run(log, one_ticket(desk), desk)

    assert outcome.value == "disk-1"
    assert (desk.effects("disk"), len(desk.sent), desk.probes) == (1, 1, 1)
    cause = {"lose": "error", "hang": "timeout", "there": "already-there"}[fault]
    assert [u.cause for u in of_kind(log, OutcomeUnknown)] == [cause]
    assert [r.verdict for r in of_kind(log, IntentReconciled)] == ["happened"]
    assert {"CallNotSent", "CallRejected"}.isdisjoint(kinds(log))


async def test_a_request_that_did_nothing_is_sent_again_after_the_look() -> None:
    """Sent and not landed: unknown, proven absent by a complete look, and sent once more."""
    desk, log = Desk("silent"), evsrc.MemoryLog()

    outcome = await run(log, one_ticket(desk), desk)

    assert outcome.value == "disk-1"
    assert [attempt for _, attempt in desk.sent] == [1, 2]
    assert len({key for key, _ in desk.sent}) == 1
    assert [r.verdict for r in of_kind(log, IntentReconciled)] == ["absent"]


async def test_not_sent_is_sent_again_with_the_same_key() -> None:
    """NotSent needs no look: attempt 2 goes out under the same key straight away."""
    desk, log = Desk("not-sent", "throttle"), evsrc.MemoryLog()

    outcome = await run(log, one_ticket(desk), desk)

    assert outcome.value == "disk-1"
    intents = of_kind(log, IntentRecorded)
    assert [i.attempt for i in intents] == [1, 2, 3]
    assert len({i.key for i in intents}) == len({i.sent for i in intents}) == 1
    assert desk.sent == [(intents[0].key, 3)]
    assert desk.probes == 0
    assert "OutcomeUnknown" not in kinds(log)


async def failing(log: evsrc.Log, desk: Desk, seen: list[BaseException]) -> Any:
    """Run a workflow that notes the error of its one call and goes on."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        try:
            await run.call(desk.ticket, subject)
        except Exception as error:  # noqa: BLE001 - what it is, is the test
            seen.append(error)
            return type(error).__name__
        return "no error"

    return await run(log, flow, desk)


@pytest.mark.parametrize(
    ("faults", "error"), [(("reject",), Rejected), (("not-sent",) * 3, NotSent)]
)
async def test_an_error_is_the_same_on_replay(faults: tuple[str, ...], error: type) -> None:
    """A refusal, and a budget used up, are raised again with type and text, and nothing is sent."""
    desk, log, seen = Desk(*faults), evsrc.MemoryLog(), list[BaseException]()
    assert (await failing(log, desk, seen)).value == error.__name__
    assert desk.rows == []

    again = await cut(log, before="RunCompleted")
    assert (await failing(again, desk, seen)).value == error.__name__

    assert [type(e) for e in seen] == [error, error]
    assert str(seen[0]) == str(seen[1])
    assert desk.sent == desk.rows == []
    assert kinds(again) == kinds(log)


async def test_a_result_that_cannot_be_recorded_settles_the_call() -> None:
    """The effect is there, its result is not: ResultUnusable, on replay too, and never a second send."""
    rows: list[str] = []

    @evsrc.tool()
    async def odd(call: evsrc.Call, subject: str) -> Any:
        rows.append(call.marker)
        return object()

    @evsrc.tool()
    async def large(call: evsrc.Call, subject: str) -> str:
        rows.append(call.marker)
        return "x" * 600_000

    seen: list[str] = []

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        for tool in (odd, large):
            try:
                await run.call(tool, subject)
            except ResultUnusable as error:
                seen.append(str(error))
        return len(seen)

    log = evsrc.MemoryLog()
    await run(log, flow, Desk())
    again = await cut(log, before="RunCompleted")
    await run(again, flow, Desk())
    assert len(seen) == 4
    assert seen[:2] == seen[2:]
    assert len(rows) == 2
    assert kinds(again).count("ResultRecorded") == 2


async def test_a_blocking_send_ends_when_its_thread_returns() -> None:
    """Cancelled in its thread, a send is not given up before the thread returned; its result counts."""
    import threading

    release, entered, rows = threading.Event(), threading.Event(), list[str]()

    @evsrc.tool()
    def slow(call: evsrc.Call, subject: str) -> str:
        entered.set()
        release.wait(5)
        rows.append(subject)
        return "done"

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        with anyio.move_on_after(0.02):
            return await run.call(slow, subject)
        return "gave up"

    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log, tools=[slow]) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "gave up"
        assert entered.is_set()
        assert "OutcomeUnknown" not in kinds(log)
        release.set()
        await until(lambda: "ResultRecorded" in kinds(log))
    assert rows == ["disk"]
    assert "OutcomeUnknown" not in kinds(log)


# ---- names -------------------------------------------------------------------------------------


async def test_two_calls_that_look_alike_are_refused() -> None:
    """Two unlabelled calls of one tool at once could not be told apart: AmbiguousCall, one send at most."""
    desk, log = Desk(), evsrc.MemoryLog()
    desk.linger_s = 0.01

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        with pytest.raises(ExceptionGroup) as caught:
            async with anyio.create_task_group() as group:
                group.start_soon(run.call, desk.ticket, "a")
                group.start_soon(run.call, desk.ticket, "b")
        assert caught.group_contains(AmbiguousCall, match=r"label")
        return "swallowed"

    with pytest.raises(AmbiguousCall, match=r"run\.map"):
        await run(log, flow, desk)
    assert len(desk.sent) <= 1
    assert "RunCompleted" not in kinds(log)
    assert "RunFailed" not in kinds(log)


async def test_a_second_task_is_ambiguous_while_the_first_lives() -> None:
    """One call after the other, but from two living tasks: their order is the scheduler's, so refused."""
    desk = Desk()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        first = anyio.Event()

        async def one() -> None:
            await run.call(desk.ticket, "a")
            first.set()
            await anyio.sleep(0.05)

        async def two() -> None:
            await first.wait()
            await run.call(desk.ticket, "b")

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(two)
        return "both"

    with pytest.raises(AmbiguousCall):
        await run(evsrc.MemoryLog(), flow, desk)
    assert desk.effects("b") == 0


async def test_unlike_tools_and_labelled_calls_run_at_once() -> None:
    """Calls of unlike tools, and calls with labels, may be in flight together; one after another too."""
    desk, log = Desk(), evsrc.MemoryLog()
    desk.linger_s = 0.1

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> list[str]:
        got: list[str] = []

        async def one(tool: Any, label: str) -> None:
            got.append(await run.options(label=label).call(tool, f"{subject}{label}"))

        async with anyio.create_task_group() as group:
            group.start_soon(one, desk.ticket, "")
            group.start_soon(one, desk.page, "")
            group.start_soon(one, desk.ticket, "a")
            group.start_soon(one, desk.ticket, "b")
        got.append(await run.call(desk.page, "last"))
        return sorted(got)

    outcome = await run(log, flow, desk)
    assert len(outcome.value) == 5
    assert desk.at_once_max >= 3
    assert len({i.key for i in of_kind(log, IntentRecorded)}) == 5


async def test_wait_for_runs_its_body_in_a_task_that_ends(anyio_backend: str) -> None:
    """asyncio.wait_for, which uses a task of its own on 3.11, is no second living task."""
    if anyio_backend != "asyncio":
        pytest.skip("asyncio only")
    desk = Desk()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        for name in "ab":
            await asyncio.wait_for(run.call(desk.ticket, name), 5)
        return len(desk.rows)

    assert (await run(evsrc.MemoryLog(), flow, desk)).value == 2


async def test_a_label_names_one_call() -> None:
    """The same label of one tool twice in a scope is refused, though the calls follow each other."""
    desk = Desk()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        named = run.options(label="x")
        await named.call(desk.page, "a")
        await named.call(desk.ticket, "a")
        return await named.call(desk.ticket, "b")

    with pytest.raises(KeyReuseError, match="label 'x'"):
        await run(evsrc.MemoryLog(), flow, desk)
    assert desk.effects("b") == 0


async def test_an_own_key_is_one_act() -> None:
    """The same own key and arguments give the recorded answer, also asked at once: one send."""
    desk, log = Desk(), evsrc.MemoryLog()
    desk.linger_s = 0.02

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> list[str]:
        keyed, got = run.options(key="K"), list[str]()

        async def ask() -> None:
            got.append(await keyed.call(desk.ticket, subject))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask)
        await ask()
        return got

    assert (await run(log, flow, desk)).value == ["disk-1"] * 4
    again = await cut(log, before="RunCompleted")
    assert (await run(again, flow, desk)).value == ["disk-1"] * 4
    assert len(desk.sent) == 1


async def test_who_leaves_does_not_stop_a_call_that_others_wait_for() -> None:
    """One of two callers of one own key gives up; the other gets the answer of the one send."""
    desk, log = Desk(), evsrc.MemoryLog()
    desk.linger_s = 0.1

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> list[str]:
        keyed, got = run.options(key="K"), list[str]()

        async def patient() -> None:
            got.append(await keyed.call(desk.ticket, subject))

        async def impatient() -> None:
            with anyio.move_on_after(0.03):
                got.append(await keyed.call(desk.ticket, subject))

        async with anyio.create_task_group() as group:
            group.start_soon(impatient)
            group.start_soon(patient)
        return got

    assert (await run(log, flow, desk)).value == ["disk-1"]
    assert len(desk.sent) == 1
    assert "OutcomeUnknown" not in kinds(log)


async def test_an_argument_of_the_wrong_type_is_refused_before_anything() -> None:
    """Arguments are checked against the declared types before an intent exists."""
    desk, log = Desk(), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        wrong: Any = 7
        return await run.call(desk.ticket, wrong)

    with pytest.raises(CallerError, match="subject"):
        (await run(log, flow, desk)).value  # noqa: B018 - a failed run raises here
    assert desk.sent == []
    assert "IntentRecorded" not in kinds(log)


# ---- freshness ---------------------------------------------------------------------------------


async def test_a_stale_call_is_not_sent() -> None:
    """Older than its `not_after_s` when its turn comes, a call is not sent, and says so on replay too."""
    desk, log, seen = Desk(), evsrc.MemoryLog(), list[str]()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        try:
            return await run.options(not_after_s=-1.0).call(desk.ticket, subject)
        except StaleIntent as error:
            seen.append(str(error))
            return "stale"

    assert (await run(log, flow, desk)).value == "stale"
    again = await cut(log, before="RunCompleted")
    assert (await run(again, flow, desk)).value == "stale"
    assert seen[0] == seen[1]
    assert desk.sent == []
    assert [e.final for e in of_kind(log, CallNotSent)] == [True]


async def test_freshness_is_checked_last() -> None:
    """A call that grew stale in `prepare`, or while its intent was written, is not sent either."""
    for place in ("prepare", "intent"):
        desk, now = Desk(), [0]

        class Clock:
            def now_ns(self) -> int:
                return 1_000_000_000_000 + now[0]  # noqa: B023

            def monotonic(self) -> float:
                return anyio.current_time()

            async def sleep(self, seconds: float) -> None:
                await anyio.sleep(min(seconds, 0.05))

        class Late:
            def on(self, moment: evsrc.Moment, /) -> None:
                if place == "intent" and moment.name == "after_intent":  # noqa: B023
                    now[0] = 10**10  # noqa: B023

        def hook(at: str) -> None:
            if at == place == "prepare":  # noqa: B023
                now[0] = 10**10  # noqa: B023

        desk.hook = hook

        @evsrc.workflow(version="1")
        async def flow(run: evsrc.Run, subject: str) -> str:
            with pytest.raises(StaleIntent):
                await run.options(not_after_s=5.0).call(desk.ticket, subject)  # noqa: B023
            return "stale"

        log = evsrc.MemoryLog()
        outcome = await run(log, flow, desk, clock=Clock(), observers=[Late()])
        assert outcome.value == "stale", place
        assert desk.sent == [], place
        assert "OutcomeUnknown" not in kinds(log)


async def test_a_failed_run_has_no_value() -> None:
    """An error that user code lets go ends the run as failed, with the refusal's type and text."""
    desk, log = Desk("reject"), evsrc.MemoryLog()
    outcome = await run(log, one_ticket(desk), desk)
    assert isinstance(outcome, evsrc.Failed)
    assert (outcome.error.type, outcome.error.message) == ("Rejected", "no such queue")
    with pytest.raises(RunNotCompleted):
        outcome.value  # noqa: B018
