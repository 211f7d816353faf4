"""Open questions: a call that nobody can settle parks, and only an answer makes it go on."""

from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import IntentReconciled, QuestionAnswered, QuestionAsked
from evsrc.errors import OutcomeSkipped
from tests.runtime.desk import Desk, cut, kinds, of_kind, until

pytestmark = pytest.mark.anyio


def page_flow(desk: Desk, after: list[str]) -> Any:
    """A page of unknown outcome, asked for by code that forgives every error."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        try:
            value = await run.call(desk.page, subject)
        except Exception as error:  # noqa: BLE001 - a question must pass through this
            value = type(error).__name__
        after.append(value)
        return value

    return flow


async def suspended(log: Any, desk: Desk, after: list[str], **options: Any) -> str:
    """Run until suspended; the id of the call that is asked about."""
    async with evsrc.open_runtime(log, tools=desk.all_tools, **options) as runtime:
        outcome = await runtime.run(page_flow(desk, after), "disk", run_id="r")
        assert isinstance(outcome, evsrc.Suspended)
        (question,) = outcome.questions
        assert question.kind == "unknown"
        assert "undeclared: probe" in question.text
        return question.subject


async def test_a_question_neither_returns_nor_raises() -> None:
    """Code that catches every exception does not get past an unknown outcome; the run is suspended."""
    desk, log, after = Desk("lose"), evsrc.MemoryLog(), list[str]()
    await suspended(log, desk, after)
    assert after == []
    assert kinds(log)[-1] == "QuestionAsked"
    assert {"RunCompleted", "RunFailed"}.isdisjoint(kinds(log))


ANSWERS = [
    ("happened", "p-7", "p-7", 1),
    ("resend", None, "disk-1", 2),
    ("skip", None, "OutcomeSkipped", 1),
]


@pytest.mark.parametrize(("answer", "value", "result", "sends"), ANSWERS)
async def test_an_answer_in_process_finishes_the_run(
    answer: Any, value: str | None, result: str, sends: int
) -> None:
    """Happened adopts, resend sends the next attempt, skip raises: and the run goes on to its end."""
    desk, log, after = Desk("lose"), evsrc.MemoryLog(), list[str]()
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        handle = await runtime.start(page_flow(desk, after), "disk", run_id="r")
        await until(lambda: "QuestionAsked" in kinds(log))
        ((_, question),) = runtime.questions()
        assert (
            await runtime.answers.answer("r", question.question, answer, by="ann", value=value)
        ).fits
        assert (await handle.wait()).value == result
        assert runtime.questions() == []
    assert after == [result]
    assert len(desk.sent) == sends
    assert {key for key, _ in desk.sent} == {desk.sent[0][0]}


@pytest.mark.parametrize(("answer", "value", "result", "sends"), ANSWERS)
async def test_an_answer_after_a_restart_finishes_the_run(
    answer: Any, value: str | None, result: str, sends: int
) -> None:
    """The question outlives the process; answered by the next one, the run goes on there."""
    desk, log, after = Desk("lose"), evsrc.MemoryLog(), list[str]()
    subject = await suspended(log, desk, after)
    flow = page_flow(desk, after)
    async with evsrc.open_runtime(log, tools=desk.all_tools, workflows=[flow]) as runtime:
        await runtime.answers.answer("r", subject, answer, by="ann", value=value)
        outcome = await (await runtime.start(flow, "disk", run_id="r")).wait()
        assert outcome.value == result
    assert len(desk.sent) == sends


async def test_an_answer_without_the_code_is_found_by_it_later() -> None:
    """Answered while no code of the run is loaded, the outcome is there when the code comes back."""
    desk, log, after = Desk("lose"), evsrc.MemoryLog(), list[str]()
    subject = await suspended(log, desk, after)
    async with evsrc.open_runtime(log, resume=False) as runtime:
        await runtime.answers.answer("r", subject, "happened", by="ann", value="p-7")
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        assert (await runtime.run(page_flow(desk, after), "disk", run_id="r")).value == "p-7"
    assert len(desk.sent) == 1


async def test_absent_waits_for_what_may_still_land() -> None:
    """A person's "absent" is a look, no more: the resend waits for `late_s`, here none, and a look."""

    @evsrc.tool(effect=evsrc.Effect.MARKED, late_s=0.2)
    async def create(call: evsrc.Call, subject: str) -> str:
        sent.append(anyio.current_time())
        if len(sent) == 1:
            raise ConnectionResetError
        return "second"

    sent: list[float] = []

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        return await run.call(create, subject)

    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log, tools=[create]) as runtime:
        handle = await runtime.start(flow, "disk", run_id="r")
        await until(lambda: "QuestionAsked" in kinds(log))
        ((_, question),) = runtime.questions()
        await runtime.answers.answer("r", question.subject, "absent", by="ann")
        assert (await handle.wait()).value == "second"
    assert sent[1] - sent[0] >= 0.2
    assert [r.verdict for r in of_kind(log, IntentReconciled)] == ["absent"]


async def test_skip_leaves_the_verdict_unknown() -> None:
    """A skipped call raises OutcomeSkipped, on replay too, and stays among the unsettled calls."""
    desk, log, after = Desk("lose"), evsrc.MemoryLog(), list[str]()
    subject = await suspended(log, desk, after)
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.answers.answer("r", subject, "skip", by="ann", reason="seen by phone")
        await runtime.run(page_flow(desk, after), "disk", run_id="r")
        assert [c.id for c in runtime.state("r").unsettled] == [subject]
    again = await cut(log, before="RunCompleted")
    async with evsrc.open_runtime(again, tools=desk.all_tools) as runtime:
        await runtime.run(page_flow(desk, after), "disk", run_id="r")
    assert after == [OutcomeSkipped.__name__] * 2
    assert len(desk.sent) == 1


async def test_siblings_of_a_parked_task_go_on() -> None:
    """What does not depend on the question is done: reads, calls and long steps of other tasks."""
    desk, log, done = Desk("lose"), evsrc.MemoryLog(), list[str]()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def slow() -> str:
            await anyio.sleep(0.15)
            return "slow"

        async def sibling() -> None:
            done.append(await run.step(slow))
            done.append(await run.call(desk.ticket, "other"))

        async with anyio.create_task_group() as group:
            group.start_soon(run.call, desk.page, subject)
            group.start_soon(sibling)
        return "end"

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        with anyio.fail_after(3):
            outcome = await runtime.run(flow, "disk", run_id="r")
        assert isinstance(outcome, evsrc.Suspended)
        assert done == ["slow", "other-2"]
        await runtime.answers.answer(
            "r", outcome.questions[0].subject, "happened", by="a", value=""
        )
        assert (await runtime.run(flow, "disk", run_id="r")).value == "end"
    assert len(desk.sent) == 2


async def test_a_step_that_ends_beside_a_parked_task_lets_the_run_suspend() -> None:
    """The last thing that goes on is a read: when it ends, the run is suspended, not stuck."""
    desk = Desk("lose")

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def slow() -> None:
            await anyio.sleep(0.15)

        async with anyio.create_task_group() as group:
            group.start_soon(run.call, desk.page, subject)
            group.start_soon(run.step, slow)
        return "end"

    async with evsrc.open_runtime(evsrc.MemoryLog(), tools=desk.all_tools) as runtime:
        with anyio.fail_after(3):
            outcome = await runtime.run(flow, "disk", run_id="r")
    assert isinstance(outcome, evsrc.Suspended)


async def test_what_discarded_code_asks_is_refused_and_unrecorded() -> None:
    """Code that will not end when its run suspends can neither send nor record anything more."""
    desk, log, refused = Desk("lose"), evsrc.MemoryLog(), list[str]()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def look() -> str:
            return "x"

        try:
            return await run.call(desk.page, subject)
        except BaseException:
            with anyio.CancelScope(shield=True):
                for ask in (lambda: run.call(desk.ticket, "more"), lambda: run.step(look)):
                    try:
                        await ask()
                    except evsrc_stopped() as error:
                        refused.append(type(error).__name__)
            raise

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.run(flow, "disk", run_id="r")
        assert refused == ["RunStopped"] * 2
        assert kinds(log)[-1] == "QuestionAsked"
    assert desk.effects("more") == 0


def evsrc_stopped() -> type[Exception]:
    """The error of code that was stopped."""
    from evsrc.errors import RunStopped

    return RunStopped


async def test_on_question_hears_each_question_once_per_process() -> None:
    """Called once per open question, again in the next process, with the run's id; its error is its own."""
    desk, log, after = Desk("lose"), evsrc.MemoryLog(), list[str]()
    heard: list[tuple[str, str]] = []

    async def on_question(run_id: str, question: QuestionAsked) -> None:
        heard.append((run_id, question.question))
        raise ValueError("not our problem")

    for _ in range(2):
        await suspended(log, desk, after, on_question=on_question)
    assert len(heard) == 2
    assert heard[0] == heard[1]
    assert heard[0][0] == "r"
    assert kinds(log).count("QuestionAsked") == 1


async def test_an_answer_that_does_not_fit_is_kept_and_the_question_stays() -> None:
    """A value of the wrong type, or "keep" for a call, is an event; the question stays open."""
    desk, log = Desk("lose"), evsrc.MemoryLog()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        return await run.call(desk.number, subject)

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        outcome = await runtime.run(flow, "disk", run_id="r")
        assert isinstance(outcome, evsrc.Suspended)
        subject, answer = outcome.questions[0].subject, runtime.answers.answer
        wrong: list[tuple[Any, Any]] = [("happened", "many"), ("happened", None), ("keep", None)]
        for verdict, value in wrong:
            result = await answer("r", subject, verdict, by="ann", value=value)
            assert (result.fits, bool(result.why)) == (False, True)
        assert len(runtime.questions()) == 1
        assert (await answer("r", subject, "happened", by="ann", value=4)).fits
        assert (await runtime.run(flow, "disk", run_id="r")).value == 4
        late = await answer("r", subject, "absent", by="bob")
        assert not late.fits
    assert [a.fits for a in of_kind(log, QuestionAnswered)] == [False] * 3 + [True, False]


async def test_closing_a_parked_run_is_quick() -> None:
    """A runtime with a parked call closes at once and the question is still there."""
    desk, log, after = Desk("lose"), evsrc.MemoryLog(), list[str]()
    with anyio.fail_after(2):
        await suspended(log, desk, after)
        await suspended(log, desk, after)
    assert kinds(log).count("QuestionAsked") == 1
