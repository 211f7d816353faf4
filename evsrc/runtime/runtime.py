"""The runtime: one open log, its runs, and the tasks that perform what core decides.

Rule: opening folds the log and resumes what is owed; closing stops user code, lets what was sent be
recorded, and leaves the rest to the next owner. One runtime per log and process.
Does not know: graphs (flow_execution.py), calls (driver.py), files (log/).
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeAlias, TypeVar, overload

import anyio
import anyio.to_thread

from evsrc.core import canonical, keys, runs
from evsrc.core.codec import decode_value, plain, round_trip
from evsrc.core.events import Event, IntentRecorded, NodeOutput, QuestionAsked, RunStarted
from evsrc.core.state import RunState
from evsrc.errors import CallerError, DefinitionError, UnknownEvent
from evsrc.log.base import Log
from evsrc.log.file.fs import Fs
from evsrc.projections.checkpoints import Checkpoints
from evsrc.runtime.answers import Answers
from evsrc.runtime.clock import Clock, Entropy, SystemClock, system_entropy
from evsrc.runtime.flow import Flow
from evsrc.runtime.journal import Journal
from evsrc.runtime.observer import Observer, Observers
from evsrc.runtime.outcome import Cancelled, Completed, Failed, Outcome, Suspended
from evsrc.runtime.replay import REPLAY_STALL_S
from evsrc.runtime.runner import Runner
from evsrc.runtime.services import Services
from evsrc.runtime.settling import settle_open_calls
from evsrc.runtime.sweep import Swept, sweep
from evsrc.runtime.workflow import Workflow
from evsrc.tools.call import SecretResolver, env_secret
from evsrc.tools.tool import Tool
from evsrc.tools.toolset import ToolSet

I = TypeVar("I")  # noqa: E741  the input type, as in the published signatures
R = TypeVar("R")
Work: TypeAlias = Flow[Any] | Workflow[Any, Any]
OnQuestion: TypeAlias = Callable[[str, QuestionAsked], Awaitable[None] | None]

RESERVED_PREFIX = "evsrc/"
"""Streams of the library itself (sweeps) start with this; run ids may not."""


class Handle(Generic[R]):
    """A started run. Its start is durable."""

    def __init__(self, runtime: "Runtime", run_id: str) -> None:
        self._runtime = runtime
        self.run_id = run_id

    async def wait(self) -> Outcome[R]:
        """The run's end, through every suspension: Completed, Failed or Cancelled.

        Raises: CallerError if the run is blocked, OperatorError if the log refused.
        """
        runner = self._runtime.runner(self.run_id)
        if runner is not None:
            await runner.ended(through_suspension=True)
        return self._runtime.outcome(self.run_id)


class Runtime:
    """An open runtime. Made by `open_runtime`."""

    def __init__(
        self, services: Services, works: Sequence[Work], on_question: OnQuestion | None
    ) -> None:
        self._services = services
        self._works: dict[str, Work] = {}
        for work in works:
            if work.name in self._works:
                raise DefinitionError(f"two workflows are called {work.name}; rename one")
            self._works[work.name] = work
        self._on_question = on_question
        self._journals: dict[str, Journal] = {}
        self._runners: dict[str, Runner] = {}
        self._checkpoints = Checkpoints()
        self._told: set[tuple[str, str]] = set()
        self._to_tell: list[tuple[str, QuestionAsked]] = []
        self._asked = anyio.Event()
        self.unreadable: dict[str, str] = {}
        """Runs that hold an event of a later version: run id -> position and tag."""
        self.answers = Answers(services, self.journal, self._woken)

    # ---- opening --------------------------------------------------------------------------------

    def load(self) -> None:
        """Fold the whole log. An unknown event stops its own run only."""
        for record in self._services.log.records():
            if record.stream in self.unreadable:
                continue
            journal = self.journal(record.stream)
            try:
                journal.load(record)
            except UnknownEvent as error:
                self.unreadable[record.stream] = f"position {record.position}: {error}"
                self._journals.pop(record.stream, None)
        for run_id, journal in self._journals.items():
            for node in journal.state.nodes.values():
                if node.output is not None:
                    self._checkpoints.add(run_id, node.output)
            self._services.orphans.update(journal.state.orphans)
            for call in journal.state.calls.values():
                self._services.note_own_key(run_id, call)

    def resume(self) -> None:
        """Start every unfinished run whose code is loaded, and settle every open call of a known tool."""
        settle_open_calls(self._services, self._journals.values())
        for run_id, journal in self._journals.items():
            state = journal.state
            if state.started is None:
                continue
            if not state.ended and state.started.workflow in self._works:
                self._start_runner(run_id, self._works[state.started.workflow])
            for question in state.open_questions:
                self._tell(run_id, question)

    # ---- what users call ------------------------------------------------------------------------

    @overload
    async def run(
        self, work: Workflow[I, R], input: I, /, *, run_id: str | None = None
    ) -> Outcome[R]: ...
    @overload
    async def run(
        self, work: Flow[I], input: I, /, *, run_id: str | None = None
    ) -> Outcome[dict[str, Any]]: ...
    async def run(self, work: Any, input: Any, /, *, run_id: str | None = None) -> Any:
        """Run a flow or workflow, or join it, or return its recorded outcome. Idempotent by run id.

        Returns once the run ended, or is suspended because only a human can help.

        Raises:
            InputMismatch: the id stands for another workflow or another input.
            CallerError: the run is blocked: its code does not fit what it recorded.
            OperatorError: the log refused.
        """
        id_ = await self._begin(work, input, run_id, durable=False)
        runner = self._runners.get(id_)
        if runner is not None:
            await runner.ended(through_suspension=False)
        return self.outcome(id_)

    @overload
    async def start(
        self, work: Workflow[I, R], input: I, /, *, run_id: str | None = None
    ) -> Handle[R]: ...
    @overload
    async def start(
        self, work: Flow[I], input: I, /, *, run_id: str | None = None
    ) -> Handle[dict[str, Any]]: ...
    async def start(self, work: Any, input: Any, /, *, run_id: str | None = None) -> Any:
        """Start a run, or join it, and return a handle once the start is durable.

        Raises: InputMismatch, OperatorError, as `run`.
        """
        id_ = await self._begin(work, input, run_id, durable=True)
        return Handle[Any](self, id_)

    def state(self, run_id: str) -> RunState:
        """The folded state of a run. Read it, do not change it. Raises KeyError for an unknown run."""
        return self._journals[run_id].state

    @property
    def run_ids(self) -> list[str]:
        """Every run of the log, oldest first."""
        return [id_ for id_ in self._journals if not id_.startswith(RESERVED_PREFIX)]

    @property
    def blocked(self) -> dict[str, CallerError]:
        """Runs whose code does not fit what they recorded: run id -> why."""
        return {i: r.blocked for i, r in self._runners.items() if r.blocked is not None}

    def questions(self) -> list[tuple[str, QuestionAsked]]:
        """Every open question, with its run."""
        return [(i, q) for i, j in self._journals.items() for q in j.state.open_questions]

    async def sweep(self) -> list[Swept]:
        """The full sweep: ask every tool that can which effects carry our markers; record what it saw.

        Raises: OperatorError if the log refused.
        """
        markers = {
            call.intent.marker: run_id
            for run_id, journal in self._journals.items()
            for call in journal.state.calls.values()
        }
        return await sweep(self._services, self.journal(RESERVED_PREFIX + "sweep"), markers)

    def outcome(self, run_id: str) -> Outcome[Any]:
        """How a run stands now. Raises its CallerError if it is blocked."""
        state = self.state(run_id)
        started, runner = state.started, self._runners.get(run_id)
        if state.status == "completed" and started is not None:
            work = self._works.get(started.workflow)
            return Completed(run_id, self._value(state, work))
        if state.status == "failed" and state.error is not None:
            return Failed(run_id, state.error, runs.open_calls(state))
        if state.status == "cancelled":
            return Cancelled(run_id)
        if runner is not None and runner.error is not None:
            raise runner.error
        return Suspended(run_id, tuple(state.open_questions))

    def runner(self, run_id: str) -> Runner | None:
        """The runner of a run that this process executes or executed; None for one that had ended."""
        return self._runners.get(run_id)

    async def stop(self) -> None:
        """Stop all user code. Called when the runtime closes."""
        for runner in list(self._runners.values()):
            await runner.stop("closed")

    # ---- inside ---------------------------------------------------------------------------------

    def journal(self, run_id: str) -> Journal:
        """The journal of a run; made at first use."""
        if run_id not in self._journals:
            self._journals[run_id] = Journal(
                self._services.log, run_id, lambda state, event: self._on_event(state, event)
            )
        return self._journals[run_id]

    def _on_event(self, state: RunState, event: Event) -> None:
        if isinstance(event, NodeOutput):
            self._checkpoints.add(state.run_id, event)
        elif isinstance(event, QuestionAsked):
            self._tell(state.run_id, event)
        elif isinstance(event, IntentRecorded):
            self._services.note_own_key(state.run_id, state.calls[event.call])

    async def _begin(self, work: Work, input: Any, run_id: str | None, *, durable: bool) -> str:
        if self._works.setdefault(work.name, work) is not work:
            raise DefinitionError(f"workflow {work.name} was given to the runtime as other code")
        value, data, version = _input(work, input)
        digest = canonical.digest(value)
        id_ = run_id or _derived_id(work, value, digest)
        keys.check_run_id(id_)
        if id_.startswith(RESERVED_PREFIX):
            raise DefinitionError(f"run ids do not start with {RESERVED_PREFIX!r}: {id_!r}")
        if id_ in self.unreadable:
            raise UnknownEvent(f"run {id_!r} needs a later version: {self.unreadable[id_]}")
        runner = self._runners.get(id_)
        journal = self.journal(id_)
        incarnation = self._services.entropy(8).hex()
        event = RunStarted(work.name, version, data, digest, incarnation)
        events = runs.start(journal.state, event)
        if runner is None and not journal.state.ended:
            # Registered before the first await: eight tasks that start one id make one run.
            runner = self._start_runner(id_, work, events)
        elif runner is not None and events:
            runner.check_start(event)
        if runner is not None:
            await runner.started.wait()
        if durable:
            await self._services.log.sync()
        return id_

    def _start_runner(self, run_id: str, work: Work, events: Sequence[Event] = ()) -> Runner:
        runner = Runner(
            self._services, self.journal(run_id), work, self._checkpoints, tuple(events)
        )
        self._runners[run_id] = runner
        self._services.group.start_soon(runner.run)
        return runner

    def _woken(self, run_id: str) -> None:
        """A question of a run was answered: go on if it was suspended."""
        runner = self._runners.get(run_id)
        if runner is not None:
            runner.wake()

    def _value(self, state: RunState, work: Work | None) -> Any:
        if isinstance(work, Workflow):
            return decode_value(state.output, work.types[1])
        if isinstance(work, Flow):
            from evsrc.runtime.outputs import outputs_of

            return outputs_of(work.build(), state)
        return plain(state.output) if state.output else {}

    def _tell(self, run_id: str, question: QuestionAsked) -> None:
        # Only noted here: an event lands outside of any task, where none can be started.
        if self._on_question is not None and (run_id, question.question) not in self._told:
            self._told.add((run_id, question.question))
            self._to_tell.append((run_id, question))
            self._asked.set()

    async def tell(self) -> None:
        """Call `on_question` for every open question, once each, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            told, self._to_tell = self._to_tell, []
            for run_id, question in told:
                if self._on_question is not None:
                    self._services.group.start_soon(_tell, self._on_question, run_id, question)

    async def start_by_name(self, workflow: str, input: Any, run_id: str | None) -> str:
        """Start a run from plain data (an inbox message).

        Raises:
            DefinitionError: no such workflow is loaded.
            InputMismatch: as `run`.
        """
        work = self._works.get(workflow)
        if work is None:
            raise DefinitionError(f"no workflow {workflow!r} is loaded; run {run_id!r} not started")
        import msgspec

        kind = work.types[0] if isinstance(work, Workflow) else work.input
        value = msgspec.convert(input, kind, strict=False)
        return await self._begin(work, value, run_id, durable=True)


async def _tell(on_question: OnQuestion, run_id: str, question: QuestionAsked) -> None:
    try:
        result = on_question(run_id, question)
        if result is not None:
            await result
    except Exception:
        import logging

        logging.getLogger("evsrc").exception("on_question failed for %s", question.question)


def _input(work: Work, input: Any) -> tuple[Any, bytes, str]:
    if isinstance(work, Workflow):
        data, value = round_trip(input, work.types[0])
        return value, data, work.version
    data, value = round_trip(input, work.input)
    return value, data, work.build().version


def _derived_id(work: Work, value: Any, digest: str) -> str:
    if isinstance(work, Flow) and work.run_id is not None:
        return str(work.run_id(value))
    return keys.run_id_for(work.name, digest)


@asynccontextmanager
async def open_runtime(
    where: "str | os.PathLike[str] | Log",
    *,
    workflows: Iterable[Work] = (),
    tools: Iterable[Tool[..., Any]] = (),
    on_question: OnQuestion | None = None,
    observers: Iterable[Observer] = (),
    secrets: SecretResolver = env_secret,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    namespace: str | None = None,
    lazy_sync_s: float | None = 0.01,
    fs: Fs | None = None,
    replay_stall_s: float = REPLAY_STALL_S,
    resume: bool = True,
) -> AsyncGenerator[Runtime, None]:
    """Open a log (a folder, made if absent, or a `Log`) and everything that is owed in it.

    Args:
        where: a folder for a file log, or an open log, which is then left open.
        workflows: flows and workflows whose unfinished runs are resumed in the background.
        tools: tools whose interrupted calls are settled, also for runs whose code is not loaded.
        on_question: called once per open question and process, with the run id and the question.
        observers: hear every moment; see evsrc/runtime/observer.py.
        secrets: resolves secret references at the send; the environment by default.
        clock, entropy: injected time and randomness.
        namespace: chosen when the log is made (random by default); two logs that act on the same
            tools must differ in it.
        lazy_sync_s: how long a read's result may stay unsynced; None: until the next intent.
        fs: the file system seam of the file log; the real one by default.
        replay_stall_s: how long replay waits for a recorded call before the run counts as blocked.
        resume: False opens without running anything: for tools that only answer questions.

    Raises:
        LogLocked: another process has the log; the message names it.
        LogCorrupt: acknowledged data is damaged.
        DefinitionError: a tool or workflow cannot work.
    """
    clock = clock or SystemClock()
    toolset = ToolSet(tools)
    log, mine = await _open(where, namespace, clock, entropy, lazy_sync_s, fs)
    try:
        async with anyio.create_task_group() as group:
            services = Services(
                log,
                group,
                clock=clock,
                entropy=entropy,
                observers=Observers(*observers),
                tools=toolset,
                stall_s=replay_stall_s,
                secrets=secrets,
            )
            runtime = Runtime(services, list(workflows), on_question)
            # In a thread: folding a long log must not stall whoever else lives on this loop.
            await anyio.to_thread.run_sync(runtime.load)
            if resume:
                runtime.resume()
            group.start_soon(runtime.tell)
            poll = _inbox(log, runtime)
            if poll is not None:
                group.start_soon(poll)
            try:
                yield runtime
            finally:
                with anyio.CancelScope(shield=True):
                    await _close(runtime, services)
                group.cancel_scope.cancel()
    except BaseExceptionGroup as group_error:
        # Our own tasks raise nothing: what is in here is what the caller's block raised.
        if len(group_error.exceptions) == 1:
            (error,) = group_error.exceptions
            raise error from error.__cause__
        raise
    finally:
        if mine:
            with anyio.CancelScope(shield=True):
                await log.aclose()


async def _open(
    where: Any,
    namespace: str | None,
    clock: Clock,
    entropy: Entropy,
    lazy_sync_s: float | None,
    fs: Fs | None,
) -> tuple[Log, bool]:
    if isinstance(where, Log):
        return where, False
    from evsrc.log.file.log import FileLog

    log = await FileLog.open(
        where,
        namespace=namespace,
        clock=clock.now_ns,
        entropy=entropy,
        lazy_sync_s=lazy_sync_s,
        fs=fs,
    )
    return log, True


def _inbox(log: Log, runtime: Runtime) -> Callable[[], Coroutine[Any, Any, None]] | None:
    from evsrc.log.file.log import FileLog

    if not isinstance(log, FileLog):
        return None
    from evsrc.runtime.postman import Postman

    return Postman(log, runtime).run


async def _close(runtime: Runtime, services: Services) -> None:
    """Stop user code, let every send in flight be recorded, then let go."""
    await runtime.stop()
    drivers = list(services.drivers.values())
    for driver in drivers:
        driver.close()
    for driver in drivers:
        await driver.ended.wait()
