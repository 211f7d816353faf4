"""The `@tool` decorator, and the two things it makes: Tool and MethodTool.

Rule: what is not declared has its worst value. Decoration never runs the function, and a decorated
function never runs by being called: only a runtime sends.
Does not know: runs. The machinery behind a tool is `Tool.bound` (bound.py).

Two classes and not one: a method becomes a Tool when read from its adapter object. Neither carries
a type variable for `self`: type checkers would then refuse to let a subclass override a tool.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from evsrc.core.verdicts import (
    TIMEOUT_S_DEFAULT,
    Capabilities,
    Effect,
    Found,
    OnUnknown,
    Verdict,
)
from evsrc.errors import CallerError, DefinitionError
from evsrc.tools.bound import BoundTool
from evsrc.tools.call import Call, SweepEnd
from evsrc.tools.definition import Definition, Options, Role

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])

Swept: TypeAlias = AsyncIterator[Found | SweepEnd] | Iterable[Found | SweepEnd]
"""What a sweep returns: async, or from a blocking function that runs in a worker thread."""

Target: TypeAlias = (
    Callable[[], str]
    | Callable[[Any], str]
    | Callable[[Any, Any], str]
    | Callable[[Any, Any, Any], str]
)
"""From the arguments that it names, at most three, to one string. Not `Callable[..., str]`: the
parameters of a lambda would have no type then, and pyright strict refuses it."""


class Tool(Generic[P, R]):
    """A tool, ready for `run.call`: a decorated function, or a method read from its adapter object.

    Reading a method yields a new Tool each time: compare `name` and `instance`.
    """

    __slots__ = ("bound",)

    def __init__(self, bound: BoundTool) -> None:
        """Made by `@tool`, not by hand."""
        self.bound = bound
        """What the runtime calls; not for adapters."""

    @property
    def name(self) -> str:
        return self.bound.name

    @property
    def instance(self) -> str:
        """Which server, tenant or account: the adapter object's `instance`, "" for a function."""
        return self.bound.instance

    @property
    def capabilities(self) -> Capabilities:
        """What the tool declares."""
        return self.bound.capabilities

    @property
    def fn(self) -> Callable[..., Any]:
        """The plain function, or bound method: for unit tests of an adapter, and for `super()`."""
        fn = self.bound.definition.send.fn
        return fn if self.bound.owner is None else partial(fn, self.bound.owner)

    def missing(self) -> list[str]:
        """Declarations that would spare a human a question; empty if nothing is missing."""
        return self.bound.definition.missing()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Always raises CallerError: an effect outside a run would be recorded nowhere."""
        raise CallerError(
            f"tool {self.name!r} was called directly; inside a run: "
            f"await run.call({self.name}, ...); in a unit test: {self.name}.fn(call, ...)"
        )

    def probe(
        self, fn: Callable[Concatenate[Call, P], Awaitable[Verdict[R]] | Verdict[R]], /
    ) -> Callable[Concatenate[Call, P], Awaitable[Verdict[R]] | Verdict[R]]:
        """Decorator: the function that tells whether a call happened. Read-only; same parameters.

        Raises:
            DefinitionError: there is one already, its parameters differ, or this tool was read from
                an adapter object.
        """
        return self._add("probe", fn)

    def sweep(self, fn: Callable[[datetime], Swept], /) -> Callable[[datetime], Swept]:
        """Decorator: lists every effect since a time that carries a marker; ends with SweepEnd.

        Raises: DefinitionError, as `probe`.
        """
        return self._add("sweep", fn)

    def prepare(
        self, fn: Callable[Concatenate[Call, P], object], /
    ) -> Callable[Concatenate[Call, P], object]:
        """Decorator: looks before the intent is recorded; plain data, the later `call.prepared`.

        Raises: DefinitionError, as `probe`.
        """
        return self._add("prepare", fn)

    def undo(
        self, fn: Callable[[Call, R], Awaitable[None] | None], /
    ) -> Callable[[Call, R], Awaitable[None] | None]:
        """Decorator: takes an effect back, given its result.

        Raises: DefinitionError, as `probe`.
        """
        return self._add("undo", fn)

    def _add(self, role: Role, fn: F) -> F:
        if self.bound.owner is not None:
            raise DefinitionError(
                f"{role} of tool {self.name!r}: declare it in the class body, for all instances"
            )
        self.bound.definition.add(role, fn)
        return fn

    def __repr__(self) -> str:
        at = f" at {self.instance!r}" if self.instance else ""
        return f"<tool {self.name!r}{at}, {self.capabilities.effect.name}>"


class MethodTool(Generic[P, R]):
    """A tool in a class body; read from an adapter object it is a Tool.

    A tool that overrides another in a subclass inherits nothing of it, not even the probe.
    """

    __slots__ = ("definition",)

    def __init__(self, definition: Definition) -> None:
        """Made by `@tool`, not by hand."""
        self.definition = definition

    @overload
    def __get__(self, obj: None, owner: type, /) -> "MethodTool[P, R]": ...
    @overload
    def __get__(self, obj: object, owner: type | None = None, /) -> Tool[P, R]: ...
    def __get__(
        self, obj: object | None, owner: type | None = None, /
    ) -> "MethodTool[P, R] | Tool[P, R]":
        if obj is None:
            return self
        bound: Tool[P, R] = Tool(BoundTool(self.definition, obj))
        return bound

    def probe(
        self, fn: Callable[Concatenate[Any, Call, P], Awaitable[Verdict[R]] | Verdict[R]], /
    ) -> Callable[Concatenate[Any, Call, P], Awaitable[Verdict[R]] | Verdict[R]]:
        """As `Tool.probe`, for a method."""
        return self._add("probe", fn)

    def sweep(self, fn: Callable[[Any, datetime], Swept], /) -> Callable[[Any, datetime], Swept]:
        """As `Tool.sweep`, for a method."""
        return self._add("sweep", fn)

    def prepare(
        self, fn: Callable[Concatenate[Any, Call, P], object], /
    ) -> Callable[Concatenate[Any, Call, P], object]:
        """As `Tool.prepare`, for a method."""
        return self._add("prepare", fn)

    def undo(
        self, fn: Callable[[Any, Call, R], Awaitable[None] | None], /
    ) -> Callable[[Any, Call, R], Awaitable[None] | None]:
        """As `Tool.undo`, for a method."""
        return self._add("undo", fn)

    def _add(self, role: Role, fn: F) -> F:
        self.definition.add(role, fn)
        return fn

    def __repr__(self) -> str:
        return f"<method tool {self.definition.name!r}>"


class ToolDecorator(Protocol):
    """What `tool(...)` returns: async or blocking, function or method."""

    # mypy sees overlaps: an awaitable result is an R as well, and a Call an S. The order decides in
    # both checkers. One overload with `Awaitable[R] | R` is shorter; mypy solves R as Never then.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[Call, P], Awaitable[R]], /
    ) -> Tool[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[S, Call, P], Awaitable[R]], /
    ) -> MethodTool[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[Call, P], R], /
    ) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[S, Call, P], R], /) -> MethodTool[P, R]: ...


def tool(
    *,
    effect: Effect = Effect.BLIND,
    name: str | None = None,
    timeout_s: float = TIMEOUT_S_DEFAULT,
    window_s: float | None = None,
    lag_s: float | None = None,
    late_s: float | None = None,
    history: bool = False,
    resend_safe: bool = False,
    fence: bool = False,
    atomic: bool = False,
    asynchronous: bool = False,
    on_unknown: OnUnknown = "ask",
    attempts: int = 3,
    cost: float = 0.0,
    secret: tuple[str, ...] = (),
    volatile: tuple[str, ...] = (),
    target: Target | None = None,
    at_once: int | None = None,
) -> ToolDecorator:
    """Declare a function or a method of an adapter object as a tool. Durations in seconds.

    The function takes `call: Call` first, and every parameter and the result are annotated. Async
    functions run on the event loop, plain ones in a worker thread.

    effect: what the tool does to the world, see `Effect`. name: the function's name if left out.
    timeout_s: a send that has not answered by then is of unknown outcome.
    window_s: how long the tool remembers a key. None: not at all.
    lag_s: how long an effect may stay invisible to the probe. None: for ever.
    late_s: how long after the end of a send its request may still land. None: for ever.
    history: the probe still sees an effect that was closed, deleted or undone.
    resend_safe: setting the same state twice is harmless, also late.
    fence: the tool refuses a send whose prior state has changed. atomic: all of it or nothing.
    asynchronous: an answer means accepted; only the probe says done.
    on_unknown: what happens when nothing tells: "ask" a human, "resend", or "skip".
    attempts: how many times one call may be sent. cost: added up by the costs projection.
    secret: parameters that are secrets; they are `SecretRef`s. Any `SecretRef` parameter is one.
    volatile: parameters that do not make it another call; recorded, and not part of the key.
    target: for STATE only, from the arguments it names to one canonical string.
    at_once: how many sends of this tool may run at one time.

    Raises:
        DefinitionError: at decoration, if the declaration cannot work. Annotations that need
            resolving are checked when a runtime is given the tool.
    """
    capabilities = Capabilities(
        effect=effect,
        timeout_s=timeout_s,
        window_s=window_s,
        lag_s=lag_s,
        late_s=late_s,
        history=history,
        resend_safe=resend_safe,
        fence=fence,
        atomic=atomic,
        asynchronous=asynchronous,
        on_unknown=on_unknown,
        attempts=attempts,
        cost=cost,
    )
    options = Options(name=name, secret=secret, volatile=volatile, target=target, at_once=at_once)

    def decorate(fn: Callable[..., Any], /) -> Any:
        definition = Definition(fn, capabilities, options)
        if definition.method:
            return MethodTool[..., Any](definition)
        return Tool[..., Any](BoundTool(definition))

    return decorate
