"""The plan: what a resume would reuse, run or leave pinned, and which part of which key says so.

Rule: answers before anything runs, from the log alone; the same key code as the execution.
Does not know: the runtime. Nothing is appended, nothing is asked of a tool.
"""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from evsrc.core import canonical, keys, runs
from evsrc.core import nodes as decide
from evsrc.core.codec import round_trip
from evsrc.core.events import RunStarted
from evsrc.core.nodes import Planned
from evsrc.core.state import NodeId, RunState, evolve
from evsrc.errors import UnknownEvent
from evsrc.projections.base import Seen, catch_up
from evsrc.projections.checkpoints import Checkpoints
from evsrc.runtime.flow import BuiltFlow, Flow, Node
from evsrc.runtime.node_keys import (
    KeyContext,
    NodeResult,
    ask_for,
    file_digests,
    joined,
    names_of_items,
    not_yet,
    result_of,
)


class Planner:
    """Plans one flow on the state of one run (None: it never started)."""

    def __init__(
        self,
        flow: Flow[Any],
        run_id: str,
        input_value: Any,
        state: RunState | None,
        checkpoints: Checkpoints,
    ) -> None:
        self._flow = flow
        self._built: BuiltFlow = flow.build()
        value = round_trip(input_value, flow.input)[1]
        self._context = KeyContext(run_id, canonical.digest(value))
        self._state = state
        self._checkpoints = checkpoints
        self._pinned = (
            set[NodeId | str]() if state is None else decide.pinned_nodes(state, self._built.graph)
        )
        self._results: dict[str, NodeResult] = {}
        """What each node gives, or a stand-in with the key that it would have."""
        self._to_run: set[str] = set()
        """Nodes whose result is such a stand-in."""

    def plan(self) -> list[Planned]:
        """One line per node, or per item where the items are known, in the order of the waves."""
        lines: list[Planned] = []
        for wave in self._built.graph.waves:
            for name in wave:
                lines.extend(self._node(self._built.nodes[name]))
        return lines

    def _node(self, node: Node) -> list[Planned]:
        upstream = {need: self._results[need] for need in self._built.graph.needs[node.name]}
        if node.is_each and node.declared.source not in self._to_run:
            return self._items(node, upstream)
        line, result, known = self._one(node, upstream)
        self._keep(node, result, known=known)
        return [line]

    def _keep(self, node: Node, result: NodeResult, *, known: bool) -> None:
        self._results[node.name] = result
        if not known:
            self._to_run.add(node.name)

    def _items(self, node: Node, upstream: Mapping[str, NodeResult]) -> list[Planned]:
        values = upstream[node.declared.source].value
        names = names_of_items(node, values)
        planned = [
            self._one(node, upstream, name, value)
            for name, value in zip(names, values, strict=True)
        ]
        everything = joined(names, [result for _, result, _ in planned])
        self._keep(node, everything, known=all(known for _, _, known in planned))
        return [line for line, _, _ in planned]

    def _one(
        self, node: Node, upstream: Mapping[str, NodeResult], item: str = "", value: Any = None
    ) -> tuple[Planned, NodeResult, bool]:
        """The line of a node or item, what it gives, and whether that is known already."""
        files = file_digests(node)
        ask = ask_for(
            node,
            self._context,
            upstream,
            files,
            item=item,
            item_value=value,
            pinned=decide.is_pinned(self._pinned, node.name, item),
        )
        found = self._checkpoints.find(ask.key) if self._flow.reuse == "log" else None
        if found is not None:
            ask = msgspec.structs.replace(ask, elsewhere=found[1], elsewhere_run=found[0])
        line = decide.planned(self._state, ask)
        output = None
        if line.status != "run" and not line.source_run and self._state is not None:
            output = self._state.nodes[node.name, item].output
        output = output or (ask.elsewhere if line.source_run else None)
        if output is not None and "unfinished" not in line.why:
            return line, result_of(output, node, upstream), True
        return line, not_yet(ask.key, files, upstream), False


class _OfLog:
    """The state of one run and the checkpoints of all, from one pass over a log."""

    def __init__(self, run_id: str) -> None:
        self.state = RunState(run_id)
        self.checkpoints = Checkpoints()

    def apply(self, seen: Seen, /) -> None:
        self.checkpoints.apply(seen)
        if seen.run == self.state.run_id:
            evolve(self.state, seen.event)


def plan_of(
    flow: Flow[Any], log: str | os.PathLike[str], input_value: Any, run_id: str | None
) -> list[Planned]:
    """The plan of a flow on a log's folder, which is read without a lock. Raises as `Flow.plan`."""
    from evsrc.projections.reading import open_log

    data, value = round_trip(input_value, flow.input)
    digest = canonical.digest(value)
    if run_id is None and flow.run_id is not None:
        run_id = flow.run_id(value)
    id_ = run_id or keys.run_id_for(flow.name, digest)
    found = _OfLog(id_)
    unreadable = catch_up(found, open_log(log).records()).unreadable
    if id_ in unreadable:
        raise UnknownEvent(f"run {id_!r} needs a later version: {unreadable[id_]}")
    if found.state.started is not None:
        runs.start(found.state, RunStarted(flow.name, flow.build().version, data, digest))
    state = found.state if found.state.started is not None else None
    return Planner(flow, id_, value, state, found.checkpoints).plan()
