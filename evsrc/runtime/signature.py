"""The signature of a step's or node's function: its name, its return annotation, how arguments bind.

Rule: a return annotation is required, since it decides how a recorded value is decoded.
Does not know: what the function does.
"""

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from evsrc.errors import DefinitionError


class Signature(msgspec.Struct, frozen=True):
    """`returns` is the resolved annotation; `blocking` functions run in a worker thread."""

    name: str
    returns: Any
    blocking: bool = False
    parameters: Any = None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name, defaults left out: a new optional parameter is no divergence."""
        bound = self.parameters.bind(*args, **kwargs).arguments
        defaults = {n: p.default for n, p in self.parameters.parameters.items()}
        return {n: v for n, v in bound.items() if not _is_default(v, defaults[n])}


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Resolved annotations. Raises DefinitionError naming the function and the remedy."""
    import typing

    try:
        return typing.get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{fn.__qualname__}: annotation {error.name!r} cannot be resolved; define the class at "
            "module level, or drop `from __future__ import annotations`"
        ) from error


def signature_of(fn: Callable[..., Any]) -> Signature:
    """The signature of `fn`. Not cached: a cache would keep every closure of a long run alive.

    Raises:
        DefinitionError: no return annotation, or an annotation that cannot be resolved.
    """
    import inspect

    name = getattr(fn, "__name__", type(fn).__name__)
    parameters = inspect.signature(fn)
    target = fn.func if isinstance(fn, functools.partial) else fn
    hints = hints_of(target)
    if "return" not in hints:
        raise DefinitionError(
            f"{name} has no return annotation, which decides how its value is decoded: annotate "
            "it; `-> Any` for plain data"
        )
    blocking = not inspect.iscoroutinefunction(target)
    return Signature(name, hints["return"], blocking, parameters)
