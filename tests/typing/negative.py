"""Mistakes that the type checkers must flag: their lines end in `# E`, and no other is flagged."""

from datetime import datetime

import msgspec

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
