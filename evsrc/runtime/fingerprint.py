"""Fingerprints: the version of a function's code, and the digest of a file.

Rule: what changes behaviour changes the version; comments, layout and docstrings do not, and Python
3.11, 3.12 and 3.13 give the same one. A value that is captured and has no stable form is refused, never
left out: two functions of one text must not share a checkpoint.
Does not know: keys, nodes, checkpoints.
Must change together: docs/reference/keys.md (what counts). A changed form needs a new `FORMAT`.

A version covers the function's syntax tree in a normal form (source.py), its closure and defaults, and
whatever of its own package it names: constants, functions, classes, and so on from there. Of other
packages only the name counts. Not bytecode: that differs between Python versions, with -O, and under a
test runner that rewrites asserts.
"""

import functools
import hashlib
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from evsrc.errors import DefinitionError, NoStableForm
from evsrc.runtime.source import class_sources, function_source

FORMAT = "evsrc-code-1"

DEPTH_MAX = 50
"""Deepest nesting of a constant. It also ends a list that contains itself."""

_SIMPLE = frozenset({type(None), bool, float, complex, str, bytes, bytearray, type(...), range})
_BY_REPR = frozenset(
    {"datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid", "zoneinfo"}
)
"""Standard modules whose values have a repr that says everything, the same on every Python."""

_REMEDY = "declare version=, or pass the value as a parameter"


def code_version(fn: Callable[..., Any], *, declared: str | None = None) -> str:
    """The version of a function's code, 64 hex digits: of the declared text, else of what it says.

    Its source is read at the first call for its file, so call it soon after the import; constants are
    read now.

    Raises:
        NoSource: there is no source (REPL, exec) and no declared version.
        NoStableForm: a captured value (closure, default, partial, `self`), or an object of its own
            package that it names, has no stable form; `path` says which.
    """
    if declared is not None:
        return _digest([FORMAT, "declared", declared])
    return _digest([FORMAT, *_Version(fn).forms()])


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, 64 hex digits, read in pieces.

    Raises:
        DefinitionError: there is no such file, or it cannot be read; names the path.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DefinitionError(
            f"file {os.fspath(path)!r} cannot be read: {error.strerror}; expected a file, by a path "
            f"relative to {os.getcwd()!r} or absolute"
        ) from error


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


# ---- what a version is made of --------------------------------------------------------------------


class _Version:
    """Functions and classes reached from one function, numbered in the order in which they are met.

    A reference is written as its number and followed later, from a list: recursion, mutual or not,
    and long chains of helpers need no care.
    """

    def __init__(self, root: Any) -> None:
        self._home = _package(getattr(_innermost(root), "__module__", None))
        self._met: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._root = root

    def forms(self) -> Iterator[str]:
        yield self._value(self._root, "callable", True)
        for met in self._met:  # grows on the way
            yield from self._class(met) if isinstance(met, type) else self._function(met)

    def _reference(self, target: Any) -> str:
        number = self._numbers.setdefault(id(target), len(self._met))
        if number == len(self._met):
            self._met.append(target)
        return f"#{number}"

    def _function(self, fn: types.FunctionType) -> Iterator[str]:
        code = fn.__code__
        own = self._is_home(fn.__globals__.get("__name__"))
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
            yield f"closure {name}={self._cell(cell, f'{fn.__qualname__}, closure {name}', own)}"
        if not own:
            # What another package's decorator made of a function of ours, which is in the closure.
            yield f"wrapper:{_package(fn.__globals__.get('__name__'))}:{code.co_qualname}"
            yield self._value(getattr(fn, "__wrapped__", None), fn.__qualname__, False)
            return
        form, names = function_source(fn)
        yield form
        where = f"{fn.__qualname__}, defaults"
        yield self._value(fn.__defaults__, where, True)
        yield self._value(fn.__kwdefaults__, where, True)
        local = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
        yield from self._globals(fn.__globals__, [n for n in names if n[0] not in local])

    def _cell(self, cell: types.CellType, where: str, captured: bool = True) -> str:
        try:
            value = cell.cell_contents
        except ValueError:
            return "unset"
        return self._value(value, where, captured)

    def _class(self, cls: type[Any]) -> Iterator[str]:
        module = sys.modules.get(cls.__module__)
        yield cls.__qualname__
        for base in cls.__bases__:
            yield self._value(base, cls.__qualname__, False)
        forms = class_sources(cls)
        for form, names in forms:
            yield form
            yield from self._globals(vars(module), names)
        if not forms:  # made by a call: namedtuple(), make_dataclass(), Enum("E", ...)
            fields = getattr(cls, "__members__", None) or _field_names(cls)
            yield self._value(fields, cls.__qualname__, False)
        if "<locals>" in cls.__qualname__:
            for name, member in vars(cls).items():
                member = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(member, types.FunctionType) and member.__closure__:
                    for cell in member.__closure__:
                        yield f"{name} {self._cell(cell, f'{cls.__qualname__}.{name}, closure')}"

    def _globals(self, scope: Mapping[str, Any], names: Iterable[tuple[str, ...]]) -> Iterator[str]:
        """Of a name like `module.helper` the helper counts, if the module is of our own package."""
        for name in names:
            if name[0] not in scope:
                continue
            value, path = scope[name[0]], name[0]
            for attribute in name[1:]:
                if not (isinstance(value, types.ModuleType) and self._is_home(value.__name__)):
                    break
                value, path = getattr(value, attribute, None), f"{path}.{attribute}"
            yield f"{path}={self._value(value, f'global {path}', False)}"

    def _is_home(self, module: object) -> bool:
        return _package(module) == self._home

    # ---- values -----------------------------------------------------------------------------------

    def _value(self, value: Any, where: str, captured: bool, depth: int = 0) -> str:
        """The form of a value. `captured`: it came in by closure, default, partial or `self`."""
        if depth > DEPTH_MAX:
            raise NoStableForm(where, f"is nested deeper than {DEPTH_MAX}; {_REMEDY}")
        cls: type[Any] = type(cast("object", value))
        if cls in _SIMPLE or cls.__module__.partition(".")[0] in _BY_REPR:
            return f"{cls.__name__}:{ascii(value)}"
        if cls is int:
            return f"int:{value:x}"

        def inner(part: Any, step: str = "") -> str:
            return self._value(part, where + step, captured, depth + 1)

        for form in (self._code, self._container, self._fields):
            found = form(value, cls, inner)
            if found is not None:
                return found
        return self._object(value, cls, where, captured)

    def _code(self, value: Any, cls: type[Any], inner: Callable[..., str]) -> str | None:
        """Functions, methods, partials, classes, modules."""
        if isinstance(value, types.FunctionType | type):
            modules = (value.__module__, getattr(value, "__globals__", {}).get("__name__"))
            if any(map(self._is_home, modules)):
                return self._reference(value)
            return f"{_package(value.__module__)}:{value.__qualname__}"
        if isinstance(value, types.ModuleType):
            return f"module:{value.__name__}"
        if isinstance(value, types.MethodType):
            return f"method({inner(value.__func__)},{inner(value.__self__, '.self')})"
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return f"partial({','.join(inner(part, '.partial') for part in parts)})"
        if isinstance(value, types.BuiltinFunctionType):
            bound = value.__self__
            owner = "" if isinstance(bound, types.ModuleType | None) else inner(bound, ".self")
            return f"builtin:{value.__module__}.{value.__qualname__}({owner})"
        return None

    def _container(self, value: Any, cls: type[Any], inner: Callable[..., str]) -> str | None:
        if issubclass(cls, list | tuple):
            parts = [inner(part, f"[{index}]") for index, part in enumerate(value)]
        elif issubclass(cls, set | frozenset):
            # Sorted twice: functions and classes are numbered in the order in which they are met.
            by_name = sorted(
                value, key=lambda part: getattr(part, "__qualname__", "") or ascii(part)
            )
            parts = sorted(inner(part) for part in by_name)
        elif issubclass(cls, dict | types.MappingProxyType):
            parts = sorted(f"{inner(key)}={inner(value[key], f'[{key!r}]')}" for key in value)
        else:
            return None
        name = self._reference(cls) if self._is_home(cls.__module__) else cls.__name__
        # Counted, so that no element can look like two.
        return f"{name}({len(parts)}:{','.join(f'{len(part)}:{part}' for part in parts)})"

    def _fields(self, value: Any, cls: type[Any], inner: Callable[..., str]) -> str | None:
        """Objects that are what their fields say: Enums, Structs, dataclasses; typing's aliases."""
        import enum
        import re
        import typing

        if isinstance(value, enum.Enum):
            return f"{inner(cls)}.{value.name}={inner(value.value)}"
        if isinstance(value, re.Pattern):
            return f"re({inner(cast('Any', value).pattern)},{value.flags})"
        origin = typing.get_origin(value)
        if origin is not None:
            return f"alias({inner(origin)},{inner(typing.get_args(value))})"
        if cls.__module__ == "typing":
            return f"typing:{getattr(value, '__name__', None) or repr(value)}"
        names = _field_names(cls)
        if names is None:
            return None
        parts = [f"{name}={inner(getattr(value, name, None), f'.{name}')}" for name in names]
        return f"{inner(cls)}({','.join(f'{len(part)}:{part}' for part in parts)})"

    def _object(self, value: Any, cls: type[Any], where: str, captured: bool) -> str:
        if cls is object:
            return "sentinel"  # says nothing but that it is itself
        base: Any = next((b for b in (str, bytes, int, float) if issubclass(cls, b)), None)
        if base is not None:
            return f"{self._value(cls, where, captured)}:{ascii(base.__repr__(value))}"
        wrapped = getattr(value, "__wrapped__", None)
        if callable(wrapped):  # a cache, an each-node, any decorator's object
            return f"{cls.__qualname__}({self._value(wrapped, where, captured)})"
        if _package(cls.__module__) == "evsrc":
            # Tools, flows, workflows: what a tool does is in the records of its calls.
            return f"{cls.__qualname__}:{_name(value, 'name')}@{_name(value, 'instance')}"
        if not captured and not self._is_home(cls.__module__):
            # A logger, a client, a lock of another package, named as a global: its class counts.
            return f"object:{_package(cls.__module__)}:{cls.__qualname__}"
        raise NoStableForm(where, f"a {cls.__qualname__} has no stable form; {_REMEDY}")


def _innermost(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _package(module: object) -> str:
    """What counts as one package: the top level; our own demo is none with the library it uses."""
    first, _, rest = module.partition(".") if isinstance(module, str) else ("", "", "")
    return "evsrc.demo" if first == "evsrc" and rest.startswith("demo") else first


def _name(value: Any, attribute: str) -> str:
    found = getattr(value, attribute, "")
    return found if isinstance(found, str) else ""


def _field_names(cls: Any) -> tuple[str, ...] | None:
    for attribute in ("__struct_fields__", "__dataclass_fields__", "_fields"):
        if hasattr(cls, attribute):
            return tuple(getattr(cls, attribute))
    return None
