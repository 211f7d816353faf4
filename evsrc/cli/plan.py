"""`plan`: what a resume would reuse, run or leave pinned, and why, before anything runs.

Rule: reads the log only; nothing is appended, nothing is asked of a tool.
Does not know: keys. runtime/plan.py compares them.
"""

import os
from collections.abc import Mapping
from typing import Any

import anyio
import msgspec

from evsrc.cli import logs, render, statuses
from evsrc.cli.loading import load_inputs, loaded
from evsrc.cli.logs import AsJson, LogDir
from evsrc.cli.statuses import UsageError
from evsrc.core import canonical, keys, runs
from evsrc.core.codec import round_trip
from evsrc.core.events import RunStarted
from evsrc.core.nodes import Planned
from evsrc.errors import UnknownEvent
from evsrc.log.file.meta import META_NAME
from evsrc.projections.base import Seen
from evsrc.projections.checkpoints import Checkpoints
from evsrc.projections.runs import Runs
from evsrc.runtime.flow import Flow
from evsrc.runtime.plan import Planner


class PlannedRun(msgspec.Struct, frozen=True):
    """The plan of one input's run. `known`: the log holds the run."""

    run: str
    known: bool
    nodes: list[Planned]


class _Both:
    """Runs and checkpoints in one pass over the log."""

    def __init__(self) -> None:
        self.runs, self.checkpoints = Runs(), Checkpoints()

    def apply(self, seen: Seen, /) -> None:
        """Take in one event."""
        self.runs.apply(seen)
        self.checkpoints.apply(seen)


def plan(flow: str, input: str, /, *, log: LogDir = logs.LOG_DEFAULT, json: AsJson = False) -> int:
    """Say which nodes would be reused, run or stay pinned, and which part of whose key differs.

    FLOW and INPUT are as for `run`. Without a log everything would run.
    """
    planned = anyio.run(_plan, flow, input, log)
    if json:
        render.print_json({"runs": planned})
        return statuses.OK
    for one in planned:
        state = "" if one.known else ", not started"
        rows = [(n.node, n.item, render.status_text(n.status), _why(n)) for n in one.nodes]
        render.table(("node", "item", "status", "why"), rows, title=f"{one.run}{state}")
    return statuses.OK


def _why(node: Planned) -> str:
    source = [f"from run {node.source_run}"] if node.source_run else []
    return ", ".join([*node.why, *source])


async def _plan(spec: str, path: str, log: str) -> list[PlannedRun]:
    async with loaded(spec) as found:
        flow = found.work(spec)
        if not isinstance(flow, Flow):
            raise UsageError(f"{spec}: a workflow has no nodes to plan; expected a Flow")
        return _plan_all(flow, path, log)


def _plan_all(flow: Flow[Any], path: str, log: str) -> list[PlannedRun]:
    """Instead of `Flow.plan` for each input, which would read the log once for each."""
    both, unreadable = _Both(), dict[str, str]()
    if os.path.exists(os.path.join(log, META_NAME)):
        unreadable = logs.project(log, both).unreadable
    return [_planned(flow, one.value, both, unreadable) for one in load_inputs(path, flow.input)]


def _planned(flow: Flow[Any], value: Any, both: _Both, unreadable: Mapping[str, str]) -> PlannedRun:
    data, value = round_trip(value, flow.input)
    digest = canonical.digest(value)
    run = flow.run_id(value) if flow.run_id is not None else keys.run_id_for(flow.name, digest)
    if run in unreadable:
        raise UnknownEvent(f"run {run!r} needs a later version: {unreadable[run]}")
    state = both.runs.states.get(run)
    known = state is not None and state.started is not None
    if state is not None:
        # Raises InputMismatch, as `run` would: a plan for another input would be about nothing.
        runs.start(state, RunStarted(flow.name, flow.build().version, data, digest))
    nodes = Planner(flow, run, value, state if known else None, both.checkpoints).plan()
    return PlannedRun(run, known, nodes)
