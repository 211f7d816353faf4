"""Running a built flow on a run: waves of nodes in task groups, performed as core/nodes.py decides.

Rule: a failed node does not cancel its siblings; a node that waits for a human holds up nothing that
does not descend from it. Whatever a node computed is in the log before the nodes below see it, and they
see the decoded value.
Does not know: when a checkpoint may be used, when a node is tried again, what is ready (core/); how a
node's function is run (node_attempt.py).
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import anyio
import msgspec

from evsrc.core import nodes as decide
from evsrc.core.events import ErrorData, NodeFailed, NodeOutput
from evsrc.core.frontier import Frontier
from evsrc.core.state import NodeId
from evsrc.errors import EvsrcError, InternalError
from evsrc.projections.checkpoints import Checkpoints
from evsrc.runtime.execution import Execution
from evsrc.runtime.flow import BuiltFlow, Flow, Node
from evsrc.runtime.node_attempt import Attempts
from evsrc.runtime.node_keys import (
    KeyContext,
    NodeResult,
    ask_for,
    file_digests,
    joined,
    names_of_items,
    result_of,
)

End: TypeAlias = Literal["completed", "failed", "suspended"]


class _GaveUp(Exception):
    """A node has no further attempt."""

    def __init__(self, error: ErrorData) -> None:
        super().__init__(error.message)
        self.error = error


class FlowExecution:
    """One execution of one flow on one run."""

    def __init__(
        self,
        execution: Execution,
        flow: Flow[Any],
        built: BuiltFlow,
        input_value: Any,
        input_digest: str,
        checkpoints: Checkpoints,
    ) -> None:
        self.execution = execution
        self.flow = flow
        self.built = built
        self.error: ErrorData | None = None
        self._context = KeyContext(execution.run_id, input_digest)
        self._checkpoints = checkpoints
        self._results: dict[str, NodeResult] = {}
        self._frontier = Frontier(built.graph, flow.schedule)
        self._attempts = Attempts(execution, flow, input_value, self._wake)
        self._open: dict[str, set[NodeId]] = {}
        """Node -> those of its items (or itself) that are not done."""
        self._fatal: EvsrcError | None = None
        self._pulse = anyio.Event()
        self._pinned = decide.pinned_nodes(execution.journal.state, built.graph)

    async def run(self) -> End:
        """Run what can run, to an end or to where only a human can help.

        Raises:
            CallerError: the code does not fit the run (it is blocked).
            OperatorError: the log refused.
        """
        suspended = False
        async with anyio.create_task_group() as group:
            while self._fatal is None:
                for name in self._frontier.take_ready(self._parked_nodes()):
                    self._open[name] = {(name, "")}
                    group.start_soon(self._node, name)
                if all(self._is_parked(name) for name in self._open):
                    break
                await self._pulse.wait()
            suspended = bool(self._open)
            if suspended:
                # Stopped first: a wait that we cut off is none that the code gave up.
                self.execution.stop("suspended" if self._fatal is None else "blocked")
            group.cancel_scope.cancel()
        return self._end(suspended=suspended)

    def _end(self, *, suspended: bool) -> End:
        if self._fatal is not None:
            raise self._fatal
        if suspended:
            return "suspended"
        if self.error is not None:
            return "failed"
        if len(self._results) < len(self.built.nodes):
            raise InternalError(f"run {self.execution.run_id!r}: the flow ended with nodes left")
        return "completed"

    def _parked_nodes(self) -> set[str]:
        return (
            {name for name in self._open if self._is_parked(name)}
            if self._attempts.waiting
            else set()
        )

    def _is_parked(self, name: str) -> bool:
        left = self._open[name]
        return bool(left) and left <= self._attempts.waiting

    def _wake(self) -> None:
        self._pulse.set()
        self._pulse = anyio.Event()

    # ---- one node -------------------------------------------------------------------------------

    async def _node(self, name: str) -> None:
        node = self.built.nodes[name]
        upstream = {need: self._results[need] for need in self.built.graph.needs[name]}
        try:
            if node.is_each:
                self._results[name] = await self._fan_out(node, upstream)
            else:
                self._results[name] = await self._settle(node, upstream)
            self._frontier.done(name)
        except _GaveUp as failure:
            self.error = self.error or failure.error
            self._frontier.failed(name)
        except EvsrcError as error:
            self._fatal = self._fatal or error
        finally:
            self._open.pop(name, None)
            self._wake()

    async def _fan_out(self, node: Node, upstream: Mapping[str, NodeResult]) -> NodeResult:
        items = upstream[node.declared.source].value
        names = names_of_items(node, items)
        items = upstream[node.declared.source].value  # the key function may have changed them
        results: list[NodeResult | None] = [None] * len(items)
        failures: dict[int, _GaveUp] = {}
        self._open[node.name] = {(node.name, name) for name in names}

        async def one(index: int) -> None:
            try:
                results[index] = await self._settle(
                    node, upstream, names[index], items[index], index
                )
            except _GaveUp as failure:
                failures[index] = failure
            except EvsrcError as error:
                self._fatal = self._fatal or error
            finally:
                self._open.get(node.name, set()).discard((node.name, names[index]))
                self._wake()

        async with anyio.create_task_group() as group:
            for index in range(len(items)):
                group.start_soon(one, index)
        if failures:
            raise failures[min(failures)]
        if self._fatal is not None:
            raise self._fatal
        return joined(names, [r for r in results if r is not None])

    async def _settle(
        self,
        node: Node,
        upstream: Mapping[str, NodeResult],
        item: str = "",
        item_value: Any = None,
        index: int = 0,
    ) -> NodeResult:
        """Ask core/nodes.py and perform, until the node (or item) has an output."""
        journal, starts, again = self.execution.journal, 0, False
        while True:
            files = file_digests(node)
            if again and item:  # as it was: the last attempt may have changed its own
                item_value = upstream[node.declared.source].value[index]
            ask = self._ask(node, upstream, files, item, item_value, again=again)
            again = True
            action = decide.node_action(journal.state, ask)
            match action:
                case decide.Reuse(output) | decide.Adopt(output):
                    if isinstance(action, decide.Adopt):
                        await journal.append([output], durable=False)
                    self._attempts.moment("node_reused", ask)
                    return result_of(output, node, upstream)
                case decide.AskAbout() | decide.AwaitAnswer():
                    await self._attempts.ask_human(ask, action)
                case decide.WaitRetry(seconds):
                    await self.execution.services.clock.sleep(seconds)
                case decide.GiveUp(error):
                    raise _GaveUp(error)
                case decide.StartNode():
                    starts += 1
                    end = await self._attempts.run(node, ask, action, upstream, files, item_value)
                    if isinstance(end, NodeOutput):
                        return result_of(end, node, upstream)
                    _give_up_if_last(end, starts, node.declared.retry.attempts)

    def _ask(
        self,
        node: Node,
        upstream: Mapping[str, NodeResult],
        files: Mapping[str, str],
        item: str,
        item_value: Any,
        *,
        again: bool,
    ) -> decide.NodeAsk:
        if again:  # an attempt of this very execution may have acted meanwhile
            self._pinned = decide.pinned_nodes(self.execution.journal.state, self.built.graph)
        ask = ask_for(
            node,
            self._context,
            upstream,
            files,
            item=item,
            item_value=item_value,
            pinned=decide.is_pinned(self._pinned, node.name, item),
            now_ns=self.execution.services.clock.now_ns(),
        )
        found = self._checkpoints.find(ask.key) if self.flow.reuse == "log" else None
        if found is None:
            return ask
        return msgspec.structs.replace(ask, elsewhere=found[1], elsewhere_run=found[0])


def _give_up_if_last(failed: NodeFailed, starts: int, allowed: int) -> None:
    # Files that keep changing give a new key, hence attempt 1, each time: so starts are counted too.
    if failed.retry_at_ns is None or starts >= allowed:
        raise _GaveUp(failed.error)
