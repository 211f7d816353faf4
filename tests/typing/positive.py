"""What users write, and what the type checkers make of it: neither has anything to say here."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any, assert_type

import msgspec

import evsrc
from evsrc.core.verdicts import Absent, Effect, Found, Happened, Verdict
from evsrc.tools import Call, MethodTool, SecretRef, SweepEnd, Tool, ToolSet, tool


class Ticket(msgspec.Struct, frozen=True):
    id: int


# ---- a function, with everything that belongs to it ----------------------------------------------


@tool(effect=Effect.MARKED, lag_s=30, late_s=10, timeout_s=20)
async def open_ticket(call: Call, *, title: str, severity: int = 3) -> Ticket:
    return Ticket(len(call.marker) + severity)


@open_ticket.probe
async def _(call: Call, *, title: str, severity: int = 3) -> Verdict[Ticket]:
    return Happened(Ticket(1)) if title else Absent(complete=True)


@open_ticket.prepare
async def _(call: Call, *, title: str, severity: int = 3) -> dict[str, int]:
    return {"before": severity}


@open_ticket.sweep
async def _(since: datetime) -> AsyncIterator[Found | SweepEnd]:
    yield Found("m", "1")
    yield SweepEnd(complete=True)


@open_ticket.undo
async def _(call: Call, result: Ticket) -> None:
    assert_type(result.id, int)


async def use_function() -> None:
    assert_type(await open_ticket(title="a"), Ticket)
    assert_type(await open_ticket(title="a", severity=1), Ticket)
    assert_type(open_ticket.name, str)
    assert_type(open_ticket.missing(), list[str])


# ---- blocking functions --------------------------------------------------------------------------


@tool(effect=Effect.STATE, target=lambda host: f"host:{host}", resend_safe=True)
def block_host(call: Call, host: str, /, reason: str) -> bool:
    return bool(host and reason)


@block_host.probe
def _(call: Call, host: str, /, reason: str) -> Verdict[bool]:
    return Happened(True, whose="theirs")


@block_host.sweep
def _(since: datetime) -> Iterator[Found | SweepEnd]:
    yield SweepEnd(complete=False)


async def use_blocking() -> None:
    assert_type(await block_host("dc01", reason="c2"), bool)
    assert_type(await block_host("dc01", "c2"), bool)


# ---- methods -------------------------------------------------------------------------------------


class Tracker:
    def __init__(self, instance: str) -> None:
        self.instance = instance

    @tool(effect=Effect.MARKED, secret=("token",))
    async def create(self, call: Call, *, title: str, token: SecretRef) -> Ticket:
        assert_type(call.secret(token), str)
        return Ticket(1)

    @create.probe
    async def _(self, call: Call, *, title: str, token: SecretRef) -> Verdict[Ticket]:
        return Absent()

    @create.undo
    async def _(self, call: Call, result: Ticket) -> None: ...

    @tool(effect=Effect.READ)
    def count(self, call: Call) -> int:
        return 1

    @count.probe
    def _(self, call: Call) -> Verdict[int]:
        return Happened(1)


class LaterTracker(Tracker):
    """Overrides a tool with the same signature."""

    @tool(effect=Effect.NAMED)
    async def create(self, call: Call, *, title: str, token: SecretRef) -> Ticket:
        return Ticket(2)


async def use_method(tracker: Tracker, token: SecretRef) -> None:
    assert_type(await tracker.create(title="a", token=token), Ticket)
    assert_type(await tracker.count(), int)
    assert_type(tracker.count, Tool[[], int])
    assert_type(Tracker.count, MethodTool[[], int])


@tool()
async def nothing(call: Call) -> None: ...


@tool()
async def plain(call: Call, data: Any) -> Any:
    return data


async def use_rest(tracker: Tracker) -> None:
    await nothing()
    assert_type(nothing, Tool[[], None])
    ToolSet([open_ticket, tracker.create, nothing])


# ---- flows ---------------------------------------------------------------------------------------


class Alert(msgspec.Struct, frozen=True):
    host: str


flow = evsrc.Flow(
    "triage", input=Alert, run_id=lambda alert: alert.host, schedule="ready", at_once=4, reuse="log"
)


@flow.node
async def hosts(alert: Alert) -> list[str]:
    return [alert.host]


@flow.node(reads=["feed.json"], params={"limit": 3}, version="1", retry=evsrc.Retry(attempts=3))
def weight(alert: Alert, limit: int) -> int:
    return limit


@flow.each(hosts, key=lambda host: host.upper(), cost=0.1)
async def lookup(host: str, run: evsrc.Run) -> Ticket:
    return await run.call(open_ticket, title=host)


@flow.each(lookup, key=lambda ticket: str(ticket.id))
async def number(ticket: Ticket) -> int:
    return ticket.id


@flow.node(needs=[weight, "hosts", number])
async def last(run: evsrc.Run, lookup: list[Ticket], weight: int) -> str | None:
    assert_type(await run.call(block_host, "dc01", reason="c2"), bool)
    return run.id


async def use_flow(runtime: evsrc.Runtime, run: evsrc.Run) -> None:
    outcome = await runtime.run(flow, Alert("dc01"), run_id="r")
    assert_type(outcome, evsrc.Outcome[dict[str, Any]])
    assert_type(outcome[hosts], list[str])
    assert_type(outcome[weight], int)
    assert_type(outcome[lookup], list[Ticket])
    assert_type(outcome[number], list[int])
    assert_type(outcome[last], str | None)
    assert_type(await hosts(Alert("dc01")), list[str])
    assert_type(weight(Alert("dc01"), 3), int)
    assert_type(await lookup("dc01", run), Ticket)
    assert_type(flow.plan("log", Alert("dc01")), list[evsrc.Planned])
    handle = await runtime.start(flow, Alert("dc01"))
    assert_type(await handle.wait(), evsrc.Outcome[dict[str, Any]])


# ---- workflows -----------------------------------------------------------------------------------


async def count(alert: Alert, at_least: int = 0) -> int:
    return max(at_least, len(alert.host))


def count_blocking(alert: Alert) -> int:
    return len(alert.host)


async def look(host: str) -> Ticket:
    return Ticket(len(host))


@evsrc.workflow
async def triage(run: evsrc.Run, alert: Alert) -> Ticket:
    assert_type(await run.step(count, alert, at_least=1), int)
    assert_type(await run.step(count_blocking, alert), int)
    assert_type(await run.map(look, [alert.host], key=str), list[Ticket])
    assert_type(run.options(label="first", durable=True), evsrc.Run)
    return await run.options(key="own").call(open_ticket, title=alert.host)


@evsrc.workflow(name="named", version="2")
async def named(run: evsrc.Run, host: str) -> int:
    return len(host)


async def use_workflow(runtime: evsrc.Runtime) -> None:
    assert_type(triage, evsrc.Workflow[Alert, Ticket])
    assert_type(named, evsrc.Workflow[str, int])
    outcome = await runtime.run(triage, Alert("dc01"))
    assert_type(outcome, evsrc.Outcome[Ticket])
    assert_type(outcome.value, Ticket)
    assert_type((await (await runtime.start(named, "dc01")).wait()).value, int)
    if isinstance(outcome, evsrc.Suspended):
        assert_type([question.text for question in outcome.questions], list[str])
    if isinstance(outcome, evsrc.Failed):
        assert_type(outcome.error.message, str)
