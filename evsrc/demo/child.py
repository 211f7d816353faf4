"""What runs in the demo's child processes: the enrichment workflow on one world, one way out of three.

Rule: the same flow and the same calls in every mode; only what is remembered, and what is done about an
unknown outcome, differs.
Does not know: when it is killed.

| mode | remembers | in doubt |
|---|---|---|
| naive | nothing: a fresh log in memory per process | sends again |
| log | the run's log on disk | sends again |
| reconciled | the run's log on disk | asks the tool |
"""

import os
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import msgspec

import evsrc
from evsrc.demo.corpus import feed_path, findings
from evsrc.demo.flow import all_tools, build_flow
from evsrc.demo.tools import TrustingTools, WorldTools

Mode: TypeAlias = Literal["naive", "log", "reconciled"]


class ChildConfig(msgspec.Struct, frozen=True):
    """What one child works on. `counter` is the file to which node bodies append their names."""

    mode: Mode
    url: str
    feed: str
    folder: str
    findings: list[int]
    counter: str
    backend: str = "asyncio"
    blind: bool = False


class ChildResult(msgspec.Struct, frozen=True):
    """How the runs stand when the child ends by itself."""

    outcomes: dict[str, str]
    questions: int


class _Counter:
    """Appends what really ran to a file, past the log and its events."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def ran(self, node: str) -> None:
        """The body of a node runs."""
        os.write(self._fd, f"run {node}\n".encode())

    def on(self, moment: evsrc.Moment, /) -> None:
        """A checkpoint was used instead of a body."""
        if moment.name == "node_reused":
            os.write(self._fd, f"reused {moment.node}\n".encode())


def warm() -> None:
    """Import once, in the server, what every child would otherwise import for itself. Starts no thread."""
    feed_path(1)
    findings()
    anyio.run(_warm)


async def _warm() -> None:
    async with WorldTools("http://127.0.0.1:1") as tools:
        build_flow(tools, feed_path(1)).build()
        async with evsrc.MemoryLog():
            await anyio.lowlevel.checkpoint()


def main(config: Any, observer: evsrc.Observer, fs_factory: Callable[[], Any]) -> Any:
    """Entry for the crash harness: run the workflow for some findings, to an end or a suspension."""
    setup = msgspec.convert(config, ChildConfig)
    result = anyio.run(_run, setup, observer, fs_factory, backend=setup.backend)
    return msgspec.to_builtins(result)


async def _run(
    setup: ChildConfig, observer: evsrc.Observer, fs_factory: Callable[[], Any]
) -> ChildResult:
    counter = _Counter(setup.counter)
    corpus = findings()
    async with WorldTools(setup.url) as world:
        tools = world if setup.mode == "reconciled" else TrustingTools(world)
        flow = build_flow(tools, setup.feed, blind=setup.blind, heard=counter.ran)
        where = evsrc.MemoryLog() if setup.mode == "naive" else setup.folder
        outcomes: dict[str, str] = {}
        async with evsrc.open_runtime(
            where,
            workflows=[flow],
            tools=all_tools(tools),
            observers=[counter, observer],
            fs=None if setup.mode == "naive" else fs_factory(),
        ) as runtime:

            async def one(index: int) -> None:
                outcome = await runtime.run(flow, corpus[index])
                outcomes[outcome.run_id] = outcome.describe()

            async with anyio.create_task_group() as group:
                for index in setup.findings:
                    group.start_soon(one, index)
            return ChildResult(outcomes, len(runtime.questions()))
