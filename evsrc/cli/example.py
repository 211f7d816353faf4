"""A playbook to try the commands with: `evsrc run evsrc.cli.example:flow alert.json`.

The outside world is two files in the current folder. Tickets can be searched; the pager hangs up after it
paged, and tells nothing: the call is of unknown outcome, and a human is asked.

Rule: public names of evsrc only, as in any playbook.
Does not know: the command line.
"""

import os
from collections.abc import Iterator
from datetime import datetime

import msgspec

import evsrc

TICKETS = "tickets.txt"
PAGES = "pages.txt"


class Alert(msgspec.Struct, frozen=True):
    """What INPUT holds: {"id": "a-1", "address": "203.0.113.7"}."""

    id: str
    address: str


def _append(path: str, line: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def _lines(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


@evsrc.tool(effect=evsrc.Effect.MARKED, lag_s=0, late_s=1, history=True, cost=0.05)
def open_ticket(call: evsrc.Call, *, title: str) -> str:
    """Open a ticket that carries our marker."""
    _append(TICKETS, call.marker)
    return f"T-{len(_lines(TICKETS))}"


@open_ticket.probe
def _(call: evsrc.Call, *, title: str) -> evsrc.Verdict[str]:
    found = [number for number, line in enumerate(_lines(TICKETS), 1) if line == call.marker]
    if len(found) > 1:
        return evsrc.Conflict(f"tickets {found}")
    return evsrc.Happened(f"T-{found[0]}") if found else evsrc.Absent(complete=True)


@open_ticket.sweep
def _(since: datetime) -> Iterator[evsrc.Found | evsrc.SweepEnd]:
    for number, line in enumerate(_lines(TICKETS), 1):
        yield evsrc.Found(line, f"T-{number}")
    yield evsrc.SweepEnd(complete=True)


@evsrc.tool(cost=0.10)
def page(call: evsrc.Call, *, text: str) -> str:
    """Wake somebody up, through a gateway that hangs up before it answers."""
    _append(PAGES, text)
    raise ConnectionResetError("the gateway hung up")


tools = [open_ticket, page]
flow = evsrc.Flow("example", input=Alert, run_id=lambda alert: alert.id)


@flow.node(version="1")
async def score(alert: Alert) -> int:
    """How bad it is: a documentation network stands for a bad neighbourhood."""
    return 90 if alert.address.startswith("203.0.113.") else 10


@flow.node(version="1")
async def ticket(run: evsrc.Run, alert: Alert, score: int) -> str:
    """One ticket for every alert."""
    return await run.call(open_ticket, title=f"{alert.address} scores {score}")


@flow.node(version="1")
async def wake(run: evsrc.Run, ticket: str, score: int) -> str | None:
    """A page for the bad ones."""
    if score <= 50:
        return None
    return await run.call(page, text=f"see {ticket}")
