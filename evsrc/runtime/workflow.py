"""Workflows: plain async agent code under a run, without a graph.

Rule: one input, one result, both typed; the version is the code's digest unless declared.
Does not know: nodes. A flow is the other way to write a run (flow.py).
"""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from evsrc.core.codec import check_annotation
from evsrc.errors import DefinitionError
from evsrc.runtime.fingerprint import code_version
from evsrc.runtime.run import Run
from evsrc.runtime.signature import hints_of

I = TypeVar("I")  # noqa: E741  the input type, as in the published signatures
R = TypeVar("R")


class Workflow(Generic[I, R]):
    """A declared workflow. Run it with `runtime.run(workflow, input)`."""

    def __init__(
        self, fn: Callable[[Run, I], Awaitable[R]], name: str | None, version: str | None
    ) -> None:
        self.fn = fn
        self.name: str = name or str(getattr(fn, "__name__", ""))
        self._version = version
        self._types: tuple[Any, Any] | None = None

    @property
    def version(self) -> str:
        """The declared version, else the digest of the code. Recorded with every run.

        Raises:
            NoSource: neither declared nor any source to take a digest of.
        """
        if self._version is None:
            self._version = code_version(self.fn)
        return self._version

    @property
    def types(self) -> tuple[Any, Any]:
        """(input, result) annotations, resolved at first use.

        Raises:
            DefinitionError: not exactly (run, input), or annotations that cannot be recorded.
        """
        if self._types is None:
            import inspect

            hints = hints_of(self.fn)
            names = list(inspect.signature(self.fn).parameters)
            if len(names) != 2 or names[1] not in hints or "return" not in hints:
                raise DefinitionError(
                    f"workflow {self.name}: declare exactly (run: Run, input: T) -> R, annotated"
                )
            check_annotation(hints[names[1]], f"workflow {self.name}, input")
            check_annotation(hints["return"], f"workflow {self.name}, result")
            self._types = hints[names[1]], hints["return"]
        return self._types


class WorkflowDecorator(Protocol):
    """What `workflow(name=..., version=...)` returns."""

    def __call__(self, fn: Callable[[Run, I], Awaitable[R]], /) -> Workflow[I, R]:
        """Declare `fn`."""
        ...


@overload
def workflow(fn: Callable[[Run, I], Awaitable[R]], /) -> Workflow[I, R]: ...
@overload
def workflow(*, name: str | None = None, version: str | None = None) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Awaitable[Any]] | None = None,
    /,
    *,
    name: str | None = None,
    version: str | None = None,
) -> Any:
    """Declare an async function ``(run, input) -> result`` as a workflow.

    Args:
        name: what the log knows it by; the function's name if left out.
        version: declared version; the digest of the code if left out.

    Raises:
        DefinitionError: at first use, if the parameters or annotations do not fit.
    """

    def decorate(fn: Callable[..., Awaitable[Any]], /) -> Workflow[Any, Any]:
        return Workflow(fn, name, version)

    return decorate if fn is None else decorate(fn)
