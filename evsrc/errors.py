"""Every error of evsrc, split by who must act.

Rule: one base class, four children, and under them one class per situation; each says in one sentence
when it is raised. The message carries the numbers needed to act.
Does not know: how an error is logged, shown or mapped to an exit status.
"""


class EvsrcError(Exception):
    """Base of every error that evsrc raises on purpose."""


# ---- the caller must act: the code or the arguments are wrong ----------------------------------


class CallerError(EvsrcError):
    """The code that uses evsrc must change; nothing was sent."""


class DefinitionError(CallerError):
    """Raised when a tool, a flow or a workflow is declared in a way that cannot work."""


class GraphError(DefinitionError):
    """Raised when nodes do not form a graph: a cycle, an unknown node, a name used twice."""


class CycleError(GraphError):
    """Raised when nodes need each other in a circle; `path` names it, first node repeated at the end."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        super().__init__(f"the nodes need each other in a circle: {' -> '.join(path)}")


class NoStableForm(CallerError, TypeError):
    """Raised when a value has no canonical form; `path` says where inside the value it stands."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


class NoSource(CallerError, LookupError):
    """Raised when a function's source cannot be found and no `version=` was declared."""


class UnusableValue(CallerError, TypeError):
    """Raised when a value would not survive encoding and decoding with its type; `path` says where."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


class LimitExceeded(CallerError, ValueError):
    """Raised when a named limit is passed; the message names the field, the limit and what was found."""


class DivergenceError(CallerError):
    """Raised when the code asks for something else than the run recorded; nothing was sent."""


class AmbiguousCall(CallerError):
    """Raised when two unlabelled calls of one tool in one scope could not be told apart on replay."""


class KeyReuseError(CallerError):
    """Raised when a caller's own key, or a label, is used again for something else."""


class InputMismatch(CallerError):
    """Raised when a run id is started again with another input or another workflow."""


class RunStopped(CallerError):
    """Raised in code of a run that is suspended, cancelled or closed and still asks; nothing was sent."""


class Closed(CallerError):
    """Raised when a log or a runtime is used after it was closed, or in a forked child."""


class PositionConflict(CallerError):
    """Raised when a stream is not at the version that an append expected; nothing was written."""


# ---- the operator must act: the log, the disk, another process ---------------------------------


class OperatorError(EvsrcError):
    """The place where the log lives needs attention."""


class LogLocked(OperatorError):
    """Raised when another holder has the log open for writing; the message names the holder."""


class LogFull(OperatorError):
    """Raised when there is no room for a record that is not essential; nothing was written."""


class LogPoisoned(OperatorError):
    """Raised after any failed write or sync: this handle never writes again; open the log anew."""


class LogCorrupt(OperatorError):
    """Raised when acknowledged data is damaged or missing; names segment, offset and sequence number."""

    def __init__(
        self, reason: str, *, segment: str = "", offset: int = -1, sequence: int = -1
    ) -> None:
        self.reason = reason
        self.segment = segment
        self.offset = offset
        self.sequence = sequence
        where = f" (segment {segment}, offset {offset}, sequence {sequence})" if segment else ""
        super().__init__(f"{reason}{where}")


class UnknownEvent(OperatorError):
    """Raised when a record holds an event tag that this version does not know; only its run stops."""


# ---- the tool, or whoever runs it, must act ----------------------------------------------------


class ToolError(EvsrcError):
    """What a tool answered, or that it did not."""


class Transient(ToolError):
    """Raised by nodes and steps to say: the same thing may work later."""


class ReadChanged(Transient):
    """Raised when a file that a node reads changed while the node ran: it is tried again."""


class NotSent(ToolError):
    """Raised by `send` when no byte of the request left: it may be sent again."""


class Rejected(ToolError):
    """Raised by `send` when the tool refused and nothing happened; `run.call` raises it as recorded."""


class AlreadyThere(ToolError):
    """Raised by `send` when the object exists already: unknown whose it is, so the tool is probed."""

    def __init__(self, ref: str = "", message: str = "") -> None:
        self.ref = ref
        super().__init__(message or f"already there: {ref}")


class Throttled(ToolError):
    """Raised by `send` when the tool refused for now: not sent, may be sent after `retry_after_s`."""

    def __init__(self, retry_after_s: float = 1.0, message: str = "") -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message or f"throttled, retry after {retry_after_s} s")


class OutcomeSkipped(ToolError):
    """Raised by `run.call` when an unknown outcome was skipped, by policy or by a person."""


class ResultUnusable(ToolError):
    """Raised by `run.call` when the effect happened and its result cannot be recorded."""


class StaleIntent(ToolError):
    """Raised by `run.call` when the call is older than its `not_after`: it was not sent."""


class RunNotCompleted(ToolError):
    """Raised when the value of a run is asked for that did not complete."""


class StepFailed(ToolError):
    """Raised by `run.step` with a recorded failure, the same on the first run and on every replay.

    `type_name` and `message` are those of the error raised by the step's function.
    """

    def __init__(self, type_name: str, message: str, transient: bool = False) -> None:
        self.type_name = type_name
        self.message = message
        self.transient = transient
        super().__init__(f"{type_name}: {message}")


# ---- our own bug -------------------------------------------------------------------------------


class InternalError(EvsrcError):
    """A rule of evsrc itself is broken. Please report it with the run's `evsrc export --jsonl`."""
