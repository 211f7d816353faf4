"""Building a flow: where each parameter comes from, what flows along each edge, and what is refused.

Rule: what cannot work is refused here, before anything runs, naming flow, node, parameter and remedy.
Does not know: runs or logs.
"""

import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from types import GenericAlias
from typing import Any

import msgspec

from evsrc.core import canonical
from evsrc.core.codec import check_annotation
from evsrc.core.graph import build_graph
from evsrc.errors import DefinitionError, NoStableForm
from evsrc.runtime.fingerprint import code_version
from evsrc.runtime.flow import BuiltFlow, Declared, Flow, Node
from evsrc.runtime.run import Run
from evsrc.runtime.signature import hints_of


class _Parameters(msgspec.Struct):
    """Where the parameters of one node come from; those of `params=` and defaults are left out."""

    edges: dict[str, str] = {}
    input: list[str] = []
    run: list[str] = []
    item: str = ""


def build_flow(flow: Flow[Any]) -> BuiltFlow:
    """Check everything. Raises as `Flow.build`."""
    check_annotation(flow.input, f"flow {flow.name}, input")
    names = {declared.name for declared in flow.declared}
    nodes = {d.name: _node(flow, d, names) for d in flow.declared}
    graph = build_graph([(name, _needs(node)) for name, node in nodes.items()])
    for node in nodes.values():
        _check_edges(flow, node, nodes)
    return BuiltFlow(graph, nodes)


def _needs(node: Node) -> list[str]:
    declared = node.declared
    source = [declared.source] if node.is_each else []
    return list(dict.fromkeys([*source, *node.edges.values(), *declared.needs]))


def _node(flow: Flow[Any], declared: Declared, names: set[str]) -> Node:
    where = f"flow {flow.name}, node {declared.name}"
    hints = hints_of(declared.fn)
    if "return" not in hints:
        raise DefinitionError(f"{where}: no return annotation; `-> Any` for plain data")
    check_annotation(hints["return"], f"{where}, return value")
    found = _parameters(flow, declared, names, hints, where)
    blocking = not inspect.iscoroutinefunction(declared.fn)
    if blocking and found.run:
        raise DefinitionError(f"{where}: a blocking node cannot await run.call; make it async")
    return Node(
        declared,
        found.edges,
        tuple(found.input),
        tuple(found.run),
        found.item,
        hints["return"],
        blocking,
        code_version(declared.fn, declared=declared.version),
        _params_digest(declared, where),
    )


def _params_digest(declared: Declared, where: str) -> str:
    try:
        return canonical.digest(declared.params)
    except NoStableForm as error:
        path = error.path.removeprefix("value")
        raise NoStableForm(f"{where}, params{path}", error.why) from error


def _parameters(
    flow: Flow[Any], declared: Declared, names: set[str], hints: Mapping[str, Any], where: str
) -> _Parameters:
    found = _Parameters()
    parameters = list(inspect.signature(declared.fn).parameters.values())
    if declared.source:
        if not parameters:
            raise DefinitionError(f"{where}: the first parameter of an each-node is the item")
        found.item = parameters.pop(0).name
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise DefinitionError(f"{where}: parameter {str(parameter)!r} cannot be given by name")
        _place(flow, declared, names, parameter, hints, found, where)
    strange = declared.params.keys() - {parameter.name for parameter in parameters}
    if strange:
        raise DefinitionError(
            f"{where}: params= gives {min(strange)!r}, which is no parameter of it"
        )
    return found


def _place(
    flow: Flow[Any],
    declared: Declared,
    names: set[str],
    parameter: inspect.Parameter,
    hints: Mapping[str, Any],
    found: _Parameters,
    where: str,
) -> None:
    """Decide where one parameter comes from: params=, a node, the run, the input, or its default."""
    name, hint = parameter.name, hints.get(parameter.name)
    if name in declared.params:
        return
    if name in names:
        found.edges[name] = name
    elif hint is Run:
        found.run.append(name)
    elif hint is not None and hint == flow.input:
        found.input.append(name)
    elif parameter.default is parameter.empty:
        raise DefinitionError(
            f"{where}: parameter {name!r} is no node, not the input "
            f"({getattr(flow.input, '__name__', flow.input)}), not the run, and not in params="
            f"{_near(name, names)}"
        )


def _near(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(names), 3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


# ---- what flows along the edges ------------------------------------------------------------------


def _check_edges(flow: Flow[Any], node: Node, nodes: Mapping[str, Node]) -> None:
    """Compare what each edge gives with what its parameter takes."""
    hints = hints_of(node.declared.fn)
    where = f"flow {flow.name}, node {node.name}"
    for parameter, upstream in node.edges.items():
        _check_edge(where, parameter, upstream, _gives(nodes[upstream]), hints.get(parameter, Any))
    if node.is_each:
        source = node.declared.source
        item = _item_of(where, source, _gives(nodes[source]))
        _check_edge(where, node.item_parameter, source, item, hints.get(node.item_parameter, Any))


def _gives(node: Node) -> Any:
    return GenericAlias(list, (node.returns,)) if node.is_each else node.returns


def _check_edge(where: str, parameter: str, upstream: str, given: Any, taken: Any) -> None:
    if given == taken or Any in (given, taken) or given in typing.get_args(taken):
        return
    if _same_shape(given, taken):
        return
    raise DefinitionError(
        f"{where}: parameter {parameter!r} takes {_shown(taken)}, node {upstream!r} gives "
        f"{_shown(given)}"
    )


def _item_of(where: str, source: str, given: Any) -> Any:
    """The type of one item. Sets are refused: their order differs from process to process."""
    origin = typing.get_origin(given) or given
    if origin is Any:
        return Any
    if not (isinstance(origin, type) and issubclass(origin, Sequence)) or issubclass(
        origin, str | bytes
    ):
        raise DefinitionError(
            f"{where}: runs for each item of {source!r}, which gives {_shown(given)}; expected a list"
        )
    arguments = [a for a in typing.get_args(given) if a is not ...]
    return arguments[0] if len(arguments) == 1 else Any


def _same_shape(given: Any, taken: Any) -> bool:
    """A list where a Sequence or an Iterable of the same is taken."""
    if typing.get_args(given) != typing.get_args(taken):
        return False
    origin = typing.get_origin(given)
    return origin is not None and typing.get_origin(taken) in (origin, Sequence, Iterable)


def _shown(annotation: Any) -> str:
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__
    return str(annotation)
