"""Code that the CLI tests run: tools over a folder of files, a flow, a workflow, and a holder of the log.

The outside world is the file `world.txt` in the current folder, one line per effect.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import anyio
import msgspec

import evsrc
from evsrc.errors import Rejected


class Alert(msgspec.Struct, frozen=True):
    id: str
    text: str = ""
    mood: str = "well"
    """well, refused (the desk refuses), unknown (the pager hangs up after it acted)."""


def acted(word: str) -> None:
    with open("world.txt", "a", encoding="utf-8") as file:
        file.write(f"{word}\n")


@evsrc.tool(effect=evsrc.Effect.MARKED, lag_s=0, late_s=0, history=True, cost=0.5)
async def open_ticket(call: evsrc.Call, *, alert: str, mood: str) -> str:
    if mood == "refused":
        raise Rejected(f"the desk refuses {alert}")
    acted(f"ticket {call.marker}")
    return f"T-{alert}"


@open_ticket.sweep
async def _(since: datetime) -> AsyncIterator[evsrc.Found | evsrc.SweepEnd]:
    with open("world.txt", encoding="utf-8") as file:
        for line in file:
            if line.startswith("ticket "):
                yield evsrc.Found(line.split()[1], "ref")
    yield evsrc.SweepEnd(complete=True)


@evsrc.tool(cost=0.25)
async def page(call: evsrc.Call, *, alert: str, mood: str) -> int:
    acted(f"page {alert}")
    if mood == "unknown":
        raise ConnectionResetError(f"hung up on {alert}")
    return len(alert)


tools = [open_ticket, page]


@asynccontextmanager
async def setup() -> AsyncIterator[None]:
    acted("setup")
    yield
    acted("left")


flow = evsrc.Flow("sample", input=Alert, run_id=lambda alert: alert.id)


@flow.node(version="1")
async def look(alert: Alert) -> str:
    return alert.text


@flow.node(version="1")
async def ticket(run: evsrc.Run, alert: Alert, look: str) -> str:
    return await run.call(open_ticket, alert=alert.id, mood=alert.mood)


@flow.node(version="1")
async def wake(run: evsrc.Run, alert: Alert, ticket: str) -> int:
    return await run.call(page, alert=alert.id, mood=alert.mood)


def made() -> evsrc.Flow[Alert]:
    """What `module:function` gives."""
    return flow


fed = evsrc.Flow("fed", input=Alert, run_id=lambda alert: alert.id)


@fed.node(version="1", reads=["feed.txt"])
async def score(alert: Alert) -> str:
    with open("feed.txt", encoding="utf-8") as file:
        return file.read()


@fed.node(version="1")
async def act(run: evsrc.Run, alert: Alert, score: str) -> int:
    return await run.call(page, alert=alert.id, mood=alert.mood)


@evsrc.workflow(version="1")
async def agent(run: evsrc.Run, alert: Alert) -> dict[str, str]:
    return {"said": alert.text}


class Asked:
    """An observer that waits for a question."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def on(self, moment: evsrc.Moment, /) -> None:
        if moment.name == "question":
            self.event.set()


async def hold(log: str, started: str) -> None:
    """Own the log, run one alert of unknown outcome, and end when somebody answered."""
    asked = Asked()
    async with evsrc.open_runtime(log, workflows=[flow], tools=tools, observers=[asked]) as runtime:
        handle = await runtime.start(flow, Alert("held", mood="unknown"))
        await asked.event.wait()
        acted(started)
        outcome = await handle.wait()
        acted(f"ended {outcome.describe()}")


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    anyio.run(hold, "journal", "started")
