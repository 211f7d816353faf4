"""Settling: what a crash or a close left open is looked at by the next owner, and never sent by it."""

from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import IntentReconciled, OutcomeUnknown
from tests.runtime.desk import Desk, cut, events, kinds, of_kind, until

pytestmark = pytest.mark.anyio


def flow_of(desk: Desk, tool: Any) -> Any:
    """One call of that tool."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        value: str = await run.call(tool, subject)
        return value

    return flow


async def closed_in_flight(desk: Desk, tool: Any) -> evsrc.MemoryLog:
    """A log whose runtime was closed while the send had committed and not answered."""
    log, committed = evsrc.MemoryLog(namespace="n"), anyio.Event()
    desk.faults = ["hang"]
    desk.hook = lambda place: committed.set() if place == "committed" else None
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.start(flow_of(desk, tool), "disk", run_id="r")
        with anyio.fail_after(2):
            await committed.wait()
    return log


async def test_closing_during_a_send_records_unknown() -> None:
    """The send is stopped and recorded as unknown, not as failed; the next opening settles it."""
    desk = Desk()
    log = await closed_in_flight(desk, desk.ticket)
    assert [u.cause for u in of_kind(log, OutcomeUnknown)] == ["cancelled"]
    assert kinds(log)[-1] == "OutcomeUnknown"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await until(lambda: not runtime.state("r").unsettled)
        assert not runtime.state("r").ended
        assert [r.verdict for r in of_kind(log, IntentReconciled)] == ["happened"]
        outcome = await runtime.run(flow_of(desk, desk.ticket), "disk", run_id="r")
        assert outcome.value == "disk-1"
    assert len(desk.sent) == 1


async def test_a_tool_that_tells_nothing_becomes_a_question() -> None:
    """The next owner cannot look, so it asks; nothing is sent meanwhile."""
    desk, heard = Desk(), list[str]()
    log = await closed_in_flight(desk, desk.page)
    async with evsrc.open_runtime(
        log, tools=desk.all_tools, on_question=lambda run_id, q: heard.append(run_id)
    ):
        await until(lambda: bool(heard))
    assert heard == ["r"]
    assert kinds(log)[-1] == "QuestionAsked"
    assert len(desk.sent) == 1


@pytest.mark.parametrize("landed", [True, False])
async def test_a_crash_after_the_intent_is_unknown_first(landed: bool) -> None:
    """An intent without an outcome is unknown once the next owner sees it, then what the look says."""
    desk, whole = Desk(), evsrc.MemoryLog(namespace="n")
    async with evsrc.open_runtime(whole, tools=desk.all_tools) as runtime:
        await runtime.run(flow_of(desk, desk.ticket), "disk", run_id="r")
    log, sent = await cut(whole, before="ResultRecorded"), len(desk.sent)
    desk.rows = desk.rows if landed else []
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await until(lambda: not runtime.state("r").unsettled)
        await anyio.sleep(0.02)
        assert len(desk.sent) == sent  # settling never sends
        verdicts = [r.verdict for r in of_kind(log, IntentReconciled)]
        assert verdicts == ["happened" if landed else "absent"]
        assert (await runtime.run(flow_of(desk, desk.ticket), "disk", run_id="r")).value == "disk-1"
    assert desk.effects("disk") == 1
    assert [u.cause for u in of_kind(log, OutcomeUnknown)] == ["crash"]


async def test_settling_goes_on_beside_the_code() -> None:
    """The run's code and the settling of its call meet in one driver: one look, one outcome."""
    desk = Desk()
    log = await closed_in_flight(desk, desk.ticket)
    desk.linger_s = 0.05
    flow = flow_of(desk, desk.ticket)
    async with evsrc.open_runtime(log, tools=desk.all_tools, workflows=[flow]) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "disk-1"
    assert desk.probes == 1
    assert kinds(log).count("IntentReconciled") == 1


async def test_an_ended_run_s_call_is_settled_too() -> None:
    """A run that ended lists its open calls, and they are settled after it, also in the next process."""
    desk, log = Desk("hang"), evsrc.MemoryLog(namespace="n")

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        with anyio.move_on_after(0.02):
            return await run.call(desk.page, subject)
        return "gave up"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        assert (await runtime.run(flow, "disk", run_id="r")).value == "gave up"
    ended = evsrc.fold("r", events(log))
    assert ended.ended
    assert len(ended.unsettled) == 1
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await until(lambda: len(runtime.questions()) == 1)
        ((run_id, question),) = runtime.questions()
        await runtime.answers.answer(run_id, question.subject, "happened", by="ann", value="x")
        assert runtime.state("r").unsettled == []


async def test_closing_does_not_wait_for_a_slow_prepare() -> None:
    """What comes before the intent is just dropped: nothing was sent, nothing says that it may have been."""
    desk, log, entered = Desk(), evsrc.MemoryLog(), anyio.Event()
    desk.linger_s = 5
    desk.hook = lambda place: entered.set()
    with anyio.fail_after(2):
        async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
            await runtime.start(flow_of(desk, desk.ticket), "disk", run_id="r")
            await entered.wait()
    assert kinds(log) == ["RunStarted"]


async def test_closing_does_not_wait_for_a_slow_probe() -> None:
    """A look in progress is dropped at the close; the call stays unknown for the next owner."""
    desk, log, entered = Desk("lose"), evsrc.MemoryLog(), anyio.Event()

    def hook(place: str) -> None:
        if place == "probe":
            desk.linger_s = 5
            entered.set()

    desk.hook = hook
    with anyio.fail_after(2):
        async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
            await runtime.start(flow_of(desk, desk.ticket), "disk", run_id="r")
            await entered.wait()
    assert kinds(log)[-1] == "OutcomeUnknown"


async def test_what_the_body_raises_arrives_unwrapped() -> None:
    """An exception of the `async with` block comes out as it was raised, with its cause and its group."""
    cause, error = KeyError("cause"), ValueError("body")
    with pytest.raises(ValueError, match="body") as caught:
        async with evsrc.open_runtime(evsrc.MemoryLog()):
            raise error from cause
    assert caught.value is error
    assert caught.value.__cause__ is cause
    with pytest.raises(ExceptionGroup) as grouped:
        async with evsrc.open_runtime(evsrc.MemoryLog()):
            raise ExceptionGroup("mine", [ValueError("x")])
    assert grouped.value.message == "mine"


async def test_a_fault_of_an_observer_changes_nothing() -> None:
    """An observer that raises at every moment is logged and otherwise ignored."""

    class Broken:
        def on(self, moment: evsrc.Moment, /) -> None:
            raise ValueError(moment.name)

    desk = Desk()
    async with evsrc.open_runtime(
        evsrc.MemoryLog(), tools=desk.all_tools, observers=[Broken()]
    ) as runtime:
        outcome = await runtime.run(flow_of(desk, desk.ticket), "disk", run_id="r")
        assert outcome.value == "disk-1"


@pytest.mark.parametrize("answer", ["value", "kind"])
async def test_a_verdict_that_does_not_fit_settles_or_is_ignored(answer: str) -> None:
    """A found effect with an unusable value is done and unusable; what is no verdict tells nothing."""
    sent: list[str] = []

    @evsrc.tool(effect=evsrc.Effect.MARKED, lag_s=0, late_s=0, history=True, on_unknown="skip")
    async def create(call: evsrc.Call, subject: str) -> str:
        sent.append(subject)
        raise ConnectionResetError

    @create.probe
    async def look(call: evsrc.Call, subject: str) -> Any:
        return evsrc.Happened(object()) if answer == "value" else "yes"

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        try:
            return await run.call(create, subject)
        except (evsrc_errors().ResultUnusable, evsrc_errors().OutcomeSkipped) as error:
            return type(error).__name__

    clock = QuickClock()
    async with evsrc.open_runtime(evsrc.MemoryLog(), tools=[create], clock=clock) as runtime:
        expected = "ResultUnusable" if answer == "value" else "OutcomeSkipped"
        assert (await runtime.run(flow, "disk")).value == expected
    assert sent == ["disk"]


class QuickClock:
    """A clock whose sleeps are short, so that eight looks take no half minute."""

    def now_ns(self) -> int:
        return int(anyio.current_time() * 1e9) + 10**18

    def monotonic(self) -> float:
        return anyio.current_time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(min(seconds, 0.001))


def evsrc_errors() -> Any:
    """The module of errors."""
    import evsrc.errors

    return evsrc.errors
