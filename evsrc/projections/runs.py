"""Runs: how every run of a log stands, in one row each.

Rule: a run's state is what `evolve` says; this file adds only wall times and the derived "suspended".
Does not know: which runs are blocked. That needs their code, which a reader of the log does not have.
"""

from typing import Literal, TypeAlias

import msgspec

from evsrc.core.events import RunCancelled, RunCompleted, RunFailed, RunReopened, RunStarted
from evsrc.core.state import RunState, evolve
from evsrc.projections.base import Seen

RunsStatus: TypeAlias = Literal["running", "suspended", "completed", "failed", "cancelled"]


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Times are wall times of records, in ns since 1970; 0 where there is none."""

    run: str
    workflow: str
    status: RunsStatus
    """`suspended`: not ended, and somebody is asked something."""
    started_ns: int
    ended_ns: int
    events: int
    calls: int
    unknown_calls: int
    """Calls of which an attempt is out and nobody knows what became of it; also of ended runs."""
    open_questions: int
    error: str = ""
    """Why it failed, as recorded: may hold text that an attacker wrote."""


class Runs:
    """The runs of a log, in the order of their first record."""

    def __init__(self) -> None:
        self.states: dict[str, RunState] = {}
        """Stream -> its folded state; also streams of the library itself, which hold no run."""
        self._started_ns: dict[str, int] = {}
        self._ended_ns: dict[str, int] = {}

    def apply(self, seen: Seen, /) -> None:
        """Take in one event."""
        state = self.states.setdefault(seen.run, RunState(seen.run))
        evolve(state, seen.event)
        match seen.event:
            case RunStarted():
                self._started_ns.setdefault(seen.run, seen.time_ns)
            case RunCompleted() | RunFailed() | RunCancelled():
                self._ended_ns[seen.run] = seen.time_ns
            case RunReopened():
                self._ended_ns.pop(seen.run, None)
            case _:
                pass

    def rows(self) -> list[RunRow]:
        """One row per run, oldest first."""
        return [self._row(state) for state in self.states.values() if state.started is not None]

    def row(self, run: str) -> RunRow | None:
        """The row of one run, None if the log does not hold it."""
        state = self.states.get(run)
        return None if state is None or state.started is None else self._row(state)

    def _row(self, state: RunState) -> RunRow:
        started, error = state.started, state.error
        return RunRow(
            run=state.run_id,
            workflow="" if started is None else started.workflow,
            status=status_of(state),
            started_ns=self._started_ns.get(state.run_id, 0),
            ended_ns=self._ended_ns.get(state.run_id, 0),
            events=state.events,
            calls=len(state.calls),
            unknown_calls=len(state.unsettled),
            open_questions=len(state.open_questions),
            error="" if error is None else f"{error.type}: {error.message}",
        )


def status_of(state: RunState) -> RunsStatus:
    """The status of a run that has started; "suspended" is derived, never stored."""
    if state.status == "completed" or state.status == "failed" or state.status == "cancelled":
        return state.status
    return "suspended" if state.open_questions else "running"
