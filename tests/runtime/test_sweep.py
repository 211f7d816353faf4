"""The full sweep: which effects carry our markers, and what follows for those that no intent explains."""

from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import IntentReconciled, IntentRecorded, OutcomeUnknown, SweepRecorded
from tests.runtime.desk import Desk, kinds, of_kind

pytestmark = pytest.mark.anyio


def ticket_flow(desk: Desk) -> Any:
    """One ticket."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        return await run.call(desk.ticket, subject)

    return flow


async def orphaned(namespace: str = "n") -> Desk:
    """A world in which a run of a log, now lost, left a ticket."""
    desk = Desk()
    lost = evsrc.MemoryLog(namespace=namespace)
    async with evsrc.open_runtime(lost, tools=desk.all_tools) as runtime:
        await runtime.run(ticket_flow(desk), "disk", run_id="r")
    return desk


async def test_effects_that_are_explained_are_no_orphans() -> None:
    """A sweep after an ordinary run is complete and finds nothing strange; it is recorded."""
    desk, log = Desk(), evsrc.MemoryLog()
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.run(ticket_flow(desk), "disk", run_id="r")
        (swept,) = await runtime.sweep()
    assert (swept.tool, swept.complete, swept.seen) == ("ticket", True, 1)
    assert (swept.orphans, swept.duplicates) == ((), ())
    assert [e.seen for e in of_kind(log, SweepRecorded, "evsrc/sweep")] == [1]


async def test_orphans_and_duplicates_are_reported_and_recorded() -> None:
    """On an empty log every marker of its namespace is an orphan; two rows of one marker a duplicate."""
    desk = await orphaned()
    desk.rows.append(desk.rows[0])
    marker = desk.rows[0][0]
    log = evsrc.MemoryLog(namespace="n")
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        (swept,) = await runtime.sweep()
        assert runtime.run_ids == []
    assert (swept.orphans, swept.duplicates) == ((marker,), (marker,))
    assert [e.orphans for e in of_kind(log, SweepRecorded, "evsrc/sweep")] == [(marker,)]


async def test_other_namespaces_and_strangers_are_ignored() -> None:
    """Markers of another log, and texts that only look like ours, do not count."""
    desk = await orphaned("another")
    desk.rows += [("evsrc-not-a-marker", "x"), ("", "y")]
    async with evsrc.open_runtime(evsrc.MemoryLog(namespace="n"), tools=desk.all_tools) as runtime:
        (swept,) = await runtime.sweep()
    assert (swept.seen, swept.orphans) == (0, ())


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_call_that_derives_an_orphan_s_marker_probes_first(reopened: bool) -> None:
    """After the tail of a log was lost and a sweep saw its ticket, the run adopts it and sends nothing."""
    desk = await orphaned()
    log = evsrc.MemoryLog(namespace="n")
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.sweep()
        if not reopened:
            outcome = await runtime.run(ticket_flow(desk), "disk", run_id="r")
    if reopened:
        async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
            outcome = await runtime.run(ticket_flow(desk), "disk", run_id="r")
    assert outcome.value == "disk-1"
    assert (len(desk.sent), desk.effects("disk")) == (1, 1)
    assert [u.cause for u in of_kind(log, OutcomeUnknown)] == ["swept"]


async def test_an_orphan_that_is_gone_is_sent_after_the_look() -> None:
    """What a sweep saw and the look proves absent is sent once, as a second attempt."""
    desk = await orphaned()
    log = evsrc.MemoryLog(namespace="n")
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        await runtime.sweep()
        desk.rows.clear()
        assert (await runtime.run(ticket_flow(desk), "disk", run_id="r")).value == "disk-1"
    assert [i.attempt for i in of_kind(log, IntentRecorded)] == [1, 2]
    assert [r.verdict for r in of_kind(log, IntentReconciled)] == ["absent"]
    assert desk.effects("disk") == 1


@pytest.mark.parametrize("fault", ["raises", "breaks off"])
async def test_a_sweep_that_breaks_off_is_incomplete(fault: str) -> None:
    """A sweep that raises, or ends without saying so, is recorded as incomplete; the others go on."""

    @evsrc.tool()
    async def broken(call: evsrc.Call, subject: str) -> str:
        return subject

    @broken.sweep
    async def look(since: Any) -> Any:
        yield evsrc.Found("x", "y")
        if fault == "raises":
            raise ConnectionResetError

    desk = Desk()
    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log, tools=[broken, *desk.all_tools]) as runtime:
        swept = {s.tool: s.complete for s in await runtime.sweep()}
    assert swept == {"broken": False, "ticket": True}
    assert kinds(log, "evsrc/sweep") == ["SweepRecorded"] * 2


async def test_a_call_made_during_a_sweep_is_no_orphan() -> None:
    """A ticket opened while the sweep is under way is explained by its intent, though that is new."""
    desk, log = Desk(), evsrc.MemoryLog()
    asked, go_on = anyio.Event(), anyio.Event()

    @evsrc.tool(effect=evsrc.Effect.MARKED)
    async def create(call: evsrc.Call, subject: str) -> str:
        desk.rows.append((call.marker, subject))
        return subject

    @create.sweep
    async def look(since: Any) -> Any:
        asked.set()
        await go_on.wait()
        for marker, subject in desk.rows:
            yield evsrc.Found(marker, subject)
        yield evsrc.SweepEnd(complete=True)

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        return await run.call(create, subject)

    async with evsrc.open_runtime(log, tools=[create]) as runtime:
        results: list[Any] = []

        async def sweep() -> None:
            results.extend(await runtime.sweep())

        async with anyio.create_task_group() as group:
            group.start_soon(sweep)
            await asked.wait()
            await runtime.run(flow, "disk", run_id="r")
            go_on.set()
    assert [s.orphans for s in results] == [()]
