"""One attempt of a node: its function run once under the budget, and how that ended, recorded.

Rule: never more than `at_once` attempts run; one that waits for a human gives its slot back, and goes on
only with a slot again. What a node does to its arguments is seen by nobody else. An attempt that ends
well must have asked for every act that its scope recorded, or a human lets the act stand.
Does not know: whether or when a node is to run (flow_execution.py asks core/nodes.py).
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Self

import anyio
import anyio.to_thread

from evsrc.core import nodes as decide
from evsrc.core.codec import decode_value, round_trip
from evsrc.core.events import ErrorData, NodeFailed, NodeOutput, QuestionAsked
from evsrc.core.keys import bytes_digest
from evsrc.core.state import NodeId, node_scope
from evsrc.errors import (
    CallerError,
    DefinitionError,
    EvsrcError,
    LimitExceeded,
    ReadChanged,
    ToolError,
    UnusableValue,
)
from evsrc.runtime.execution import Execution, wait_parked
from evsrc.runtime.flow import Flow, Node
from evsrc.runtime.node_keys import NodeResult, file_digests
from evsrc.runtime.observer import Moment, MomentName
from evsrc.runtime.recording import error_data
from evsrc.runtime.run import Run, being_cancelled
from evsrc.runtime.unit import Unit

OUTPUT_BYTES_MAX = 768 * 1024
"""Largest output of one node: the record around it must stay under the log's own limit."""


class Slot:
    """A slot of the budget, held on behalf of an attempt: the watcher may give it back meanwhile."""

    def __init__(self, slots: anyio.CapacityLimiter) -> None:
        self._slots = slots
        self._held = anyio.Event()

    async def __aenter__(self) -> Self:
        await self.take()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.give_back()

    async def take(self) -> None:
        await self._slots.acquire_on_behalf_of(self)
        self._held.set()

    def give_back(self) -> None:
        if self._held.is_set():
            self._held = anyio.Event()
            self._slots.release_on_behalf_of(self)

    async def held(self) -> None:
        """Return while the slot is held: code that waited for a human goes on only then."""
        await self._held.wait()


class Attempts:
    """Runs the attempts of one execution of a flow, and waits for the answers they need."""

    def __init__(
        self, execution: Execution, flow: Flow[Any], input_value: Any, wake: Callable[[], None]
    ) -> None:
        self.execution = execution
        self.waiting: set[NodeId] = set()
        """Nodes and items that wait for a human."""
        self._flow = flow
        self._input = round_trip(input_value, flow.input)[0]
        self._slots = anyio.CapacityLimiter(flow.at_once)
        self._asking: set[str] = set()
        """Questions that were recorded here, so that items which share one ask it once."""
        self._wake = wake

    async def ask_human(
        self, ask: decide.NodeAsk, about: decide.AskAbout | decide.AwaitAnswer
    ) -> None:
        """Record a question, or wait for its answer, without a slot; the rest of the flow goes on."""
        if isinstance(about, decide.AskAbout):
            await self._record(ask, about.question)
            return
        id_ = (ask.node, ask.item)
        self.waiting.add(id_)
        self._wake()
        try:
            await self.execution.journal.changed(about.question)
        finally:
            self.waiting.discard(id_)
            self._wake()

    async def _record(self, ask: decide.NodeAsk, question: QuestionAsked) -> None:
        """Record a question once; who comes with the same one waits until it is recorded."""
        if question.question in self._asking:
            await self.execution.journal.changed(question.question)
            return
        self._asking.add(question.question)
        await self.execution.journal.append([question], durable=True)
        self.moment("question", ask, detail=question.kind)

    async def run(
        self,
        node: Node,
        ask: decide.NodeAsk,
        start: decide.StartNode,
        upstream: Mapping[str, NodeResult],
        files: dict[str, str],
        item_value: Any,
    ) -> NodeOutput | NodeFailed:
        """Run the node's function once and record how it ended."""
        journal = self.execution.journal
        async with Slot(self._slots) as slot:
            before = journal.state.nodes.get((node.name, ask.item))
            if start.event is not None:
                await journal.append([start.event], durable=False)
            self.moment("node_start", ask, start.attempt)
            first = before is None or not before.runs
            unit = self.execution.unit(node_scope(node.name, ask.item), first=first)
            body = self._body(node, upstream, item_value)
            value, error = await self._guarded(unit, ask, body, slot)
            if error is None and files and not _unchanged(node, files):
                error = ReadChanged(f"a file that {node.name} reads changed while it ran")
            output: NodeOutput | None = None
            if error is None:
                output, error = _output(node, ask, start.attempt, value, files)
            if output is not None:
                await journal.append([output], durable=False)
                self.moment("node_output", ask, start.attempt)
                return output
            if error is None:
                raise AssertionError("a node ended with neither output nor error")
            return await self._failed(node, ask, start.attempt, error)

    def _body(
        self, node: Node, upstream: Mapping[str, NodeResult], item_value: Any
    ) -> Callable[[], Awaitable[Any]]:
        # All its own: what a node does to its arguments is seen by no other node, item or attempt.
        arguments: dict[str, Any] = deepcopy(node.declared.params)
        arguments.update({p: upstream[need].value for p, need in node.edges.items()})
        for parameter in node.input_parameters:
            arguments[parameter] = decode_value(self._input, self._flow.input)
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
        self, unit: Unit, ask: decide.NodeAsk, body: Callable[[], Awaitable[Any]], slot: Slot
    ) -> tuple[Any, BaseException | None]:
        """Run the code; give the slot back while all it does is wait for a human."""
        value: Any = None
        failure: BaseException | None = None
        unit.resumed = slot.held

        async def to_the_end() -> Any:
            result = await body()
            await self._account_for_unasked(unit, ask)
            return result

        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, unit, (ask.node, ask.item), slot)
            try:
                value = await self.execution.inside(unit, to_the_end)
            except Exception as error:  # noqa: BLE001  a node's failure is recorded, whatever it is
                failure = error
            except anyio.get_cancelled_exc_class() as error:
                if anyio.current_effective_deadline() == -math.inf:
                    raise
                failure = error  # it awaited something that somebody cancelled, or cancelled itself
                forget_cancel()
            group.cancel_scope.cancel()
        if self.execution.blocked is not None:
            raise self.execution.blocked
        if isinstance(failure, EvsrcError) and not _is_nodes_own(failure):
            raise failure
        return value, failure

    async def _account_for_unasked(self, unit: Unit, ask: decide.NodeAsk) -> None:
        """Ask about acts of earlier attempts that this one, which ended well, did not ask for."""
        state = self.execution.journal.state
        while unit.queue.missing and self.execution.blocked is None:
            match decide.unasked(state, ask, unit.queue.missing):
                case decide.LetStand(ids):
                    for id_ in ids:
                        unit.queue.asked(id_)
                    return
                case decide.AskAbout(question):
                    await self._record(ask, question)
                case decide.AwaitAnswer(id_):
                    with unit.parking():
                        await self.execution.journal.changed(id_)
                    await unit.resumed()

    async def _watch(self, unit: Unit, id_: NodeId, slot: Slot) -> None:
        while True:
            await wait_parked(unit)
            self.waiting.add(id_)
            slot.give_back()
            self._wake()
            try:
                while unit.parked and not unit.live:
                    await unit.idle.wait()
            finally:
                self.waiting.discard(id_)
            self._wake()
            await slot.take()

    async def _failed(
        self, node: Node, ask: decide.NodeAsk, attempt: int, error: BaseException
    ) -> NodeFailed:
        retry = node.declared.retry
        data = error_data(error)
        if isinstance(error, retry.on):
            data = ErrorData(data.type, data.message, transient=True)
        event = decide.node_failed(
            ask, attempt, data, retry, self.execution.services.clock.now_ns()
        )
        await self.execution.journal.append([event], durable=False)
        self.moment("node_failed", ask, attempt, data.type)
        return event

    def moment(
        self, name: MomentName, ask: decide.NodeAsk, attempt: int = 0, detail: str = ""
    ) -> None:
        """Tell the observers of one moment of a node."""
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


def _unchanged(node: Node, files: dict[str, str]) -> bool:
    try:
        return file_digests(node) == files
    except DefinitionError:  # it was there before
        return False


def forget_cancel() -> None:
    """Undo asyncio's own cancel of this task, which its code asked for: it is recorded as a failure."""
    import sys

    asyncio = sys.modules.get("asyncio")
    if asyncio is None or not being_cancelled():
        return
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _is_nodes_own(error: EvsrcError) -> bool:
    """Is this a failure of the node (a tool's answer, a bad value), not of the run or the log?"""
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
