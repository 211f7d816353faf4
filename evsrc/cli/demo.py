"""`demo`: the main job, three ways over one kill schedule.

Rule: shows what evsrc/demo/threeway.py counted, and nothing of its own.
Does not know: how anything is killed.
"""

from importlib.util import find_spec
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.progress import TaskID
from rich.text import Text

from evsrc.cli import render, statuses
from evsrc.cli.logs import AsJson
from evsrc.cli.statuses import UsageError
from evsrc.demo.threeway import Measured, Progress, ThreeWay, run_threeway

FINDINGS_MAX = 40
"""As many as the corpus holds."""

MODES = {
    "naive": "nothing is remembered",
    "log": "a log remembers; in doubt it is sent again",
    "reconciled": "a log remembers; in doubt the tool is asked",
}

COLUMNS = {
    "effects": "effects",
    "duplicates": "duplicates",
    "lost": "lost",
    "questions": "open_questions",
    "kills": "kills",
    "ran": "nodes_run",
    "reused": "nodes_reused",
}
"""Heading -> what is counted. Short ones: the table fits into 80 characters."""


def demo(
    *,
    findings: Annotated[int, Parameter(help="How many findings, 1 to 40.")] = FINDINGS_MAX,
    kills: Annotated[int, Parameter(help="How many SIGKILLs, at most two per finding.")] = 70,
    blind_page: Annotated[
        bool, Parameter(negative="", help="Page through a webhook that tells nothing.")
    ] = False,
    backend: Annotated[
        Literal["asyncio", "trio"], Parameter(help="Event loop of the agent's processes.")
    ] = "asyncio",
    json: AsJson = False,
) -> int:
    """Run 40 alerts three ways, killing the agent at its worst instants, and count the effects.

    Exit status 1 if the reconciled way lost or doubled an effect, 3 if it left a question.
    """
    if not 1 <= findings <= FINDINGS_MAX or not 0 <= kills <= 2 * findings:
        raise UsageError(
            f"--findings is 1 to {FINDINGS_MAX}, --kills 0 to twice that; found {findings}, {kills}"
        )
    if find_spec(backend) is None:
        raise UsageError(f"--backend {backend} needs the package {backend}: pip install {backend}")
    with render.progress() as progress:
        tasks: dict[str, TaskID] = {
            mode: progress.add_task(f"{mode:10}", total=findings, detail="0 kills")
            for mode in MODES
        }

        def show(at: Progress) -> None:
            detail = f"{at.kills} kills"
            progress.update(tasks[at.mode], completed=at.done, total=at.total, detail=detail)

        try:
            counted = run_threeway(
                findings_count=findings,
                kills=kills,
                blind_page=blind_page,
                backend=backend,
                progress=show,
            )
        except RuntimeError as error:
            render.error_line(error)  # the stage failed, not the agent: no numbers to show
            return statuses.FAILED
    if json:
        ways = {mode: getattr(counted, mode) for mode in MODES}
        render.print_json(ways | {"schedule": counted.schedule})
    else:
        _table(counted)
    return _status(counted.reconciled)


def _status(reconciled: Measured) -> int:
    if reconciled.duplicates or reconciled.lost:
        return statuses.FAILED
    return statuses.QUESTIONS if reconciled.open_questions else statuses.OK


def _table(counted: ThreeWay) -> None:
    rows: list[list[Text | str]] = []
    for mode in MODES:
        measured: Measured = getattr(counted, mode)
        rows.append([mode, *[str(getattr(measured, field)) for field in COLUMNS.values()]])
    render.table(("way", *COLUMNS), rows)
    for mode, words in MODES.items():
        render.line(f"{mode}: {words}")
    render.line("ran: nodes that were computed; reused: taken from the log instead")
    render.line(f"kill schedule {counted.schedule[:16]}, the same in all three")
