"""Declaring a flow: where parameters come from, and everything that is refused before anything runs."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import evsrc
from evsrc.errors import CycleError, DefinitionError, GraphError, NoSource, NoStableForm
from tests.runtime.flows import load


class Alert(msgspec.Struct, frozen=True):
    """An input."""

    host: str


class Opaque:
    """A class that cannot be recorded."""


def flow(**options: Any) -> evsrc.Flow[Alert]:
    """An empty flow over alerts."""
    return evsrc.Flow("triage", input=Alert, **options)


async def numbers(alert: Alert) -> list[int]:
    """A node with a list."""
    return [len(alert.host)]


async def joined(numbers: list[int]) -> int:
    """A node below it."""
    return sum(numbers)


# ---- where parameters come from ------------------------------------------------------------------


def test_edges_are_parameter_names() -> None:
    """A parameter named like a node is an edge from that node, in whatever order they are declared."""
    declared = flow()
    declared.node(joined)
    declared.node(numbers)
    built = declared.build()
    assert built.graph.needs == {"joined": ("numbers",), "numbers": ()}
    assert built.graph.waves == (("numbers",), ("joined",))


def test_the_input_the_run_and_params_are_no_edges() -> None:
    """The input goes by type, the run by type, constants by params=, the rest by its default."""

    async def node(a: Alert, run: evsrc.Run, limit: int, more: str = "x") -> str:
        return f"{a.host}{run.id}{limit}{more}"

    declared = flow()
    declared.node(params={"limit": 3})(node)
    built = declared.build().nodes["node"]
    assert (built.input_parameters, built.run_parameters, built.edges) == (("a",), ("run",), {})
    assert built.declared.params == {"limit": 3}


def test_params_win_over_a_node_of_that_name() -> None:
    """A constant given by params= is no edge."""
    declared = flow()
    declared.node(numbers)
    declared.node(params={"numbers": [1]})(joined)
    assert declared.build().graph.needs["joined"] == ()


def test_needs_orders_without_an_edge() -> None:
    """needs= takes names, functions and fan-outs; a need named twice counts once."""
    declared = flow()
    declared.node(numbers)

    @declared.each(numbers, key=str, version="1")
    async def each_number(number: int) -> int:
        return number

    @declared.node(needs=["numbers", numbers, each_number], version="1")
    async def last(alert: Alert) -> int:
        return 1

    assert declared.build().graph.needs["last"] == ("numbers", "each_number")


def test_a_node_stays_the_function_that_it_was() -> None:
    """Tests of nodes need no flow: plain nodes are returned unchanged, a fan-out calls through."""
    declared = flow()
    assert declared.node(numbers) is numbers
    assert declared.node(version="1")(joined) is joined

    @declared.each(numbers, key=str, version="1")
    async def each_number(number: int) -> int:
        return number + 1

    with pytest.raises(StopIteration) as end:
        each_number(1).__await__().send(None)
    assert end.value.value == 2


def test_build_is_cached_until_the_next_declaration() -> None:
    """The same flow is built once; another node builds it anew, with another version."""
    declared = flow()
    declared.node(numbers)
    built = declared.build()
    assert declared.build() is built
    declared.node(joined)
    assert declared.build() is not built
    assert declared.build().version != built.version


# ---- what is refused -----------------------------------------------------------------------------


def refused(
    declared: evsrc.Flow[Any], *parts: str, kind: type[Exception] = DefinitionError
) -> None:
    """Building fails, and the message names all of that."""
    with pytest.raises(kind) as error:
        declared.build()
    for part in parts:
        assert part in str(error.value)


def test_a_parameter_from_nowhere_is_named_with_what_it_could_be() -> None:
    """The message names flow, node, parameter, everything it could have come from, and a near name."""

    async def node(numbrs: list[int]) -> int:
        return 1

    declared = flow()
    declared.node(numbers)
    declared.node(version="1")(node)
    refused(
        declared,
        "flow triage, node node: parameter 'numbrs' is no node, not the input (Alert), not the run, "
        "and not in params=; did you mean 'numbers'?",
    )


def test_an_unannotated_parameter_is_neither_the_input_nor_the_run() -> None:
    """Without an annotation only a node's name or params= tells what a parameter is."""

    async def node(run) -> int:  # type: ignore[no-untyped-def]
        return 1

    declared = flow()
    declared.node(version="1")(node)
    refused(declared, "parameter 'run' is no node")


def test_a_missing_return_annotation_is_refused() -> None:
    """It decides how the output is decoded; the remedy for plain data is named."""

    async def node(alert: Alert):  # type: ignore[no-untyped-def]
        return 1

    declared = flow()
    declared.node(version="1")(node)
    refused(declared, "node node", "no return annotation", "-> Any")


def test_an_output_that_cannot_be_recorded_is_refused() -> None:
    """The class that has no encoding is named."""

    async def node(alert: Alert) -> Opaque:
        return Opaque()

    declared = flow()
    declared.node(version="1")(node)
    refused(declared, "node node, return value", "Opaque")


def test_an_input_that_cannot_be_recorded_is_refused() -> None:
    """The input is in the log too."""
    refused(evsrc.Flow("triage", input=Opaque), "flow triage, input", "Opaque")


def test_a_blocking_node_that_takes_the_run_is_refused() -> None:
    """It could not await a call."""

    def node(run: evsrc.Run) -> int:
        return 1

    declared = flow()
    declared.node(version="1")(node)
    refused(declared, "node node", "blocking", "make it async")


def test_params_that_no_parameter_takes_are_refused() -> None:
    """A misspelt constant does not wait for the first run."""
    declared = flow()
    declared.node(params={"limt": 1})(numbers)
    refused(declared, "node numbers: params= gives 'limt'")


def test_params_without_a_stable_form_are_refused() -> None:
    """They are in the key; the path inside them is named."""

    async def node(limit: Any) -> int:
        return 1

    declared = flow()
    declared.node(params={"limit": [object()]}, version="1")(node)
    refused(declared, "node node, params['limit'][0]", kind=NoStableForm)


def test_parameters_that_cannot_be_given_by_name_are_refused() -> None:
    """Positional-only parameters, *args and **kwargs."""

    async def positional(alert: Alert, /) -> int:
        return 1

    async def star(*alerts: Alert) -> int:
        return 1

    async def stars(**alerts: Alert) -> int:
        return 1

    for node in (positional, star, stars):
        declared = flow()
        declared.node(version="1")(node)
        refused(declared, f"node {node.__name__}", "cannot be given by name")


@pytest.mark.parametrize("nameless", [lambda alert: 1, partial(numbers)])
def test_what_has_no_name_is_no_node(nameless: Callable[..., Any]) -> None:
    """The name is the node's identity: a lambda or a partial is refused where it is declared."""
    with pytest.raises(DefinitionError, match="has no name that a parameter could have"):
        flow().node(nameless)


def test_a_class_local_to_a_function_with_postponed_annotations_is_refused(tmp_path: Path) -> None:
    """It cannot be resolved; function, class and both remedies are named."""
    module = load(
        tmp_path,
        "from __future__ import annotations\n"
        "import evsrc, msgspec\n"
        "def make():\n"
        "    class Local(msgspec.Struct):\n"
        "        x: int\n"
        "    flow = evsrc.Flow('local', input=int)\n"
        "    @flow.node(version='1')\n"
        "    async def node(start: int) -> Local:\n"
        "        return Local(start)\n"
        "    return flow\n",
    )
    refused(module.make(), "node", "'Local' cannot be resolved", "module level", "annotations")


def test_a_module_level_class_with_postponed_annotations_is_fine(tmp_path: Path) -> None:
    """Annotations that are text are resolved."""
    module = load(
        tmp_path,
        "from __future__ import annotations\n"
        "import evsrc, msgspec\n"
        "class Result(msgspec.Struct):\n"
        "    x: int\n"
        "flow = evsrc.Flow('postponed', input=int)\n"
        "@flow.node(version='1')\n"
        "async def node(start: int, run: evsrc.Run) -> Result:\n"
        "    return Result(start)\n",
    )
    built = module.flow.build().nodes["node"]
    assert built.returns is module.Result
    assert (built.input_parameters, built.run_parameters) == (("start",), ("run",))


def test_a_node_without_source_needs_a_version() -> None:
    """No source and no declared version is refused; with a version it builds."""
    scope: dict[str, Any] = {}
    exec("async def node(alert) -> int: return 1", scope)
    scope["node"].__annotations__["alert"] = Alert
    declared = flow()
    declared.node(scope["node"])
    refused(declared, "node", "version=", kind=NoSource)
    versioned = flow()
    versioned.node(version="1")(scope["node"])
    versioned.build()


def test_a_name_is_used_once() -> None:
    """Two nodes of one name are refused where the second is declared."""
    declared = flow()
    declared.node(numbers)
    with pytest.raises(GraphError, match="two nodes are called numbers"):
        declared.node(version="2")(numbers)


def test_shapes_that_are_no_graph_are_refused() -> None:
    """A need that nobody declared, and a node that needs itself."""

    async def me(me: int) -> int:
        return me

    strange, circle = flow(), flow()
    strange.node(numbers)
    strange.node(needs=["number"], version="1")(joined)
    refused(strange, "'joined' needs 'number'", "'numbers'", kind=GraphError)
    circle.node(version="1")(me)
    refused(circle, "me -> me", kind=CycleError)


def test_a_budget_below_one_is_refused() -> None:
    """Nothing could ever run."""
    with pytest.raises(DefinitionError, match="at_once is 0"):
        flow(at_once=0)


# ---- types along the edges -----------------------------------------------------------------------


async def given_int(alert: Alert) -> int:
    """Gives an int."""
    return 1


async def given_ints(alert: Alert) -> list[int]:
    """Gives ints."""
    return [1]


def edge(upstream: Callable[..., Any], takes: Any, *, each: bool = False) -> evsrc.Flow[Any]:
    """A flow with one edge, whose lower end takes `takes`."""

    async def lower(**_: Any) -> int:
        return 1

    name = upstream.__name__
    scope: dict[str, Any] = {}
    exec(f"async def lower({'item' if each else name}) -> int: return 1", scope)
    scope["lower"].__annotations__["item" if each else name] = takes
    declared = flow()
    declared.node(version="1")(upstream)
    if each:
        declared.each(upstream, key=str, version="1")(scope["lower"])
    else:
        declared.node(version="1")(scope["lower"])
    return declared


@pytest.mark.parametrize("takes", [int, int | None, Any, int | str])
def test_an_edge_fits_its_type_any_and_unions(takes: Any) -> None:
    """The same type, Any, or a union that holds it."""
    edge(given_int, takes).build()


@pytest.mark.parametrize("takes", [list[int], Sequence[int], Iterable[int]])
def test_a_list_fits_a_sequence_of_the_same(takes: Any) -> None:
    """What only reads may say so."""
    edge(given_ints, takes).build()


@pytest.mark.parametrize(
    ("upstream", "takes", "shown"),
    [
        (given_int, str, "takes str"),
        (given_ints, list[str], "takes list[str]"),
        (given_ints, int, "int"),
    ],
)
def test_an_edge_of_another_type_is_refused(
    upstream: Callable[..., Any], takes: Any, shown: str
) -> None:
    """Node, parameter and both types are named."""
    refused(edge(upstream, takes), "node lower: parameter", upstream.__name__, "gives", shown)


def test_a_fan_out_gives_a_list() -> None:
    """Below a fan-out its item type is refused, the list of it fits."""
    for taken, fits in ((list[int], True), (int, False)):
        declared = edge(given_ints, int, each=True)
        scope: dict[str, Any] = {}
        exec("async def below(lower) -> int: return 1", scope)
        scope["below"].__annotations__["lower"] = taken
        declared.node(version="1")(scope["below"])
        if fits:
            declared.build()
        else:
            refused(declared, "takes int, node 'lower' gives list[int]")


def test_an_item_has_the_type_of_the_list() -> None:
    """The items of a list of ints are no text."""
    edge(given_ints, int, each=True).build()
    refused(edge(given_ints, str, each=True), "'item' takes str, node 'given_ints' gives int")


def test_only_lists_have_items() -> None:
    """A set has no order that another process would repeat, and a text is one thing."""

    async def given_set(alert: Alert) -> set[int]:
        return {1}

    async def given_text(alert: Alert) -> str:
        return "text"

    for upstream in (given_set, given_text, given_int):
        refused(edge(upstream, Any, each=True), upstream.__name__, "expected a list")


def test_a_fan_out_needs_a_parameter_for_its_item() -> None:
    """The first parameter is the item."""

    async def none() -> int:
        return 1

    declared = flow()
    declared.node(numbers)
    declared.each(numbers, key=str, version="1")(none)  # type: ignore[arg-type]
    refused(declared, "node none: the first parameter of an each-node is the item")
