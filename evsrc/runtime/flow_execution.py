"""Running a built flow on a run: waves of nodes in task groups, performed as core/nodes.py decides.

Rule: a failed node does not cancel its siblings; a node that waits for a human gives its slot back and
holds up nothing that does not descend from it. Whatever a node computed is in the log before the nodes
below see it, and they see the decoded value.
Does not know: when a checkpoint may be used, when a node is tried again, what is ready.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread

from evsrc.core import nodes as decide
from evsrc.core.codec import round_trip
from evsrc.core.events import ErrorData, NodeOutput
from evsrc.core.frontier import Frontier
from evsrc.core.keys import bytes_digest
from evsrc.core.state import NodeId, node_scope
from evsrc.errors import CallerError, EvsrcError, LimitExceeded, ReadChanged, UnusableValue
from evsrc.projections.checkpoints import Checkpoints
from evsrc.runtime.driver import error_data
from evsrc.runtime.execution import Execution, wait_parked
from evsrc.runtime.flow import BuiltFlow, Flow, Node
from evsrc.runtime.node_keys import (
    KeyContext,
    NodeResult,
    ask_for,
    file_digests,
    joined,
    result_of,
)
from evsrc.runtime.observer import Moment, MomentName
from evsrc.runtime.run import Run, being_cancelled, item_keys
from evsrc.runtime.unit import Unit

FAN_OUT_MAX = 10_000
"""Items of one fan-out: a wider one is several runs."""

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
        self.input_value = input_value
        self.error: ErrorData | None = None
        self._context = KeyContext(execution.run_id, input_digest)
        self._checkpoints = checkpoints
        self._results: dict[str, NodeResult] = {}
        self._frontier = Frontier(built.graph, flow.schedule)
        self._slots = anyio.CapacityLimiter(flow.at_once)
        self._open: dict[str, set[NodeId]] = {}
        """Node -> those of its items (or itself) that are not done."""
        self._waiting: set[NodeId] = set()
        """Those of them that wait for a human."""
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
                self.execution.stop("suspended")
            group.cancel_scope.cancel()
        if self._fatal is not None:
            raise self._fatal
        if suspended:
            return "suspended"
        return "failed" if self.error is not None else "completed"

    def _parked_nodes(self) -> set[str]:
        return {name for name in self._open if self._is_parked(name)} if self._waiting else set()

    def _is_parked(self, name: str) -> bool:
        left = self._open[name]
        return bool(left) and left <= self._waiting

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
        items: list[Any] = list(upstream[node.declared.source].value)
        where = f"flow {self.flow.name}, node {node.name}"
        if len(items) > FAN_OUT_MAX:
            raise LimitExceeded(f"{where}: {len(items)} items, at most {FAN_OUT_MAX}")
        key = node.declared.item_key
        if key is None:
            raise AssertionError("a fan-out has a key function")
        names = item_keys([key(item) for item in items], where)
        if "" in names:
            raise LimitExceeded(f"{where}: an item key is empty; keys name items")
        results: list[NodeResult | None] = [None] * len(items)
        failures: dict[int, _GaveUp] = {}
        self._open[node.name] = {(node.name, name) for name in names}

        async def one(index: int) -> None:
            try:
                results[index] = await self._settle(node, upstream, names[index], items[index])
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
    ) -> NodeResult:
        """Ask core/nodes.py and perform, until the node (or item) has an output."""
        journal, first = self.execution.journal, True
        while True:
            files = file_digests(node)
            ask = self._ask(node, upstream, files, item, item_value, again=not first)
            first = False
            action = decide.node_action(journal.state, ask)
            match action:
                case decide.Reuse(output):
                    self._moment("node_reused", ask)
                    return result_of(output, node, upstream)
                case decide.Adopt(output):
                    await journal.append([output], durable=False)
                    self._moment("node_reused", ask)
                    return result_of(output, node, upstream)
                case decide.AskAbout(question):
                    await journal.append([question], durable=True)
                    self._moment("question", ask, detail=question.kind)
                case decide.AwaitAnswer():
                    await self._await_answer(ask)
                case decide.WaitRetry(seconds):
                    await self.execution.services.clock.sleep(seconds)
                case decide.GiveUp(error):
                    raise _GaveUp(error)
                case decide.StartNode():
                    output = await self._start(node, ask, action, upstream, files, item_value)
                    if output is not None:
                        return result_of(output, node, upstream)

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
        import msgspec

        return msgspec.structs.replace(ask, elsewhere=found[1], elsewhere_run=found[0])

    async def _await_answer(self, ask: decide.NodeAsk) -> None:
        """Wait for a human without a slot; the rest of the flow goes on."""
        id_ = (ask.node, ask.item)
        self._waiting.add(id_)
        self._wake()
        try:
            await self.execution.journal.changed(ask.subject)
        finally:
            self._waiting.discard(id_)
            self._wake()

    # ---- one attempt ----------------------------------------------------------------------------

    async def _start(
        self,
        node: Node,
        ask: decide.NodeAsk,
        start: decide.StartNode,
        upstream: Mapping[str, NodeResult],
        files: dict[str, str],
        item_value: Any,
    ) -> NodeOutput | None:
        """Run the node's function once and record how it ended; None if it failed."""
        journal, slot = self.execution.journal, object()
        async with _Slot(self._slots, slot):
            if start.event is not None:
                await journal.append([start.event], durable=False)
            self._moment("node_start", ask, start.attempt)
            unit = self.execution.unit(node_scope(node.name, ask.item))
            body = self._body(node, upstream, item_value)
            value, error = await self._guarded(unit, ask, body, slot)
            if error is None and files and file_digests(node) != files:
                error = ReadChanged(f"a file that {node.name} reads changed while it ran")
            output: NodeOutput | None = None
            if error is None:
                output, error = _output(node, ask, start.attempt, value, files)
            if output is not None:
                await journal.append([output], durable=False)
                self._moment("node_output", ask, start.attempt)
                return output
            if error is None:
                raise AssertionError("a node ended with neither output nor error")
            await self._failed(node, ask, start.attempt, error)
            return None

    def _body(
        self, node: Node, upstream: Mapping[str, NodeResult], item_value: Any
    ) -> Callable[[], Awaitable[Any]]:
        arguments: dict[str, Any] = dict(node.declared.params)
        arguments.update({p: upstream[need].value for p, need in node.edges.items()})
        arguments.update(dict.fromkeys(node.input_parameters, self.input_value))
        arguments.update({p: Run(self.execution) for p in node.run_parameters})
        first = (item_value,) if node.is_each else ()

        async def body() -> Any:
            if not node.blocking:
                return await node.declared.fn(*first, **arguments)
            # Cancelled, this waits for the thread: a node that goes on unseen could not be recorded.
            return await anyio.to_thread.run_sync(
                partial(node.declared.fn, *first, **arguments),
                limiter=self.execution.services.threads,
            )

        return body

    async def _guarded(
        self, unit: Unit, ask: decide.NodeAsk, body: Callable[[], Awaitable[Any]], slot: object
    ) -> tuple[Any, BaseException | None]:
        """Run the code; give the slot back while all it does is wait for a human."""
        value: Any = None
        failure: BaseException | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, unit, (ask.node, ask.item), slot)
            try:
                value = await self.execution.inside(unit, body)
            except Exception as error:  # noqa: BLE001  a node's failure is recorded, whatever it is
                failure = error
            except anyio.get_cancelled_exc_class() as error:
                if anyio.current_effective_deadline() == float("-inf") or being_cancelled():
                    raise
                failure = error  # it awaited something that somebody else cancelled
            group.cancel_scope.cancel()
        if self.execution.blocked is not None:
            raise self.execution.blocked
        if isinstance(failure, EvsrcError) and not _is_nodes_own(failure):
            raise failure
        return value, failure

    async def _watch(self, unit: Unit, id_: NodeId, slot: object) -> None:
        while True:
            await wait_parked(unit)
            self._waiting.add(id_)
            self._slots.release_on_behalf_of(slot)
            self._wake()
            try:
                while unit.parked and not unit.live:
                    await unit.idle.wait()
            finally:
                self._waiting.discard(id_)
            self._wake()
            await self._slots.acquire_on_behalf_of(slot)

    async def _failed(
        self, node: Node, ask: decide.NodeAsk, attempt: int, error: BaseException
    ) -> None:
        retry = node.declared.retry
        data = error_data(error)
        if isinstance(error, retry.on):
            data = ErrorData(data.type, data.message, transient=True)
        event = decide.node_failed(
            ask, attempt, data, retry, self.execution.services.clock.now_ns()
        )
        await self.execution.journal.append([event], durable=False)
        self._moment("node_failed", ask, attempt, data.type)

    def _moment(
        self, name: MomentName, ask: decide.NodeAsk, attempt: int = 0, detail: str = ""
    ) -> None:
        self.execution.services.emit(
            Moment(
                name,
                self.execution.run_id,
                node=ask.node,
                item=ask.item,
                attempt=attempt,
                detail=detail,
            )
        )


class _Slot:
    """A slot of the budget, held on behalf of an attempt: the watcher may give it back meanwhile."""

    def __init__(self, slots: anyio.CapacityLimiter, token: object) -> None:
        self._slots = slots
        self._token = token

    async def __aenter__(self) -> None:
        await self._slots.acquire_on_behalf_of(self._token)

    async def __aexit__(self, *_: object) -> None:
        if self._token in self._slots.statistics().borrowers:
            self._slots.release_on_behalf_of(self._token)


def _is_nodes_own(error: EvsrcError) -> bool:
    """Is this a failure of the node (a tool's answer, a bad value), not of the run or the log?"""
    from evsrc.errors import ToolError

    return isinstance(error, ToolError | UnusableValue | LimitExceeded) or (
        isinstance(error, CallerError)
    )


def _output(
    node: Node, ask: decide.NodeAsk, attempt: int, value: Any, files: dict[str, str]
) -> tuple[NodeOutput | None, BaseException | None]:
    try:
        data, _ = round_trip(value, node.returns)
    except UnusableValue as error:
        return None, error
    if len(data) > OUTPUT_BYTES_MAX:
        return None, LimitExceeded(
            f"node {node.name}: output of {len(data)} bytes, at most {OUTPUT_BYTES_MAX}"
        )
    output = NodeOutput(
        ask.node,
        ask.key,
        data,
        bytes_digest(data),
        attempt,
        ask.item,
        upstream=ask.upstream,
        files=files,
        parts=ask.parts,
        cost=node.declared.cost,
    )
    return output, None


OUTPUT_BYTES_MAX = 768 * 1024
"""Largest output of one node: the record around it must stay under the log's own limit."""
