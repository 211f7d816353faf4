"""BoundTool: one declared tool on one adapter object, as the runtime uses it.

Rule: this room calls the adapter's functions and interprets nothing: an exception of `send` leaves
as it came. The only one that it adds is NotSent, where provably nothing was sent.
Does not know: attempts, time-outs, when to look, what an answer means (core/decide.py, runtime/).
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, TypeGuard

import anyio
import anyio.to_thread

from evsrc.core.verdicts import (
    Absent,
    AnyVerdict,
    Capabilities,
    Conflict,
    Found,
    Happened,
    InProgress,
    Undetermined,
)
from evsrc.errors import DefinitionError, LimitExceeded, NotSent
from evsrc.tools.binding import Bound, bind, unbind
from evsrc.tools.call import Call, SecretRef, SweepEnd
from evsrc.tools.definition import Definition, Handler, Role

INSTANCE_BYTES_MAX = 100
"""An instance names a server, tenant or account; it stands in every key of its tools."""

SWEEP_FOUND_MAX = 100_000
"""A blocking sweep is collected in its thread before it is handed on; longer ones count as cut."""


class BoundTool:
    """What the runtime needs of a tool: `name` and `instance` identify it, never `is`."""

    __slots__ = ("definition", "instance", "name", "owner")

    def __init__(self, definition: Definition, owner: object | None = None) -> None:
        """`owner` is the adapter object of a method, None for a function.

        Raises:
            DefinitionError: the owner's `instance` is not a string.
            LimitExceeded: it is longer than `INSTANCE_BYTES_MAX`.
        """
        self.definition = definition
        self.owner = owner
        self.name = definition.name
        self.instance = _instance(definition, owner)

    @property
    def capabilities(self) -> Capabilities:
        """What is declared, with `can_probe` and `can_sweep` as they are."""
        return self.definition.capabilities

    @property
    def blocking(self) -> bool:
        """Does `send` run in a worker thread? If so, an attempt ends when its thread returns."""
        return self.definition.send.blocking

    @property
    def at_once(self) -> int | None:
        """How many sends may run at one time; None: as many as the runtime allows."""
        return self.definition.options.at_once

    @property
    def can_prepare(self) -> bool:
        """Is there a `prepare`, to be called before the intent is recorded?"""
        return "prepare" in self.definition.handlers

    @property
    def can_undo(self) -> bool:
        return "undo" in self.definition.handlers

    @property
    def return_annotation(self) -> Any:
        """Type of the result, resolved; NoneType for None. Raises DefinitionError as `check`."""
        return self.definition.types.returns

    def check(self) -> None:
        """Resolve all annotations now. Raises DefinitionError as `Definition.types`."""
        _ = self.definition.types

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """The arguments of a call; see `evsrc.tools.binding.bind` for what is raised."""
        return bind(self.definition, args, kwargs)

    def unbind(self, data: bytes) -> dict[str, Any]:
        """Recorded arguments, decoded; see `evsrc.tools.binding.unbind` for what is raised."""
        return unbind(self.definition, data)

    async def send(
        self, call: Call, arguments: Mapping[str, Any], limiter: anyio.CapacityLimiter | None = None
    ) -> Any:
        """Call the tool. Blocking ones run in a thread under `limiter`; cancelling waits for it.

        Raises:
            NotSent: a secret among the arguments cannot be found; the tool was not entered.
            Exception: whatever the tool raised, unchanged.
        """
        for value in arguments.values():
            if isinstance(value, SecretRef):
                _look_up(call, value)
        return await self._invoke(self.definition.send, call, arguments, limiter)

    async def probe(
        self, call: Call, arguments: Mapping[str, Any], limiter: anyio.CapacityLimiter | None = None
    ) -> AnyVerdict:
        """Ask whether the call happened. Without a probe, or without a verdict: Undetermined.

        Raises:
            Exception: whatever the probe raised, unchanged; it says nothing about the call.
        """
        handler = self.definition.handlers.get("probe")
        if handler is None:
            return Undetermined(f"tool {self.name!r} declares no probe")
        verdict: object = await self._invoke(handler, call, arguments, limiter)
        if _is_verdict(verdict):
            return verdict
        return Undetermined(f"the probe returned {type(verdict).__name__}, which is no verdict")

    async def prepare(
        self, call: Call, arguments: Mapping[str, Any], limiter: anyio.CapacityLimiter | None = None
    ) -> Any:
        """What the adapter wants recorded inside the intent; None without a `prepare`.

        Raises:
            Exception: whatever it raised, unchanged. Nothing was sent.
        """
        handler = self.definition.handlers.get("prepare")
        if handler is None:
            return None
        return await self._invoke(handler, call, arguments, limiter)

    async def undo(
        self, call: Call, result: Any, limiter: anyio.CapacityLimiter | None = None
    ) -> None:
        """Take an effect back. `call` is the undo's own call, with its own key.

        Raises:
            DefinitionError: the tool declares no undo.
            Exception: whatever it raised, unchanged.
        """
        handler = self._handler("undo")
        await _run(handler, (*self._leading(), call, result), {}, limiter)

    async def sweep(
        self, since: datetime, limiter: anyio.CapacityLimiter | None = None
    ) -> AsyncGenerator[Found | SweepEnd, None]:
        """Every effect since then that carries a marker; the last item is always a SweepEnd.

        Use under `contextlib.aclosing` if you may stop early.

        Raises:
            DefinitionError: the tool declares no sweep, or it yields something else.
            Exception: whatever it raised, unchanged.
        """
        handler = self._handler("sweep")
        if handler.blocking:
            items = _in_memory(await self._collect(handler, since, limiter))
        else:
            items = handler.fn(*self._leading(), since)
        try:
            async for item in items:
                if not isinstance(item, Found | SweepEnd):
                    raise DefinitionError(
                        f"sweep of tool {self.name!r} yielded {type(item).__name__}; "
                        f"expected Found, then SweepEnd"
                    )
                yield item
                if isinstance(item, SweepEnd):
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()
        yield SweepEnd(complete=False, evidence="the sweep did not say whether it was complete")

    def _handler(self, role: Role) -> Handler:
        handler = self.definition.handlers.get(role)
        if handler is None:
            raise DefinitionError(f"tool {self.name!r} declares no {role}")
        return handler

    def _leading(self) -> tuple[object, ...]:
        return (self.owner,) if self.definition.method else ()

    async def _invoke(
        self,
        handler: Handler,
        call: Call,
        arguments: Mapping[str, Any],
        limiter: anyio.CapacityLimiter | None,
    ) -> Any:
        named = dict(arguments)
        positional = [
            named.pop(parameter.name)
            for parameter in self.definition.signature.parameters.values()
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        return await _run(handler, (*self._leading(), call, *positional), named, limiter)

    async def _collect(
        self, handler: Handler, since: datetime, limiter: anyio.CapacityLimiter | None
    ) -> list[Any]:
        def collect() -> list[Any]:
            # In one thread from start to end: handles of many clients refuse to change threads.
            items: Iterable[Any] = handler.fn(*self._leading(), since)
            return list(islice(items, SWEEP_FOUND_MAX))

        return await anyio.to_thread.run_sync(collect, limiter=limiter)


async def _run(
    handler: Handler,
    args: tuple[object, ...],
    kwargs: dict[str, Any],
    limiter: anyio.CapacityLimiter | None,
) -> Any:
    if not handler.blocking:
        return await handler.fn(*args, **kwargs)
    # In a tuple: trio refuses a bare coroutine that comes out of a thread.
    (result,) = await anyio.to_thread.run_sync(
        lambda: (handler.fn(*args, **kwargs),), limiter=limiter
    )
    import inspect

    # A plain function may hand back a coroutine (a decorator round an async one).
    return await result if inspect.isawaitable(result) else result


def _is_verdict(value: object) -> TypeGuard[AnyVerdict]:
    return isinstance(value, Happened | Absent | InProgress | Undetermined | Conflict)


async def _in_memory(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def _look_up(call: Call, ref: SecretRef) -> None:
    try:
        call.secrets.value(ref.name)
    except LookupError as error:
        raise NotSent(f"secret {ref.name!r}: {error}") from error


def _instance(definition: Definition, owner: object | None) -> str:
    if owner is None:
        return ""
    instance: object = getattr(owner, "instance", "")
    where = f"{type(owner).__name__}.instance of tool {definition.name!r}"
    if not isinstance(instance, str):
        raise DefinitionError(f"{where}: expected a string, found {type(instance).__name__}")
    size = len(instance.encode())
    if size > INSTANCE_BYTES_MAX:
        raise LimitExceeded(f"{where}: {size} bytes; at most {INSTANCE_BYTES_MAX}")
    return instance
