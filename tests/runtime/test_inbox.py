"""The inbox: answers and starts that other processes drop, and everything else that may lie there."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

import evsrc
from evsrc.core.events import QuestionAnswered
from evsrc.log.file.inbox import INBOX_NAME, REFUSED_NAME, drop
from evsrc.runtime import mailbox
from tests.runtime.desk import Desk, of_kind, until

pytestmark = pytest.mark.anyio


def page_flow(desk: Desk, after: list[str]) -> Any:
    """One page of unknown outcome."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        after.append(await run.call(desk.page, subject))
        return after[-1]

    return flow


async def suspended(runtime: evsrc.Runtime, flow: Any) -> str:
    """Run until suspended; the id of the call that is asked about."""
    outcome = await runtime.run(flow, "disk", run_id="r")
    assert isinstance(outcome, evsrc.Suspended)
    return outcome.questions[0].subject


def answer_message(subject: str, *, id: str = "m1", **payload: Any) -> bytes:
    """An answer as another process drops it."""
    fields = {"subject": subject, "answer": "happened", "by": "ann", "value": "p-7", **payload}
    return mailbox.encode(mailbox.Message(id, "answer", "r", fields, "cli"))


async def test_an_answer_from_the_inbox_finishes_the_run(tmp_path: Path) -> None:
    """A dropped answer is recorded with its id and wakes the run; dropped twice, it counts once."""
    desk, after = Desk("lose"), list[str]()
    folder = tmp_path / "log"
    async with evsrc.open_runtime(folder, tools=desk.all_tools) as runtime:
        flow = page_flow(desk, after)
        subject = await suspended(runtime, flow)
        for _ in range(2):
            drop(folder, answer_message(subject))
        handle = await runtime.start(flow, "disk", run_id="r")
        with anyio.fail_after(5):
            assert (await handle.wait()).value == "p-7"
        await until(lambda: not list((folder / INBOX_NAME).glob("*.msg")))
        assert runtime.state("r").messages == {"m1"}
        log = runtime._services.log
        assert [a.message for a in of_kind(log, QuestionAnswered)] == ["m1"]


async def test_an_answer_that_waited_for_the_owner_is_applied(tmp_path: Path) -> None:
    """Dropped while nobody owns the log, an answer is applied by the next owner."""
    desk, after, folder = Desk("lose"), list[str](), tmp_path / "log"
    flow = page_flow(desk, after)
    async with evsrc.open_runtime(folder, tools=desk.all_tools) as runtime:
        subject = await suspended(runtime, flow)
    drop(folder, answer_message(subject))
    async with evsrc.open_runtime(folder, tools=desk.all_tools, workflows=[flow]) as runtime:
        with anyio.fail_after(5):
            assert (await (await runtime.start(flow, "disk", run_id="r")).wait()).value == "p-7"
    assert len(desk.sent) == 1


GARBAGE = {
    "noise": os.urandom(200),
    "no message": b'{"id": "x"}',
    "deep": b'{"id":"x","kind":"answer","run":"r","payload":{"a":' + b"[" * 100_000,
    "unknown run": mailbox.encode(mailbox.Message("g1", "answer", "nobody", {})),
    "unknown call": answer_message("c" * 64, id="g2"),
    "unknown verdict": answer_message("c" * 64, id="g3", answer="maybe"),
    "unknown workflow": mailbox.encode(mailbox.Message("g4", "start", "s", {"workflow": "none"})),
    "bad run id": mailbox.encode(
        mailbox.Message("g5", "start", "x" * 500, {"workflow": "flow", "input": "disk"})
    ),
    "reserved run": mailbox.encode(
        mailbox.Message("g6", "start", "evsrc/sweep", {"workflow": "flow", "input": "disk"})
    ),
    "bad input": mailbox.encode(
        mailbox.Message("g7", "start", "s", {"workflow": "flow", "input": {"no": "text"}})
    ),
    "other input": mailbox.encode(
        mailbox.Message("g8", "start", "r", {"workflow": "flow", "input": "other"})
    ),
}


async def test_garbage_in_the_inbox_stops_nobody(tmp_path: Path) -> None:
    """What is no fitting message is put aside, and the answer behind it still arrives."""
    desk, after, folder = Desk("lose"), list[str](), tmp_path / "log"
    flow = page_flow(desk, after)
    async with evsrc.open_runtime(folder, tools=desk.all_tools, workflows=[flow]) as runtime:
        subject = await suspended(runtime, flow)
        for data in GARBAGE.values():
            drop(folder, data)
        drop(folder, answer_message(subject, id="m2"))
        with anyio.fail_after(5):
            await (await runtime.start(flow, "disk", run_id="r")).wait()
        await until(lambda: not list((folder / INBOX_NAME).glob("*.msg")))
    refused = {p.read_bytes() for p in (folder / INBOX_NAME / REFUSED_NAME).iterdir()}
    assert refused == set(GARBAGE.values())
    assert after == ["p-7"]


async def test_a_message_that_does_not_fit_is_an_event(tmp_path: Path) -> None:
    """An answer of the wrong type through the inbox leaves the question open and is recorded once."""
    desk, folder = Desk("lose"), tmp_path / "log"

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> int:
        return await run.call(desk.number, subject)

    async with evsrc.open_runtime(folder, tools=desk.all_tools) as runtime:
        subject = await suspended(runtime, flow)
        for _ in range(2):
            drop(folder, answer_message(subject, id="m1", value={"not": "a number"}))
        await until(lambda: not list((folder / INBOX_NAME).glob("*.msg")))
        answers = of_kind(runtime._services.log, QuestionAnswered)
        assert [(a.fits, a.message) for a in answers] == [(False, "m1")]
        assert len(runtime.questions()) == 1


async def test_a_start_from_the_inbox_starts_one_run(tmp_path: Path) -> None:
    """A dropped start begins the named workflow with plain input; dropped twice, one run."""
    folder, ran = tmp_path / "log", list[str]()

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, subject: str) -> str:
        ran.append(subject)
        return subject

    async with evsrc.open_runtime(folder, workflows=[flow]) as runtime:
        start = mailbox.Message("m", "start", "s", {"workflow": "flow", "input": "disk"})
        for _ in range(2):
            drop(folder, mailbox.encode(start))
        await until(lambda: not list((folder / INBOX_NAME).glob("*.msg")))
        await until(lambda: "s" in runtime.run_ids and runtime.state("s").ended)
        assert runtime.outcome("s").value == "disk"
    assert ran == ["disk"]
