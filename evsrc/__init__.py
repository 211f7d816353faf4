"""evsrc: idempotent tool calls and resumable workflows on one checksummed event log.

Each external call is attempted under a recorded intent; an interrupted one is settled by asking the
tool; where the tool cannot tell, a human is asked.

This file is the face: names and where they live. Errors live in `evsrc.errors`, events in
`evsrc.events`, test tools in `evsrc.testing`.

Names are imported at first use: `import evsrc` alone costs next to nothing, and a tool that only reads a
log does not pay for the runtime. Type checkers see the plain imports.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from evsrc.core.nodes import Planned, Retry
    from evsrc.core.state import RunState, evolve, fold
    from evsrc.core.verdicts import (
        Absent,
        Conflict,
        Effect,
        Found,
        Happened,
        InProgress,
        Undetermined,
        Verdict,
    )
    from evsrc.log.base import Guarantees, Log, Record
    from evsrc.log.memory import MemoryLog
    from evsrc.projections.reading import LogReader, open_log
    from evsrc.runtime.clock import Clock
    from evsrc.runtime.flow import Each, Flow
    from evsrc.runtime.mailbox import Answer
    from evsrc.runtime.observer import Moment, Observer
    from evsrc.runtime.outcome import Cancelled, Completed, Failed, Outcome, Suspended
    from evsrc.runtime.run import Run
    from evsrc.runtime.runtime import Handle, Runtime, open_runtime
    from evsrc.runtime.workflow import Workflow, workflow
    from evsrc.tools.call import Call, SecretRef, SweepEnd
    from evsrc.tools.tool import Tool, tool

__all__ = (
    "Absent",
    "Answer",
    "Call",
    "Cancelled",
    "Clock",
    "Completed",
    "Conflict",
    "Each",
    "Effect",
    "Failed",
    "Flow",
    "Found",
    "Guarantees",
    "Handle",
    "Happened",
    "InProgress",
    "Log",
    "LogReader",
    "MemoryLog",
    "Moment",
    "Observer",
    "Outcome",
    "Planned",
    "Record",
    "Retry",
    "Run",
    "RunState",
    "Runtime",
    "SecretRef",
    "Suspended",
    "SweepEnd",
    "Tool",
    "Undetermined",
    "Verdict",
    "Workflow",
    "evolve",
    "fold",
    "open_log",
    "open_runtime",
    "tool",
    "workflow",
)

_HOMES = {
    "Absent": "evsrc.core.verdicts",
    "Answer": "evsrc.runtime.mailbox",
    "Call": "evsrc.tools.call",
    "Cancelled": "evsrc.runtime.outcome",
    "Clock": "evsrc.runtime.clock",
    "Completed": "evsrc.runtime.outcome",
    "Conflict": "evsrc.core.verdicts",
    "Each": "evsrc.runtime.flow",
    "Effect": "evsrc.core.verdicts",
    "Failed": "evsrc.runtime.outcome",
    "Flow": "evsrc.runtime.flow",
    "Found": "evsrc.core.verdicts",
    "Guarantees": "evsrc.log.base",
    "Handle": "evsrc.runtime.runtime",
    "Happened": "evsrc.core.verdicts",
    "InProgress": "evsrc.core.verdicts",
    "Log": "evsrc.log.base",
    "LogReader": "evsrc.projections.reading",
    "MemoryLog": "evsrc.log.memory",
    "Moment": "evsrc.runtime.observer",
    "Observer": "evsrc.runtime.observer",
    "Outcome": "evsrc.runtime.outcome",
    "Planned": "evsrc.core.nodes",
    "Record": "evsrc.log.base",
    "Retry": "evsrc.core.nodes",
    "Run": "evsrc.runtime.run",
    "RunState": "evsrc.core.state",
    "Runtime": "evsrc.runtime.runtime",
    "SecretRef": "evsrc.tools.call",
    "Suspended": "evsrc.runtime.outcome",
    "SweepEnd": "evsrc.tools.call",
    "Tool": "evsrc.tools.tool",
    "Undetermined": "evsrc.core.verdicts",
    "Verdict": "evsrc.core.verdicts",
    "Workflow": "evsrc.runtime.workflow",
    "evolve": "evsrc.core.state",
    "fold": "evsrc.core.state",
    "open_log": "evsrc.projections.reading",
    "open_runtime": "evsrc.runtime.runtime",
    "tool": "evsrc.tools.tool",
    "workflow": "evsrc.runtime.workflow",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'evsrc' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
