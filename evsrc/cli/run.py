"""`run`: run a flow or workflow for inputs from a file, all at once, to their ends or suspensions.

Rule: what is printed is what the log holds. Interrupted, it leaves a log that says what was sent; the
same command goes on where it was.
Does not know: how a run is executed.
"""

from typing import Annotated, Any

import anyio
import msgspec
from cyclopts import Parameter
from rich.progress import Progress, TaskID
from rich.text import Text

from evsrc.cli import logs, render, statuses
from evsrc.cli.loading import Input, Work, load_inputs, loaded
from evsrc.cli.logs import AsJson, LogDir
from evsrc.cli.plain import jsonable
from evsrc.cli.statuses import UsageError
from evsrc.errors import EvsrcError
from evsrc.runtime.observer import Moment
from evsrc.runtime.outcome import Completed, Failed, Outcome, Suspended
from evsrc.runtime.runtime import Runtime, open_runtime
from evsrc.runtime.workflow import Workflow

AT_ONCE_DEFAULT = 16
"""Runs at one time: each holds its own state and a few requests; a folder may hold thousands."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How one input's run stands. `status` is also "refused" (nothing was started) or "blocked"."""

    where: str
    run: str
    status: str
    detail: str = ""
    value: Any = None
    questions: list[str] = []
    exit_status: int = statuses.OK


class _Watch:
    """An observer that moves the progress bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._nodes = 0
        self._reused = 0

    def on(self, moment: Moment, /) -> None:
        """Learn of one moment."""
        self._nodes += moment.name == "node_output"
        self._reused += moment.name == "node_reused"
        if moment.name in ("node_output", "node_reused"):
            detail = f"{self._nodes} nodes run, {self._reused} reused"
            self._progress.update(self._task, detail=detail)


def run(
    flow: str,
    input: str,  # named for the help text
    /,
    *,
    at_once: Annotated[int, Parameter(help="How many runs at one time.")] = AT_ONCE_DEFAULT,
    log: LogDir = logs.LOG_DEFAULT,
    json: AsJson = False,
) -> int:
    """Run a flow or workflow for every input of a file or folder, and say how each run stands.

    FLOW is module:attribute: a Flow, a Workflow, or a function without parameters that gives one. The
    module's `tools` and `setup` are used if it has them. INPUT is a *.json file (one input, a list, or
    one a line), a *.jsonl file, or a folder of such files. The log is made if it is not there.
    """
    if at_once < 1:
        raise UsageError(f"--at-once is at least 1, found {at_once}")
    ended = anyio.run(_run, flow, input, log, at_once)
    if json:
        render.print_json({"runs": ended})
    else:
        render.table(("run", "status", "detail"), [_cells(one) for one in ended])
    return statuses.worst(one.exit_status for one in ended)


def _cells(one: Ended) -> list[Text | str]:
    return [one.run or one.where, render.status_text(one.status), one.detail]


async def _run(spec: str, path: str, log: str, at_once: int) -> list[Ended]:
    async with loaded(spec) as found:
        work = found.work(spec)
        inputs = load_inputs(path, work.types[0] if isinstance(work, Workflow) else work.input)
        with render.progress() as progress:
            task = progress.add_task("runs", total=len(inputs), detail="")
            async with open_runtime(
                log, workflows=[work], tools=found.tools, observers=[_Watch(progress, task)]
            ) as runtime:
                return await _all(runtime, work, inputs, at_once, lambda: progress.advance(task))


async def _all(
    runtime: Runtime, work: Work, inputs: list[Input], at_once: int, advance: Any
) -> list[Ended]:
    results: list[Ended | None] = [None] * len(inputs)
    limiter = anyio.CapacityLimiter(at_once)

    async def one(index: int) -> None:
        async with limiter:
            results[index] = await _one(runtime, work, inputs[index])
            advance()

    async with anyio.create_task_group() as group:
        for index in range(len(inputs)):
            group.start_soon(one, index)
    return [ended for ended in results if ended is not None]


async def _one(runtime: Runtime, work: Work, one: Input) -> Ended:
    """One run. What is wrong with it stops no other."""
    try:
        outcome: Outcome[Any] = await runtime.run(work, one.value)
    except EvsrcError as error:
        blocked = [run for run, why in runtime.blocked.items() if why is error]
        return Ended(
            where=one.where,
            run=blocked[0] if blocked else "",
            status="blocked" if blocked else "refused",
            detail=f"{type(error).__name__}: {error}",
            exit_status=statuses.status_of(error),
        )
    return _ended(one.where, outcome)


def _ended(where: str, outcome: Outcome[Any]) -> Ended:
    detail, value, questions, status = "", None, list[str](), statuses.FAILED
    match outcome:
        case Completed():
            value, status = jsonable(outcome.value), statuses.OK
        case Failed():
            detail = f"{outcome.error.type}: {outcome.error.message}"
        case Suspended():
            questions = [question.question for question in outcome.questions]
            detail = "; ".join(f"{q.subject}: {q.text}" for q in outcome.questions)
            status = statuses.QUESTIONS
        case _:
            pass
    return Ended(
        where=where,
        run=outcome.run_id,
        status=type(outcome).__name__.lower(),
        detail=detail,
        value=value,
        questions=questions,
        exit_status=status,
    )
