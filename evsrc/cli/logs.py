"""Logs, as the commands read them: without a lock, beside whoever writes.

Rule: a reader never makes a folder. Ids may be given by a prefix, as long as it names one thing.
Does not know: how a log is written.
"""

import os
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from evsrc.cli.statuses import UsageError
from evsrc.core.calls import CallState
from evsrc.core.state import QuestionState, RunState
from evsrc.log.file.meta import META_NAME
from evsrc.projections.base import CaughtUp, Projection, catch_up
from evsrc.projections.reading import LogReader, open_log
from evsrc.projections.runs import Runs

LogDir: TypeAlias = Annotated[str, Parameter(name="--log", help="Folder of the log.")]
AsJson: TypeAlias = Annotated[
    bool, Parameter(name="--json", negative="", help="Print JSON instead of text.")
]

LOG_DEFAULT = "journal"

NAMED_MAX = 5
"""How many candidates an error about an ambiguous prefix names."""


def reader(log: str, *, follow: bool = False) -> LogReader:
    """The log in folder `log`. Raises UsageError if there is none."""
    if not os.path.exists(os.path.join(log, META_NAME)):
        raise UsageError(f"no log in {log!r}; name its folder with --log")
    return open_log(log, follow=follow)


def project(log: str, projection: Projection) -> CaughtUp:
    """Feed a whole log to a projection. Raises UsageError without a log, LogCorrupt as its reader."""
    return catch_up(projection, reader(log).records())


def load_runs(log: str) -> tuple[Runs, dict[str, str]]:
    """Every run of a log, and the runs that this version cannot read, each with its reason."""
    runs = Runs()
    return runs, project(log, runs).unreadable


def find_run(runs: Runs, name: str) -> RunState:
    """The run of that id, or the only one whose id begins so. Raises UsageError."""
    known = [row.run for row in runs.rows()]
    if name in known:
        return runs.states[name]
    return runs.states[_only([run for run in known if run.startswith(name)], "run", name)]


class Subject(msgspec.Struct, frozen=True):
    """A call, or a question about a node, of one run."""

    run: str
    id: str
    call: CallState | None = None
    question: QuestionState | None = None


def find_subject(runs: Runs, name: str, run: str | None = None) -> Subject:
    """The call or question of that id, or the only one whose id begins so; of one run if given.

    A question about a call is that call. Raises UsageError: none, or several.
    """
    states = [find_run(runs, run)] if run is not None else list(runs.states.values())
    found = [(state, id_) for state in states for id_ in _ids(state) if id_.startswith(name)]
    # Ids are of one length: none begins another. One question may be open in two runs, though.
    _only([f"{id_} of run {state.run_id!r}" for state, id_ in found], "call or question", name)
    state, id_ = found[0]
    question = state.questions.get(id_)
    about = id_ if question is None else question.asked.subject
    return Subject(state.run_id, id_, state.calls.get(about), question)


def _ids(state: RunState) -> list[str]:
    return [*state.calls, *state.questions]


def _only(found: list[str], what: str, name: str) -> str:
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no {what} {name!r} in this log")
    names = ", ".join(found[:NAMED_MAX]) + (", ..." if len(found) > NAMED_MAX else "")
    raise UsageError(f"{name!r} begins {len(found)} ids: {names}. Give more of it, or --run")
