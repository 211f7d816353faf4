"""evsrc: idempotent tool calls and resumable workflows on one checksummed event log.

Each external call is attempted under a recorded intent; an interrupted one is settled by asking the
tool; where the tool cannot tell, a human is asked.

This file is the face: imports and names, no logic. Errors live in `evsrc.errors`, events in
`evsrc.events`, test tools in `evsrc.testing`.
"""

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
