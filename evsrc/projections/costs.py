"""Costs: what was spent, by tool and by node, and what of it was spent again.

Rule: a cost is what the declaration said when the event was written. An attempt that was recorded and
not sent cost nothing; a checkpoint taken from another run cost nothing here.
Does not know: currencies, budgets, or whether spending again could have been avoided. A node that a
crash cut short and that went on under the same key and attempt left no second start in the log.
"""

from collections.abc import Iterable

import msgspec

from evsrc.core.events import CallNotSent, IntentRecorded, NodeOutput, NodeStarted, StepRecorded
from evsrc.projections.base import Seen


class Spent(msgspec.Struct, frozen=True):
    """`count` executions for `cost` in all; of these, `again` beyond the first, for `again_cost`."""

    count: int = 0
    cost: float = 0.0
    again: int = 0
    again_cost: float = 0.0


class _Node(msgspec.Struct):
    """One (run, node, item, key): how often it started, and what one execution costs."""

    name: str
    starts: int = 0
    each: float = 0.0


class _Call(msgspec.Struct):
    """One (run, call): attempt -> its cost."""

    tool: str
    attempts: dict[int, float] = {}


class Costs:
    """The money spent in a log, or in one run of it."""

    def __init__(self, run: str | None = None) -> None:
        self._run = run
        self._nodes: dict[tuple[str, str, str, str], _Node] = {}
        self._calls: dict[tuple[str, str], _Call] = {}
        self._reads: dict[str, Spent] = {}

    def apply(self, seen: Seen, /) -> None:
        """Take in one event."""
        if self._run not in (None, seen.run):
            return
        match seen.event:
            case IntentRecorded() as intent:
                call = self._calls.setdefault((seen.run, intent.call), _Call(intent.tool))
                call.attempts[intent.attempt] = intent.cost
            case CallNotSent() as event:
                known = self._calls.get((seen.run, event.call))
                if known is not None:
                    known.attempts.pop(event.attempt, None)
            case StepRecorded() as step:
                spent = self._reads.get(step.name, Spent())
                self._reads[step.name] = _sum([spent, Spent(1, step.cost)])
            case NodeStarted() as started:
                self._node(seen.run, started).starts += 1
            case NodeOutput() as output:
                self._node(seen.run, output).each = output.cost
            case _:
                pass

    def _node(self, run: str, event: NodeStarted | NodeOutput) -> _Node:
        place = (run, event.node, event.item, event.key)
        return self._nodes.setdefault(place, _Node(event.node))

    def by_node(self) -> dict[str, Spent]:
        """Node -> executions begun. Without an output under its key a node's cost is not known: 0."""
        spent: dict[str, Spent] = {}
        for node in self._nodes.values():
            again = max(0, node.starts - 1)
            more = Spent(node.starts, node.starts * node.each, again, again * node.each)
            spent[node.name] = _sum([spent.get(node.name, Spent()), more])
        return spent

    def by_tool(self) -> dict[str, Spent]:
        """Tool or step -> attempts sent (for reads: recorded)."""
        spent = dict(self._reads)
        for call in self._calls.values():
            costs = [call.attempts[number] for number in sorted(call.attempts)]
            more = Spent(len(costs), sum(costs), max(0, len(costs) - 1), sum(costs[1:]))
            spent[call.tool] = _sum([spent.get(call.tool, Spent()), more])
        return spent

    def total(self) -> Spent:
        """Everything together."""
        return _sum([*self.by_node().values(), *self.by_tool().values()])


def _sum(parts: Iterable[Spent]) -> Spent:
    total = Spent()
    for part in parts:
        total = Spent(
            total.count + part.count,
            total.cost + part.cost,
            total.again + part.again,
            total.again_cost + part.again_cost,
        )
    return total
