"""Source of functions and classes, in a normal form in which only what changes behaviour counts.

Rule: the whole file is parsed and the node found by name and first line: `inspect.getsource` is wrong
for lambdas and follows wrappers. The form is our own, since the text of `ast.dump` differs between
Python versions; 3.11, 3.12 and 3.13 give the same one.
Does not know: values, packages, digests (fingerprint.py).
Must change together: fingerprint.py; a changed form needs a new `FORMAT` there.
"""

import functools
import sys
import types
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from evsrc.errors import NoSource

if TYPE_CHECKING:
    import ast

FILES_MAX = 64
"""Parsed files kept while flows are built; a tree of 2,600 lines takes some 10 MB."""

Source: TypeAlias = tuple[str, tuple[tuple[str, ...], ...]]
"""The normal form of a function or class, and the dotted names that it loads."""


class _File:
    """One parsed file: its functions by name and first line, lambdas by line, classes by name."""

    def __init__(self, text: str) -> None:
        import ast

        self._sources: dict[int, Source] = {}
        self.functions: dict[tuple[str, int], list[ast.AST]] = {}
        self.classes: dict[str, list[ast.AST]] = {}
        stack: list[tuple[ast.AST, str]] = [(ast.parse(text), "")]
        while stack:
            node, scope = stack.pop()
            if isinstance(node, ast.Lambda):
                self.functions.setdefault(("<lambda>", node.lineno), []).append(node)
                scope += "<lambda>.<locals>."
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(scope + node.name, []).append(node)
                scope += f"{node.name}."
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                self.functions.setdefault((node.name, first), []).append(node)
                scope += f"{node.name}.<locals>."
            stack += [(child, scope) for child in ast.iter_child_nodes(node)]

    def source(self, node: "ast.AST") -> Source:
        """Computed once per node; the tree stays alive, so its id stays its own."""
        if id(node) not in self._sources:
            self._sources[id(node)] = _normal_form(node), _loaded_names(node)
        return self._sources[id(node)]


@functools.lru_cache(FILES_MAX)
def _file(text: str) -> _File:
    return _File(text)


def _read(filename: str, scope: dict[str, Any]) -> _File | None:
    import linecache

    try:
        text = "".join(linecache.getlines(filename, scope))
        with warnings.catch_warnings():
            # Said when the file was compiled; here, under -W error, it would be a syntax error.
            warnings.simplefilter("ignore")
            return _file(text) if text else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def function_source(fn: types.FunctionType) -> Source:
    code = fn.__code__
    file = _read(code.co_filename, fn.__globals__)
    found = file.functions.get((code.co_name, code.co_firstlineno), []) if file else []
    if file is not None and found:
        sources = [file.source(node) for node in found]
        if sources.count(sources[0]) == len(sources):
            return sources[0]
        chosen = _by_columns(found, code)
        if chosen is not None:
            return file.source(chosen)
    raise NoSource(
        f"no source for {fn.__qualname__} ({code.co_filename}:{code.co_firstlineno}): declare "
        "version=, and change it when the code changes"
    )


def _by_columns(found: "list[ast.AST]", code: types.CodeType) -> "ast.AST | None":
    """Of several lambdas on one line, the innermost whose body holds all of the code's positions."""
    spans = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line and end_line and column is not None and end_column is not None
    ]
    spans = [span for span in spans if span[0] < span[1]]  # the entry of a function has no width
    holding: list[tuple[Any, ast.AST]] = []
    for node in found:
        body: Any = getattr(node, "body", node)
        start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
        if spans and all(start <= span[0] and span[1] <= end for span in spans):
            holding.append((start, node))
    # Bodies that hold the same code lie inside one another: the last to start is the innermost.
    return max(holding, key=lambda body: body[0])[1] if holding else None


def class_sources(cls: type[Any]) -> list[Source]:
    """All classes of that name in its module: which of two branches was taken is not told apart."""
    module = sys.modules.get(cls.__module__)
    filename = getattr(module, "__file__", None)
    file = _read(filename, vars(module)) if filename else None
    return [file.source(node) for node in file.classes.get(cls.__qualname__, [])] if file else []


# ---- the normal form of a syntax tree -------------------------------------------------------------

_LAYOUT = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


def _normal_form(root: "ast.AST") -> str:
    """A tree as text, without what does not change behaviour: docstrings, and of the outermost
    function its name (its caller has it) and decorators (they show in what they return)."""
    import ast

    out: list[str] = []
    skipped = () if isinstance(root, ast.ClassDef) else ("name", "decorator_list")
    stack: list[Any] = [root]
    while stack:
        item = stack.pop()
        kind = type(cast("object", item))
        if isinstance(item, _Mark):
            out.append(item)
        elif isinstance(item, ast.AST):
            out.append(f"({type(item).__name__}")
            stack.append(_Mark(")"))
            for name, value in reversed(list(_counting_fields(item))):
                if not (item is root and name in skipped):
                    stack += (value, _Mark(f" {name}="))
        elif kind is list:
            out.append("[")
            stack += (_Mark("]"), *reversed(item))
        else:
            out.append(_constant(item))
    return "".join(out)


class _Mark(str):
    """Text of the form itself, told apart from a name in the tree."""


def _counting_fields(node: "ast.AST") -> "Iterator[tuple[str, Any]]":
    import ast

    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ):
            value = _without_docstring(value)
        elif isinstance(node, ast.JoinedStr):
            # Python 3.12.1 ends a nested format with an empty text, others do not.
            value = [v for v in value if not (isinstance(v, ast.Constant) and v.value == "")]
        empty = value == [] or (value is None and not isinstance(node, ast.Constant))
        # Fields that one version has and another has not are empty where nothing is written.
        if name not in _LAYOUT and not empty:
            yield name, value


def _without_docstring(body: "list[ast.stmt]") -> "list[ast.stmt]":
    import ast

    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        if isinstance(first.value.value, str):
            return body[1:] or [ast.Pass()]
    return body


def _constant(value: Any) -> str:
    # ascii, not repr: which characters are printable differs between Python versions.
    text = f"{value:x}" if type(value) is int else ascii(value)
    return f"{type(value).__name__}:{len(text)}:{text}"


def _loaded_names(root: "ast.AST") -> tuple[tuple[str, ...], ...]:
    """Names that the code reads, `a.b.c` as a whole, sorted; not those in a function's decorators."""
    import ast

    names: set[tuple[str, ...]] = set()
    decorators: list[ast.expr] = (
        [] if isinstance(root, ast.ClassDef) else getattr(root, "decorator_list", [])
    )
    stack = [child for child in ast.iter_child_nodes(root) if child not in decorators]
    while stack:
        node = stack.pop()
        dotted: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            dotted.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            if isinstance(inner.ctx, ast.Load):
                names.add((inner.id, *reversed(dotted)))
        else:
            stack += ast.iter_child_nodes(inner)
    return tuple(sorted(names))
