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

from evsrc.core.graph import Graph
from evsrc.core.keys import bytes_digest
from evsrc.core.nodes import Planned, Retry
from evsrc.errors import DefinitionError, GraphError

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
    blocking: bool
    code: str
    params_digest: str

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
        self._declared: dict[str, Declared] = {}
        self._built: BuiltFlow | None = None

    @overload
    def node(self, fn: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def node(
        self,
        /,
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
            DefinitionError: a callable without a name (a lambda, a partial).
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

        Raises: GraphError, DefinitionError, as `node`.
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
        name = getattr(fn, "__name__", "")
        if not name.isidentifier():
            raise DefinitionError(
                f"flow {self.name}: {fn!r} has no name that a parameter could have; declare a def"
            )
        if name in self._declared:
            raise GraphError(f"flow {self.name}: two nodes are called {name}; rename one")
        if len(self._declared) >= NODES_MAX:
            raise GraphError(f"flow {self.name}: more than {NODES_MAX} nodes")
        self._built = None
        self._declared[name] = Declared(
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

    def build(self) -> BuiltFlow:
        """Check everything and return what can run. Cached until the next declaration.

        Raises:
            GraphError, CycleError: the nodes do not form a graph.
            DefinitionError: a parameter comes from nowhere, a type does not fit its edge, or an
                annotation cannot be recorded.
            NoSource: a node has neither source nor `version=`.
            NoStableForm: a parameter's value, or a value that a node captures, has no stable form.
        """
        if self._built is None:
            from evsrc.runtime.flow_build import build_flow

            self._built = build_flow(self)
        return self._built

    def plan(
        self, log: str | os.PathLike[str], input: I, *, run_id: str | None = None
    ) -> list[Planned]:
        """What a run of this flow would reuse, run or leave pinned, and why; nothing is run or written.

        Reads the log's folder without a lock, also beside the process that writes it. One line per
        node, or per item where the items are known, in the order of the waves. `why` names the parts
        of a node's key that differ: `code`, `params`, `input`, `item`, `upstream:NODE`, `file:PATH`.

        Raises:
            FileNotFoundError: there is no log at `log`.
            InputMismatch: the run id stands for another workflow or another input.
            LogCorrupt: the log does not verify.
            UnknownEvent: the run holds an event of a later version.
            GraphError, DefinitionError, NoSource, NoStableForm: as `build`.
        """
        from evsrc.runtime.plan import plan_of

        return plan_of(self, log, input, run_id)

    @property
    def declared(self) -> tuple[Declared, ...]:
        """The nodes in the order of their declaration."""
        return tuple(self._declared.values())


def _name_of(node: Any) -> str:
    return node if isinstance(node, str) else str(node.__name__)
