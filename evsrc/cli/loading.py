"""Loading: the user's code by `module:attribute`, and inputs from JSON files.

Rule: what cannot be loaded is a usage error that names the file and the line. The user's own exceptions
at import are left alone: their traceback is what he needs.
Does not know: what is done with flows and inputs.

A module may hold two more names:

* ``tools``: an iterable of tools, or a function without parameters that gives one. Handed to the
  runtime, so that interrupted calls are settled at once.
* ``setup``: a function without parameters that gives an async context manager. It is entered before
  the attribute and `tools` are used, and left after the runtime is closed: the place for clients.
"""

import importlib
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeGuard

import msgspec

from evsrc.cli.statuses import UsageError
from evsrc.runtime.flow import Flow
from evsrc.runtime.workflow import Workflow
from evsrc.tools.tool import Tool

INPUT_BYTES_MAX = 64 * 1024 * 1024
"""Largest input file: a wrong path should not fill the memory."""

LINES_SUFFIXES = (".jsonl", ".ndjson")
SUFFIXES = (".json", *LINES_SUFFIXES)

Work: TypeAlias = Flow[Any] | Workflow[Any, Any]


# ---- code ------------------------------------------------------------------------------------------


class Loaded(msgspec.Struct, frozen=True):
    """What `module:attribute` gave: a flow or workflow (or neither, for tools), and its tools."""

    target: Any
    tools: list[Tool[..., Any]]

    def work(self, spec: str) -> Work:
        """The flow or workflow. Raises UsageError if it is something else."""
        if not _is_work(self.target):
            kind = type(self.target).__name__
            raise UsageError(f"{spec}: expected a Flow or a Workflow, found {kind}")
        return self.target


def _is_work(target: object) -> TypeGuard[Work]:
    return isinstance(target, Flow | Workflow)


@asynccontextmanager
async def loaded(spec: str) -> AsyncGenerator[Loaded, None]:
    """Import, enter `setup`, and resolve `spec`; leaves `setup` at the end.

    Raises: UsageError: the module or attribute is not there, or `tools` are none.
    """
    module, name = _module(spec)
    if not hasattr(module, name):
        raise UsageError(f"{spec}: module {module.__name__} has no attribute {name!r}")
    setup = getattr(module, "setup", None)
    if setup is None:
        yield _resolve(module, spec, name)
        return
    async with setup():
        yield _resolve(module, spec, name)


@asynccontextmanager
async def loaded_tools(spec: str) -> AsyncGenerator[list[Tool[..., Any]], None]:
    """The tools at `spec`, an empty list for an empty one; within the module's `setup`.

    Raises: UsageError, as `loaded`.
    """
    if not spec:
        yield []
        return
    async with loaded(spec) as found:
        yield _tools(found.target, spec)


def _module(spec: str) -> tuple[Any, str]:
    name, _, attribute = spec.partition(":")
    if not name or not attribute:
        raise UsageError(f"{spec!r}: expected module:attribute, as in playbooks.phishing:flow")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name), attribute
    except ModuleNotFoundError as error:
        # A module that *it* imports and that is missing is the user's own error.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(f"{spec!r}: no module {error.name!r} here or on the path") from None


def _resolve(module: Any, spec: str, name: str) -> Loaded:
    target = getattr(module, name)
    if callable(target) and not (_is_work(target) or isinstance(target, Tool)):
        target = target()
    return Loaded(target, _tools(getattr(module, "tools", []), f"{module.__name__}:tools"))


def _tools(found: Any, spec: str) -> list[Tool[..., Any]]:
    if isinstance(found, Tool):
        return [found]
    if callable(found):
        found = found()
    try:
        tools = list(found)
    except TypeError:
        raise UsageError(f"{spec}: expected tools, found {type(found).__name__}") from None
    for tool in tools:
        if not isinstance(tool, Tool):
            raise UsageError(f"{spec}: expected tools, found a {type(tool).__name__} among them")
    return tools


# ---- inputs ----------------------------------------------------------------------------------------


class Input(msgspec.Struct, frozen=True):
    """One input, and where it stands: file and line."""

    where: str
    value: Any


def load_inputs(path: str, kind: Any) -> list[Input]:
    """The inputs in a file, or in the *.json, *.jsonl and *.ndjson files of a folder, by name.

    A file holds one input, a JSON list of inputs, or one input a line.

    Raises: UsageError: nothing there, no JSON, or not of type `kind`; names file and line.
    """
    files = _files(path)
    inputs = [one for file in files for one in _load_file(file, kind)]
    if not inputs:
        raise UsageError(f"{path}: expected at least one input, found none")
    return inputs


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    found = sorted(name for name in os.listdir(path) if name.endswith(SUFFIXES))
    if not found:
        raise UsageError(
            f"{path}: expected files {', '.join('*' + s for s in SUFFIXES)}, found none"
        )
    return [os.path.join(path, name) for name in found]


def _load_file(path: str, kind: Any) -> Iterator[Input]:
    raw = _read(path)
    for offset, part in _parts(path, raw):
        number = raw.count(b"\n", 0, offset) + 1
        try:
            yield Input(f"{path}, line {number}", msgspec.json.decode(part, type=kind))
        except msgspec.ValidationError as error:
            name = getattr(kind, "__name__", kind)
            raise UsageError(f"{path}, line {number}: no {name}: {error}") from None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            raw = file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > INPUT_BYTES_MAX:
        raise UsageError(f"{path}: larger than {INPUT_BYTES_MAX} bytes; split it")
    return raw


def _parts(path: str, raw: bytes) -> list[tuple[int, bytes]]:
    """(offset, JSON) of each input. Whether a *.json holds lines is seen from its first line."""
    first = raw.lstrip().split(b"\n", 1)
    several = len(first) == 2 and bool(first[1].strip())
    if path.endswith(LINES_SUFFIXES) or (several and _fault(first[0]) is None):
        return _lines(path, raw)
    if (fault := _fault(raw)) is not None:
        raise UsageError(f"{path}, line {_line_of(raw, fault)}: no JSON: {fault}")
    if not raw.lstrip().startswith(b"["):
        return [(len(raw) - len(raw.lstrip()), raw)]
    found: list[tuple[int, bytes]] = []
    end = raw.index(b"[") + 1
    for item in msgspec.json.decode(raw, type=list[msgspec.Raw]):
        data = bytes(item)
        start = raw.index(data, end)  # between items stand only commas and blanks
        end = start + len(data)
        found.append((start, data))
    return found


def _lines(path: str, raw: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = 0
    for number, text in enumerate(raw.split(b"\n"), start=1):
        if text.strip():
            if (fault := _fault(text)) is not None:
                raise UsageError(f"{path}, line {number}: no JSON: {fault}")
            found.append((offset, text))
        offset += len(text) + 1
    return found


def _fault(raw: bytes) -> str | None:
    """Why this is no JSON, None if it is."""
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return None


def _line_of(raw: bytes, fault: str) -> int:
    """The line of a fault, from the byte that msgspec names; the last one if it names none."""
    _, _, rest = fault.rpartition("(byte ")
    digits = rest.rstrip(")")
    end = int(digits) if digits.isdigit() else len(raw)
    return raw.count(b"\n", 0, end) + 1
