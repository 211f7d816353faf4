"""Outcomes: how a run stands when its caller gets it back.

Rule: every outcome answers the same questions; a value is only given by a completed run.
Does not know: how the run got there.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar, cast, overload

from evsrc.core.events import ErrorData, QuestionAsked
from evsrc.errors import RunNotCompleted
from evsrc.runtime.flow import Each

R = TypeVar("R")
T = TypeVar("T")


class Outcome(Generic[R]):
    """How a run stands: `Completed`, `Failed`, `Cancelled` or `Suspended`.

    `outcome[node]` is that node's output, typed; `outcome.value` is a workflow's result, or all outputs
    of a flow by name. Both raise RunNotCompleted unless completed.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id

    @property
    def value(self) -> R:
        """The result. Raises RunNotCompleted unless the run completed."""
        raise RunNotCompleted(f"run {self.run_id!r} is {self.describe()}")

    def describe(self) -> str:
        """One line for people."""
        return type(self).__name__.lower()

    @overload
    def __getitem__(self, node: Each[Any, ..., T], /) -> list[T]: ...
    @overload
    def __getitem__(self, node: Callable[..., Awaitable[T]], /) -> T: ...
    @overload
    def __getitem__(self, node: Callable[..., T], /) -> T: ...
    def __getitem__(self, node: Any, /) -> Any:
        """The output of a node of the flow. Raises RunNotCompleted, or KeyError for a strange node."""
        outputs: Any = self.value
        name = node if isinstance(node, str) else getattr(node, "__name__", "")
        if not isinstance(outputs, Mapping):
            raise KeyError(f"{name}: run {self.run_id!r} is no run of a flow")
        return cast("Mapping[str, Any]", outputs)[name]

    def __repr__(self) -> str:
        return f"<run {self.run_id!r} {self.describe()}>"


class Completed(Outcome[R]):
    """The run is done; its value is final."""

    def __init__(self, run_id: str, value: R) -> None:
        super().__init__(run_id)
        self._value = value

    @property
    def value(self) -> R:
        """The result: the same object type on every replay."""
        return self._value


class Failed(Outcome[R]):
    """The run ended with a hard failure; every completed node stays durable."""

    def __init__(self, run_id: str, error: ErrorData, open_calls: tuple[str, ...]) -> None:
        super().__init__(run_id)
        self.error = error
        self.open_calls = open_calls

    def describe(self) -> str:
        """One line for people."""
        return f"failed: {self.error.type}: {self.error.message}"


class Cancelled(Outcome[R]):
    """The run was cancelled."""


class Suspended(Outcome[R]):
    """Nothing can go on before a human answers."""

    def __init__(self, run_id: str, questions: tuple[QuestionAsked, ...]) -> None:
        super().__init__(run_id)
        self.questions = questions

    def describe(self) -> str:
        """One line for people."""
        return f"suspended: {len(self.questions)} open question(s)"
