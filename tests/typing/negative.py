"""Mistakes that the type checkers must flag: their lines end in `# E`, and no other is flagged."""

from datetime import datetime

import msgspec

import evsrc
from evsrc.core.verdicts import Effect, Happened, Verdict
from evsrc.tools import Call, SecretRef, ToolSet, tool


class Ticket(msgspec.Struct, frozen=True):
    id: int


@tool(effect=Effect.MARKED)
async def open_ticket(call: Call, *, title: str, severity: int = 3) -> Ticket:
    return Ticket(1)


class Tracker:
    @tool()
    async def create(self, call: Call, *, title: str) -> Ticket:
        return Ticket(1)

    @create.probe  # E
    async def _(self, call: Call, *, other: str) -> Verdict[Ticket]:
        return Happened(Ticket(1))

    @create.undo  # E
    async def _(self, call: Call, result: int) -> None: ...


async def calls(tracker: Tracker) -> None:
    open_ticket(title="a")  # E
    tracker.create(title="a")  # E
    await open_ticket()  # E
    await open_ticket("a")  # E
    await open_ticket(title=1)  # E
    await open_ticket(title="a", severity="high")  # E
    await open_ticket(title="a", call=1)  # E
    await tracker.create(titel="a")  # E
    await Tracker.create(title="a")  # E
    number: int = await open_ticket(title="a")  # E
    print(number)
    print((await tracker.create(title="a")).nummer)  # E


@open_ticket.probe  # E
async def _(call: Call, *, title: str, severity: str) -> Verdict[Ticket]:
    return Happened(Ticket(1))


@open_ticket.probe  # E
async def _(call: Call, *, title: str, severity: int = 3) -> Verdict[int]:
    return Happened(1)


@open_ticket.probe  # E
async def _(call: Call, *, title: str, severity: int = 3) -> Ticket:
    return Ticket(1)


@open_ticket.sweep  # E
async def _(since: datetime) -> list[str]:
    return []


@open_ticket.undo  # E
async def _(call: Call, result: str) -> None: ...


@tool()  # E
async def without_call(title: str) -> Ticket:
    return Ticket(1)


@tool(effect="marked")  # E
async def wrong_effect(call: Call) -> None: ...


@tool(lag_s="30")  # E
async def wrong_lag(call: Call) -> None: ...


@tool(on_unknown="retry")  # E
async def wrong_policy(call: Call) -> None: ...


def secrets(call: Call) -> None:
    call.secret("token")  # E
    SecretRef(1)  # E
    call.attempt = 2  # E


async def not_a_tool() -> None: ...


ToolSet([not_a_tool])  # E
ToolSet([Tracker.create])  # E


# ---- flows and workflows -------------------------------------------------------------------------


class Alert(msgspec.Struct, frozen=True):
    host: str


evsrc.Flow("f", input=Alert, schedule="later")  # E
evsrc.Flow("f", input=Alert, run_id=lambda alert: alert.hots)  # E
flow = evsrc.Flow("f", input=Alert)


@flow.node
async def hosts(alert: Alert) -> list[str]:
    return [alert.host]


@flow.node
async def weight(alert: Alert) -> int:
    return 1


@flow.each(hosts, key=lambda host: host)
async def lookup(host: str) -> Ticket:
    return Ticket(1)


@flow.node(need=[hosts])  # E
async def wrong_option(alert: Alert) -> int:
    return 1


@flow.each(hosts, key=lambda host: len(host))  # E
async def wrong_key(host: str) -> int:
    return 1


@flow.each(hosts, key=lambda host: host)  # E
async def wrong_item(host: int) -> int:
    return 1


async def use(runtime: evsrc.Runtime, run: evsrc.Run) -> None:
    await runtime.run(flow, "dc01")  # E
    flow.plan("log", 1)  # E
    outcome = await runtime.run(flow, Alert("dc01"))
    text: str = outcome[weight]  # E
    ticket: Ticket = outcome[lookup]  # E
    print(text, ticket)
    await hosts("dc01")  # E
    await run.call(hosts, Alert("dc01"))  # E
    await run.call(open_ticket, titel="a")  # E
    await run.step(weight, "dc01")  # E
    await run.map(lookup_one, [1], key=str)  # E
    number: str = await run.step(weight, Alert("dc01"))  # E
    print(number)


async def lookup_one(host: str) -> int:
    return 1


@evsrc.workflow  # E
async def no_run(alert: Alert) -> int:
    return 1


@evsrc.workflow
async def triage(run: evsrc.Run, alert: Alert) -> int:
    return 1


async def use_workflow(runtime: evsrc.Runtime) -> None:
    await runtime.run(triage, "dc01")  # E
    value: str = (await runtime.run(triage, Alert("dc01"))).value  # E
    print(value)
    await triage(run=1, alert=2)  # E
