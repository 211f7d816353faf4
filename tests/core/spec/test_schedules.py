"""Semantics 6 and 7, the frontier: what may start next, and what a parked or failed node holds up."""

import time
from collections import deque
from typing import Literal

import pytest

from evsrc.core.frontier import Frontier
from evsrc.core.graph import build_graph

SCHEDULES: tuple[Literal["waves", "ready"], ...] = ("waves", "ready")

DIAMONDS = build_graph(
    {
        "a": (),
        "b": (),
        "a1": ("a",),
        "b1": ("b",),
        "a2": ("a1",),
        "b2": ("b1",),
        "end": ("a2", "b2"),
    }
)


def test_waves_run_one_after_the_other() -> None:
    """Nothing of a later wave starts before the whole earlier wave is done."""
    frontier = Frontier(DIAMONDS, "waves")
    assert frontier.take_ready() == ["a", "b"]
    assert frontier.take_ready() == []
    frontier.done("b")
    assert frontier.take_ready() == []
    frontier.done("a")
    assert frontier.take_ready() == ["a1", "b1"]


def test_ready_starts_a_node_as_soon_as_its_own_needs_are_met() -> None:
    """No wave holds anybody up."""
    frontier = Frontier(DIAMONDS, "ready")
    assert frontier.take_ready() == ["a", "b"]
    frontier.done("b")
    assert frontier.take_ready() == ["b1"]
    frontier.done("b1")
    assert frontier.take_ready() == ["b2"]
    frontier.done("b2")
    assert frontier.take_ready() == []


def test_a_parked_node_holds_up_nothing_unrelated() -> None:
    """An unknown ticket must not stop the page: later waves go on without what descends from it."""
    frontier = Frontier(DIAMONDS, "waves")
    frontier.take_ready()
    frontier.done("b")
    assert frontier.take_ready({"a"}) == ["b1"]
    frontier.done("b1")
    assert frontier.take_ready({"a"}) == ["b2"]
    frontier.done("b2")
    assert frontier.take_ready({"a"}) == []
    frontier.done("a")
    assert frontier.take_ready() == ["a1"]


def test_a_running_node_of_an_earlier_wave_holds_up_the_later_ones() -> None:
    """Parked nodes are excused, running ones are not."""
    graph = build_graph({"a": (), "b": (), "c": (), "c1": ("c",)})
    frontier = Frontier(graph, "waves")
    frontier.take_ready()
    frontier.done("c")
    assert frontier.take_ready({"a"}) == []
    assert frontier.take_ready({"a", "b"}) == ["c1"]


def test_after_a_failure_nothing_of_a_later_wave_starts() -> None:
    """Siblings finish; the waves after the failure do not begin, also where others are parked."""
    frontier = Frontier(DIAMONDS, "waves")
    frontier.take_ready()
    frontier.failed("a")
    frontier.done("b")
    assert frontier.take_ready() == []
    assert frontier.take_ready({"b1"}) == []


def test_a_failure_does_not_stop_earlier_waves() -> None:
    """Parked in wave 1, failed in wave 2: what becomes ready of wave 2 may still run."""
    graph = build_graph({"a": (), "b": (), "a1": ("a",), "b1": ("b",), "b2": ("b1",)})
    frontier = Frontier(graph, "waves")
    frontier.take_ready()
    frontier.done("b")
    assert frontier.take_ready({"a"}) == ["b1"]
    frontier.failed("b1")
    frontier.done("a")
    assert frontier.take_ready() == ["a1"]
    frontier.done("a1")
    assert frontier.take_ready() == []


def test_under_ready_nothing_starts_after_a_failure() -> None:
    """Hard failure stops what has not begun."""
    frontier = Frontier(DIAMONDS, "ready")
    frontier.take_ready()
    frontier.failed("a")
    frontier.done("b")
    assert frontier.take_ready() == []


def test_nodes_of_a_wave_come_in_declared_order() -> None:
    """Whatever order their needs were met in."""
    graph = build_graph({"a": (), "b": (), "x": ("b",), "y": ("a",)})
    for schedule in SCHEDULES:
        frontier = Frontier(graph, schedule)
        frontier.take_ready()
        frontier.done("a")
        frontier.done("b")
        assert frontier.take_ready() == ["x", "y"]


def test_H15_a_join_behind_a_diamond_is_taken_once() -> None:
    """It starts when the last of its parents is done, and never again."""
    graph = build_graph({"top": (), "l": ("top",), "r": ("top",), "join": ("l", "r", "top")})
    for schedule in SCHEDULES:
        frontier = Frontier(graph, schedule)
        taken: list[str] = []
        while ready := frontier.take_ready():
            taken += ready
            for name in ready:
                frontier.done(name)
        assert taken == ["top", "l", "r", "join"]


def run_all(frontier: Frontier, parked: frozenset[str] = frozenset()) -> int:
    """Run whatever may start, asking after every single node as an executor does; how many ran."""
    todo = deque(frontier.take_ready(parked))
    count = 0
    while todo:
        name = todo.popleft()
        if name not in parked:
            frontier.done(name)
            count += 1
        todo += frontier.take_ready(parked)
    return count


@pytest.mark.parametrize("schedule", ["waves", "ready"])
def test_a_chain_of_5000_and_a_wave_of_10000_are_fast(schedule: Literal["waves", "ready"]) -> None:
    """They cost what their edges cost; a scan of all nodes per step would take minutes."""
    chain = {f"n{i}": (f"n{i - 1}",) if i else () for i in range(5_000)}
    wide: dict[str, tuple[str, ...]] = {f"w{i}": () for i in range(10_000)}
    wide["end"] = tuple(wide)
    began = time.perf_counter()
    assert run_all(Frontier(build_graph(chain), schedule)) == 5_000
    assert run_all(Frontier(build_graph(wide), schedule)) == 10_001
    assert time.perf_counter() - began < 5.0


def test_a_chain_beside_a_parked_chain_is_fast() -> None:
    """What is held up is not counted again for every node that runs beside it."""
    needs = {
        f"{c}{i}": (f"{c}{i - 1}",) if i else () for c in ("held", "free") for i in range(5_000)
    }
    frontier = Frontier(build_graph(needs), "waves")
    began = time.perf_counter()
    assert run_all(frontier, frozenset({"held0"})) == 5_000
    assert time.perf_counter() - began < 5.0
