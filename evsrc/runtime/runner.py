"""The runner of one run: starts it, executes its code until it ends, suspends or is blocked, and again.

Rule: an execution is disposable. A suspended run's code is thrown away and replayed after the answer; a
blocked run gets no terminal event, so that fitting code can go on with it.
Does not know: what the code is made of, beyond flow or workflow.
"""

from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

from evsrc.core import runs
from evsrc.core.codec import decode_value, round_trip
from evsrc.core.events import Event, RunStarted
from evsrc.core.state import RunState, evolve
from evsrc.errors import CallerError, EvsrcError, LimitExceeded, ToolError, UnusableValue
from evsrc.projections.checkpoints import Checkpoints
from evsrc.runtime.execution import Execution, wait_parked
from evsrc.runtime.flow import Flow
from evsrc.runtime.flow_execution import FlowExecution
from evsrc.runtime.journal import Journal
from evsrc.runtime.observer import Moment, MomentName
from evsrc.runtime.recording import error_data
from evsrc.runtime.run import Run
from evsrc.runtime.services import Services
from evsrc.runtime.unit import Unit
from evsrc.runtime.workflow import Workflow

Work: TypeAlias = Flow[Any] | Workflow[Any, Any]

RESULT_BYTES_MAX = 768 * 1024
"""Largest result of a workflow: the record around it must stay under the log's own limit."""


class Runner:
    """Runs one run, in the runtime's own task group."""

    def __init__(
        self,
        services: Services,
        journal: Journal,
        work: Work,
        checkpoints: Checkpoints,
        start: tuple[Event, ...],
    ) -> None:
        self.started = anyio.Event()
        """Set once the start is in the log, or was refused."""
        self.error: EvsrcError | None = None
        """Why the run does not go on here: blocked code, or a log that refuses."""
        self._services = services
        self._journal = journal
        self._work = work
        self._checkpoints = checkpoints
        self._start = start
        self._idle = anyio.Event()
        self._wake = anyio.Event()
        self._wanted = False
        self._stopped = ""
        self._scope: anyio.CancelScope | None = None
        self._execution: Execution | None = None
        self._over = anyio.Event()

    @property
    def blocked(self) -> CallerError | None:
        """Why the code does not fit the run, if it does not."""
        return self.error if isinstance(self.error, CallerError) else None

    @property
    def _finished(self) -> bool:
        return bool(self._stopped) or self._journal.state.ended or self.error is not None

    def check_start(self, event: RunStarted) -> None:
        """A second start before the first one landed. Raises InputMismatch if it names another input."""
        state = RunState(self._journal.run_id)
        for first in self._start:
            evolve(state, first)
        runs.start(state, event)

    def wake(self) -> None:
        """A question was answered: replay, if the code was thrown away."""
        self._wanted = True
        if not self._finished and self._idle.is_set():
            # Whoever asks from now on waits for what the answer leads to.
            self._idle = anyio.Event()
        self._wake.set()

    async def ended(self, *, through_suspension: bool) -> None:
        """Return when the run ended, or (unless through_suspension) waits for a human, or cannot go on."""
        while True:
            await self._idle.wait()
            if self._journal.state.ended or self.error or not through_suspension:
                return
            await self._wake.wait()
            await anyio.lowlevel.checkpoint()

    async def stop(self, why: str) -> None:
        """Stop the code. What it sent goes on being recorded by the drivers."""
        self._stopped = why
        if self._execution is not None:
            self._execution.stop(why)
        if self._scope is not None:
            self._scope.cancel()
        self._wake.set()
        await self._over.wait()

    async def run(self) -> None:
        """Run to the end. Errors of evsrc are kept for whoever waits; nothing is raised."""
        try:
            if self._start:
                await self._journal.append(self._start, durable=False)
                self._moment("run_started")
            self.started.set()
            while not self._finished:
                await self._once()
                if not self._finished:
                    await self._sleep()
        except EvsrcError as error:
            self.error = error
        finally:
            self.started.set()
            self._idle.set()
            self._over.set()
            if self._journal.state.ended:
                self._moment("run_ended", self._journal.state.status)

    async def _sleep(self) -> None:
        """Suspended: wait for an answer. One that came while the code was thrown away counts."""
        if not self._wanted:
            self._moment("run_suspended")
            self._idle.set()
            await self._wake.wait()
        if self._idle.is_set():
            self._idle = anyio.Event()
        self._wake = anyio.Event()
        self._wanted = False

    async def _once(self) -> None:
        """One execution of the code."""
        self._execution = execution = Execution(self._services, self._journal)
        started = self._journal.state.started
        if started is None:
            raise AssertionError("a run that runs has started")
        try:
            with anyio.CancelScope() as self._scope:
                if isinstance(self._work, Flow):
                    await self._flow(self._work, execution, started)
                else:
                    await self._workflow(self._work, execution, started)
        except EvsrcError as error:
            self.error = error
        finally:
            self._scope = None
            execution.stop("discarded")

    async def _flow(self, flow: Flow[Any], execution: Execution, started: RunStarted) -> None:
        value = decode_value(started.input, flow.input)
        running = FlowExecution(
            execution, flow, flow.build(), value, started.input_digest, self._checkpoints
        )
        end = await running.run()
        if end == "completed":
            await self._end(runs.complete(self._journal.state, b""))
        elif end == "failed" and running.error is not None:
            await self._end(runs.fail(self._journal.state, running.error))

    async def _workflow(
        self, work: Workflow[Any, Any], execution: Execution, started: RunStarted
    ) -> None:
        takes, gives = work.types
        unit = execution.unit(())
        value = decode_value(started.input, takes)
        finished, result, failure = await self._body(work, execution, unit, value)
        if execution.blocked is not None:
            raise execution.blocked
        if failure is not None:
            if isinstance(failure, EvsrcError) and not isinstance(failure, ToolError | CallerError):
                raise failure
            await self._end(runs.fail(self._journal.state, error_data(failure)))
        elif finished:
            await self._end(_completion(self._journal.state, result, gives))

    async def _body(
        self, work: Workflow[Any, Any], execution: Execution, unit: Unit, value: Any
    ) -> tuple[bool, Any, Exception | None]:
        """(finished, result, failure); not finished: thrown away, because it waits for a human."""
        finished, result, failure = False, None, None
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await wait_parked(unit)
                execution.stop("suspended")
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                result = await execution.inside(unit, lambda: work.fn(Run(execution), value))
                finished = True
            except Exception as error:  # noqa: BLE001  a workflow's failure is recorded as the run's end
                failure = error
            group.cancel_scope.cancel()
        if execution.stopped:
            return False, None, None
        return finished, result, failure

    async def _end(self, event: Event) -> None:
        # Durable before the caller is told, together with every read that it rests on.
        await self._journal.append([event], durable=True, essential=True)

    def _moment(self, name: MomentName, detail: str = "") -> None:
        self._services.emit(Moment(name, self._journal.run_id, detail=detail))


def _completion(state: RunState, result: Any, annotation: Any) -> Event:
    """The end of a workflow that returned: also a result that cannot be recorded ends the run."""
    try:
        data, _ = round_trip(result, annotation)
        if len(data) > RESULT_BYTES_MAX:
            raise LimitExceeded(f"result of {len(data)} bytes, at most {RESULT_BYTES_MAX}")
    except (UnusableValue, LimitExceeded) as error:
        return runs.fail(state, error_data(error))
    return runs.complete(state, data)
