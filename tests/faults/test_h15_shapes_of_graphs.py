"""H15: diamonds, circles, long chains. A join runs once and sees both parents; bad shapes fail early."""

import random
from typing import Any

import anyio
import pytest

import evsrc
from evsrc.errors import CycleError, GraphError
from tests.runtime.flows import counted, go, heard, ran

DIAMONDS = 100
CHAIN = 5_000
CHAIN_S_MAX = 60.0
"""Far above what it takes (2 s), far below what a scan of all nodes for each node would take."""


def diamond(delays: random.Random, schedule: Any) -> evsrc.Flow[int]:
    """One node, two below it that take a random while, and their join."""
    flow = evsrc.Flow("diamond", input=int, schedule=schedule)

    @flow.node(version="1")
    async def top(start: int) -> int:
        return start

    @flow.node(version="1")
    async def left(top: int) -> str:
        await anyio.sleep(delays.random() * 0.003)
        return f"left {top}"

    @flow.node(version="1")
    async def right(top: int) -> str:
        await anyio.sleep(delays.random() * 0.003)
        return f"right {top}"

    @flow.node(version="1")
    async def join(left: str, right: str) -> list[str]:
        heard("join")
        return [left, right]

    return flow


@pytest.mark.parametrize("schedule", ["waves", "ready"])
async def test_a_join_runs_once_and_sees_both_parents(schedule: Any) -> None:
    """A hundred diamonds with random delays: never once per parent, never mixed up between runs."""
    ran()
    flow = diamond(random.Random(15), schedule)
    outcomes: dict[int, list[str]] = {}
    async with evsrc.open_runtime(evsrc.MemoryLog()) as runtime, anyio.create_task_group() as group:

        async def one(number: int) -> None:
            outcome = await runtime.run(flow, number, run_id=f"r{number}")
            outcomes[number] = outcome.value["join"]

        for number in range(DIAMONDS):
            group.start_soon(one, number)
    assert outcomes == {n: [f"left {n}", f"right {n}"] for n in range(DIAMONDS)}
    assert counted() == {"join": DIAMONDS}


def shaped(*nodes: tuple[str, list[str]]) -> evsrc.Flow[int]:
    """A flow of nodes that only name what they need, in the order given."""
    flow = evsrc.Flow("shaped", input=int)
    for name, needs in nodes:
        scope: dict[str, Any] = {"heard": heard}
        exec(f"async def {name}({', '.join(needs)}): heard({name!r})", scope)
        scope[name].__annotations__["return"] = Any
        flow.node(version="1")(scope[name])
    return flow


@pytest.mark.parametrize(
    ("nodes", "path"),
    [
        ([("a", ["a"])], ("a", "a")),
        ([("a", ["c"]), ("b", ["a"]), ("c", ["b"])], ("a", "c", "b", "a")),
        ([("top", []), ("a", ["top", "b"]), ("b", ["a"])], ("a", "b", "a")),
    ],
)
async def test_a_circle_is_refused_by_its_path(
    nodes: list[tuple[str, list[str]]], path: tuple[str, ...]
) -> None:
    """A self-loop, three nodes in a circle, a circle below a sound node: before anything runs."""
    ran()
    log = evsrc.MemoryLog()
    with pytest.raises(CycleError, match=" -> ".join(path)) as error:
        await go(log, shaped(*nodes), 1)
    assert error.value.path == path
    assert ran() == []
    assert log.last_position == 0


async def test_an_undeclared_node_is_refused() -> None:
    """By the name of the node that needs it."""
    flow = evsrc.Flow("f", input=int)

    @flow.node(needs=["missing"], version="1")
    async def node(start: int) -> int:
        return start

    with pytest.raises(GraphError, match="'node' needs 'missing'"):
        await go(evsrc.MemoryLog(), flow, 1)


def test_two_nodes_of_one_name_are_refused() -> None:
    """Where the second one is declared."""
    with pytest.raises(GraphError, match="two nodes are called a"):
        shaped(("a", []), ("a", []))


async def test_a_chain_of_five_thousand_runs() -> None:
    """No recursion, and no step that costs as much as the chain is long."""
    flow = evsrc.Flow("chain", input=int)
    for number in range(CHAIN):
        scope: dict[str, Any] = {}
        parameter = f"n{number - 1}" if number else "start"
        exec(f"async def n{number}({parameter}: int) -> int: return {parameter} + 1", scope)
        flow.node(version="1")(scope[f"n{number}"])
    with anyio.fail_after(CHAIN_S_MAX):
        outcome = await go(evsrc.MemoryLog(), flow, 0)
    assert outcome.value[f"n{CHAIN - 1}"] == CHAIN
