"""The plan: what a resume would reuse, run or leave pinned, and which part of which key says so.

Rule: answers before anything runs, from the log alone; the same key code as the execution.
Does not know: the runtime. Nothing is appended, nothing is asked of a tool.
"""

from typing import Any

from evsrc.core import canonical
from evsrc.core import nodes as decide
from evsrc.core.codec import round_trip
from evsrc.core.nodes import Planned
from evsrc.core.state import RunState
from evsrc.projections.checkpoints import Checkpoints
from evsrc.runtime.flow import BuiltFlow, Flow, Node
from evsrc.runtime.node_keys import KeyContext, NodeResult, ask_for, file_digests, joined, result_of
from evsrc.runtime.run import item_keys


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
        self._pinned = set() if state is None else decide.pinned_nodes(state, self._built.graph)
        self._results: dict[str, NodeResult | None] = {}
        self._keys: dict[str, str] = {}

    def plan(self) -> list[Planned]:
        """One line per node, in the order of the waves; items only where they differ from the rest."""
        lines: list[Planned] = []
        for wave in self._built.graph.waves:
            for name in wave:
                lines.extend(self._node(self._built.nodes[name]))
        return lines

    def _node(self, node: Node) -> list[Planned]:
        upstream = {need: self._upstream(need) for need in self._built.graph.needs[node.name]}
        if node.is_each and self._results[node.declared.source] is not None:
            return self._items(node, upstream)
        line, result = self._one(node, upstream)
        self._results[node.name] = result
        return [line]

    def _upstream(self, need: str) -> NodeResult:
        """What the need gives, or a stand-in with the key it would have."""
        return self._results[need] or NodeResult(None, self._keys.get(need, "?"), "?")

    def _items(self, node: Node, upstream: dict[str, NodeResult]) -> list[Planned]:
        source = upstream[node.declared.source]
        key = node.declared.item_key
        if key is None:
            raise AssertionError("a fan-out has a key function")
        names = item_keys([key(item) for item in source.value], node.name)
        lines, results = list[Planned](), list[NodeResult | None]()
        for name, value in zip(names, source.value, strict=True):
            line, result = self._one(node, upstream, name, value)
            lines.append(line)
            results.append(result)
        known = [r for r in results if r is not None]
        self._results[node.name] = joined(names, known) if len(known) == len(names) else None
        if len(known) < len(names):
            self._keys[node.name] = "changed"
        return lines

    def _one(
        self, node: Node, upstream: dict[str, NodeResult], item: str = "", value: Any = None
    ) -> tuple[Planned, NodeResult | None]:
        ask = ask_for(
            node,
            self._context,
            upstream,
            file_digests(node),
            item=item,
            item_value=value,
            pinned=decide.is_pinned(self._pinned, node.name, item),
        )
        self._keys[node.name] = ask.key
        found = self._checkpoints.find(ask.key) if self._flow.reuse == "log" else None
        if found is not None:
            import msgspec

            ask = msgspec.structs.replace(ask, elsewhere=found[1], elsewhere_run=found[0])
        line = decide.planned(self._state, ask)
        if line.status == "run":
            return line, None
        state = None if self._state is None else self._state.nodes.get((node.name, item))
        output = state.output if state is not None else None
        output = output or ask.elsewhere
        return line, None if output is None else result_of(output, node, upstream)
