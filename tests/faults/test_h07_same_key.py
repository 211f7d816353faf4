"""H07: a caller's own key with another payload is a mismatch, never a silent first answer."""

import anyio
import pytest

import evsrc
from evsrc.errors import KeyReuseError
from tests.runtime.desk import Desk, cut

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("replayed", [False, True])
async def test_h07_repeat_and_mismatch(replayed: bool) -> None:
    """P1 again gives the stored answer without a send; P2 is an error that names the field."""
    desk, got = Desk(), list[str]()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        keyed = run.options(key="K")
        got.append(await keyed.call(desk.ticket, subject))
        got.append(await keyed.call(desk.ticket, subject))
        return await keyed.call(desk.ticket, subject, priority=1)

    log = evsrc.MemoryLog(namespace="n")
    for _ in range(2 if replayed else 1):
        async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
            with pytest.raises(KeyReuseError, match="priority"):
                await runtime.run(flow, "disk", run_id="r")
        log = await cut(log)
    assert set(got) == {"disk-1"}
    assert len(desk.sent) == 1


async def test_h07_mismatch_in_flight() -> None:
    """P2 while P1 is in flight is the same error, not "busy" and not P1's answer."""
    desk = Desk()
    desk.linger_s = 0.05
    errors: list[str] = []

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        keyed = run.options(key="K")

        async def second() -> None:
            await anyio.sleep(0.02)
            try:
                await keyed.call(desk.ticket, subject, priority=1)
            except KeyReuseError as error:
                errors.append(str(error))

        async with anyio.create_task_group() as group:
            group.start_soon(keyed.call, desk.ticket, subject)
            group.start_soon(second)
        return "end"

    async with evsrc.open_runtime(evsrc.MemoryLog(), tools=desk.all_tools) as runtime:
        with pytest.raises(KeyReuseError):
            await runtime.run(flow, "disk", run_id="r")
    assert len(errors) == 1
    assert "priority" in errors[0]
    assert (len(desk.sent), desk.effects("disk")) == (1, 1)


async def test_h07_mismatch_of_two_that_wait_for_replay() -> None:
    """P1 and P2 both held back by a replay that is not over: one is sent, the other refused."""
    desk, extra = Desk(), [False]

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        async def old() -> None:
            await anyio.sleep(0.03 * extra[0])
            await run.call(desk.note, "old")

        async with anyio.create_task_group() as group:
            group.start_soon(old)
            if extra[0]:
                for priority in (1, 2):
                    group.start_soon(ask, run, priority)
        return "end"

    refused: list[int] = []

    async def ask(run: evsrc.Run, priority: int) -> None:
        try:
            await run.options(key="K").call(desk.ticket, "disk", priority=priority)
        except KeyReuseError:
            refused.append(priority)

    log = evsrc.MemoryLog(namespace="n")
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.run(flow, "disk", run_id="r")
    again, extra[0] = await cut(log, before="RunCompleted"), True
    async with evsrc.open_runtime(again, tools=desk.all_tools) as runtime:
        with pytest.raises(KeyReuseError):
            await runtime.run(flow, "disk", run_id="r")
    assert len(refused) == 1
    assert desk.effects("disk") == 1


async def test_h07_the_key_means_the_same_in_every_run() -> None:
    """Another run that uses the key for other arguments is refused; for the same ones the tool is asked."""
    desk = Desk()
    log = evsrc.MemoryLog(namespace="n")

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        return await run.options(key="K").call(desk.ticket, subject)

    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        first = (await runtime.run(flow, "P1", run_id="one")).value
        with pytest.raises(KeyReuseError, match="used in run 'one'"):
            await runtime.run(flow, "P2", run_id="two")
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        again = (await runtime.run(flow, "P1", run_id="three")).value

    assert again == first
    assert len(desk.sent) == 1
