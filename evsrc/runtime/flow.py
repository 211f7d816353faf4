"""Flow: a graph of nodes, declared by decorators; edges are parameter names, as in pytest's fixtures.

Rule: a decorated node is the plain function it was, so that tests call it. What cannot work is refused
when the flow is first built, before anything runs, naming node, parameter and remedy.
Does not know: runs or logs; flow_execution.py runs a built flow.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

import msgspec

from evsrc.core.codec import check_annotation
from evsrc.core.graph import Graph, build_graph
from evsrc.core.keys import bytes_digest
from evsrc.core.nodes import Retry
from evsrc.errors import DefinitionError, GraphError
from evsrc.runtime.fingerprint import code_version
from evsrc.runtime.run import Run
from evsrc.runtime.signature import hints_of

I = TypeVar("I")  # noqa: E741  the input type, as in the published signatures
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

NODES_MAX = 100_000
"""Nodes of one flow: far above any playbook, so that a generated graph fails here and not in memory."""

AT_ONCE_DEFAULT = 16
"""How many nodes and items run at once unless the flow says otherwise."""

Schedule: TypeAlias = Literal["waves", "ready"]
Needs: TypeAlias = Sequence["str | Callable[..., Any] | Each[Any, Any, Any]"]


class Each(Generic[T, P, R]):
    """A node that runs once per item, each with its own key and attempts; downstream sees `list[R]`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.__wrapped__ = fn

    def __call__(self, item: T, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Call the plain function for one item."""
        result: Awaitable[R] = self.fn(item, *args, **kwargs)
        return result


class NodeDecorator(Protocol):
    """What `flow.node(...)` returns: it gives the function back unchanged."""

    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R]:
        """Declare `fn` as a node."""
        ...


class Declared(msgspec.Struct, frozen=True):
    """One node as declared."""

    name: str
    fn: Callable[..., Any]
    needs: tuple[str, ...]
    params: dict[str, Any]
    reads: tuple[str, ...]
    retry: Retry
    version: str | None
    cost: float
    source: str = ""
    """The node whose items this one runs for, empty for a plain node."""
    item_key: Callable[[Any], str] | None = None


class Node(msgspec.Struct, frozen=True):
    """One node as built: where each parameter comes from, and how its output is recorded."""

    declared: Declared
    edges: dict[str, str]
    """Parameter -> upstream node."""
    input_parameters: tuple[str, ...]
    run_parameters: tuple[str, ...]
    item_parameter: str
    returns: Any
    item_type: Any
    blocking: bool
    code: str

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def is_each(self) -> bool:
        """Does it run once per item?"""
        return bool(self.declared.source)


class BuiltFlow(msgspec.Struct, frozen=True):
    """A flow that can run: its graph, and its nodes by name."""

    graph: Graph
    nodes: dict[str, Node]

    @property
    def version(self) -> str:
        """Digest of the nodes' names and code versions. Recorded with every run."""
        codes = "".join(f"{name}={node.code};" for name, node in self.nodes.items())
        return bytes_digest(codes.encode())[:12]


class Flow(Generic[I]):
    """A named graph of nodes over one input.

    Args:
        name: what the log knows it by.
        input: the input's type; a parameter annotated with it gets the input.
        run_id: the run's id from the input; otherwise a digest of name and input.
        schedule: "waves" starts wave after wave; "ready" a node as soon as its needs are met.
        at_once: how many nodes and items may run at one time.
        reuse: "run" finds checkpoints of the same run, "log" those of every run of the log.
    """

    def __init__(
        self,
        name: str,
        *,
        input: type[I],
        run_id: Callable[[I], str] | None = None,
        schedule: Schedule = "waves",
        at_once: int = AT_ONCE_DEFAULT,
        reuse: Literal["run", "log"] = "run",
    ) -> None:
        if at_once < 1:
            raise DefinitionError(f"flow {name}: at_once is {at_once}, at least 1")
        self.name = name
        self.input = input
        self.run_id = run_id
        self.schedule: Schedule = schedule
        self.at_once = at_once
        self.reuse = reuse
        self._declared: list[Declared] = []
        self._built: BuiltFlow | None = None

    @overload
    def node(self, fn: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def node(
        self,
        *,
        needs: Needs = (),
        reads: Sequence[str | os.PathLike[str]] = (),
        params: Mapping[str, Any] | None = None,
        version: str | None = None,
        retry: Retry | None = None,
        cost: float = 0.0,
    ) -> NodeDecorator: ...
    def node(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        needs: Needs = (),
        reads: Sequence[str | os.PathLike[str]] = (),
        params: Mapping[str, Any] | None = None,
        version: str | None = None,
        retry: Retry | None = None,
        cost: float = 0.0,
    ) -> Any:
        """Declare a node: an async function, or a plain one that runs in a worker thread.

        Args:
            needs: nodes that must be done first although no parameter names them.
            reads: files that it reads; their digests are part of its key.
            params: constants for parameters; part of its key.
            version: declared version of its code, instead of a digest of the code.
            retry: how often it may run.
            cost: what one execution costs, added up by the costs projection.

        Raises:
            GraphError: the name is used twice.
        """

        def decorate(fn: Callable[..., Any], /) -> Callable[..., Any]:
            self._declare(fn, needs, reads, params, version, retry, cost)
            return fn

        return decorate if fn is None else decorate(fn)

    @overload
    def each(
        self,
        source: "Each[Any, ..., T]",
        /,
        *,
        key: Callable[[T], str],
        needs: Needs = (),
        reads: Sequence[str | os.PathLike[str]] = (),
        params: Mapping[str, Any] | None = None,
        version: str | None = None,
        retry: Retry | None = None,
        cost: float = 0.0,
    ) -> Callable[[Callable[Concatenate[T, P], Awaitable[R]]], Each[T, P, R]]: ...
    @overload
    def each(
        self,
        source: Callable[..., Awaitable[Sequence[T]]],
        /,
        *,
        key: Callable[[T], str],
        needs: Needs = (),
        reads: Sequence[str | os.PathLike[str]] = (),
        params: Mapping[str, Any] | None = None,
        version: str | None = None,
        retry: Retry | None = None,
        cost: float = 0.0,
    ) -> Callable[[Callable[Concatenate[T, P], Awaitable[R]]], Each[T, P, R]]: ...
    def each(
        self,
        source: Any,
        /,
        *,
        key: Callable[[Any], str],
        needs: Needs = (),
        reads: Sequence[str | os.PathLike[str]] = (),
        params: Mapping[str, Any] | None = None,
        version: str | None = None,
        retry: Retry | None = None,
        cost: float = 0.0,
    ) -> Any:
        """Declare a node that runs once per item of `source`; its first parameter is the item.

        Args:
            key: names an item; unique among the items, at most 200 bytes.
            needs, reads, params, version, retry, cost: as for `node`.

        Raises:
            GraphError: the name is used twice.
        """

        def decorate(fn: Callable[..., Any], /) -> Each[Any, Any, Any]:
            self._declare(fn, needs, reads, params, version, retry, cost, source, key)
            return Each[Any, Any, Any](fn)

        return decorate

    def _declare(
        self,
        fn: Callable[..., Any],
        needs: Needs,
        reads: Sequence[str | os.PathLike[str]],
        params: Mapping[str, Any] | None,
        version: str | None,
        retry: Retry | None,
        cost: float,
        source: Any = None,
        key: Callable[[Any], str] | None = None,
    ) -> None:
        name = fn.__name__
        if any(d.name == name for d in self._declared):
            raise GraphError(f"flow {self.name}: two nodes are called {name}; rename one")
        if len(self._declared) >= NODES_MAX:
            raise GraphError(f"flow {self.name}: more than {NODES_MAX} nodes")
        self._built = None
        self._declared.append(
            Declared(
                name,
                fn,
                tuple(_name_of(n) for n in needs),
                dict(params or {}),
                tuple(os.fspath(path) for path in reads),
                retry or Retry(),
                version,
                cost,
                "" if source is None else _name_of(source),
                key,
            )
        )

    def build(self) -> BuiltFlow:
        """Check everything and return what can run. Cached until the next declaration.

        Raises:
            GraphError, CycleError: the nodes do not form a graph.
            DefinitionError: a parameter comes from nowhere, a type does not fit its edge, or an
                annotation cannot be recorded.
            NoSource: a node has neither source nor `version=`.
        """
        if self._built is None:
            self._built = _build(self)
        return self._built

    @property
    def declared(self) -> tuple[Declared, ...]:
        """The nodes in the order of their declaration."""
        return tuple(self._declared)


def _name_of(node: Any) -> str:
    return node if isinstance(node, str) else str(node.__name__)


def _build(flow: Flow[Any]) -> BuiltFlow:
    names = {d.name for d in flow.declared}
    check_annotation(flow.input, f"flow {flow.name}, input")
    nodes = [_node(flow, d, names) for d in flow.declared]
    graph = build_graph(
        [
            (
                n.name,
                list(
                    dict.fromkeys(
                        [
                            *([n.declared.source] if n.is_each else []),
                            *n.edges.values(),
                            *n.declared.needs,
                        ]
                    )
                ),
            )
            for n in nodes
        ]
    )
    by_name = {n.name: n for n in nodes}
    for node in nodes:
        _check_edges(flow, node, by_name)
    return BuiltFlow(graph, by_name)


def _node(flow: Flow[Any], declared: Declared, names: set[str]) -> Node:
    import inspect

    where = f"flow {flow.name}, node {declared.name}"
    hints = hints_of(declared.fn)
    if "return" not in hints:
        raise DefinitionError(f"{where}: no return annotation; `-> Any` for plain data")
    check_annotation(hints["return"], f"{where}, return value")
    parameters = list(inspect.signature(declared.fn).parameters.values())
    item = parameters.pop(0).name if declared.source and parameters else ""
    if declared.source and not item:
        raise DefinitionError(f"{where}: the first parameter of an each-node is the item")
    edges: dict[str, str] = {}
    inputs: list[str] = []
    runs: list[str] = []
    for parameter in parameters:
        hint = hints.get(parameter.name)
        if parameter.name in declared.params:
            continue
        if parameter.name in names:
            edges[parameter.name] = parameter.name
        elif hint is Run:
            runs.append(parameter.name)
        elif hint is not None and hint == flow.input:
            inputs.append(parameter.name)
        elif parameter.default is parameter.empty:
            raise DefinitionError(
                f"{where}: parameter {parameter.name!r} is no node, not the input "
                f"({getattr(flow.input, '__name__', flow.input)}), not the run, and not in params="
            )
    blocking = not inspect.iscoroutinefunction(declared.fn)
    if blocking and runs:
        raise DefinitionError(f"{where}: a blocking node cannot await run.call; make it async")
    return Node(
        declared,
        edges,
        tuple(inputs),
        tuple(runs),
        item,
        hints["return"],
        hints.get(item, Any) if item else None,
        blocking,
        code_version(declared.fn, declared=declared.version),
    )


def _check_edges(flow: Flow[Any], node: Node, nodes: dict[str, Node]) -> None:
    """Compare what an edge gives with what its parameter takes; equal, Any, or a member of a union."""
    import typing

    hints = hints_of(node.declared.fn)
    for parameter, upstream in node.edges.items():
        given = nodes[upstream].returns
        if nodes[upstream].is_each:
            given = list[given]
        taken = hints.get(parameter, Any)
        if given == taken or Any in (given, taken) or given in typing.get_args(taken):
            continue
        if typing.get_origin(given) is not None or typing.get_origin(taken) is not None:
            if _same_shape(given, taken):
                continue
        raise DefinitionError(
            f"flow {flow.name}, node {node.name}: parameter {parameter!r} takes {taken!r}, node "
            f"{upstream!r} gives {given!r}"
        )


def _same_shape(given: Any, taken: Any) -> bool:
    import typing
    from collections.abc import Iterable, Sequence

    if typing.get_args(given) != typing.get_args(taken):
        return False
    return typing.get_origin(taken) in (typing.get_origin(given), Sequence, Iterable)
