"""The graph: waves, cycles by name, and what may start."""

import graphlib
import time
from collections.abc import Set as AbstractSet
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.core.frontier import Frontier
from evsrc.core.graph import Graph, build_graph
from evsrc.errors import CycleError, GraphError

Needs = dict[str, list[str]]


def ready(
    graph: Graph,
    *,
    done: AbstractSet[str],
    failed: AbstractSet[str],
    parked: AbstractSet[str],
    running: AbstractSet[str],
    schedule: Literal["waves", "ready"],
) -> list[str]:
    """The rule that the frontier keeps, written for reading instead of speed: what may start now.

    All needs of such a node are done, and it is neither done, failed, parked nor running.

    * "waves": moreover every node of every earlier wave is done, or is held: parked, failed, or a
      descendant of one that is. So a node that waits for a person holds up nothing unrelated. Once a
      node failed, nothing of a wave after its own starts; its siblings may still start.
    * "ready": nothing more. Once a node failed, nothing starts.
    """
    if failed and schedule == "ready":
        return []
    limit = len(graph.waves) if schedule == "ready" else _wave_limit(graph, done, failed, parked)
    return [
        name
        for wave in graph.waves[: limit + 1]
        for name in wave
        if not (name in done or name in failed or name in parked or name in running)
        and all(need in done for need in graph.needs[name])
    ]


def _wave_limit(
    graph: Graph, done: AbstractSet[str], failed: AbstractSet[str], parked: AbstractSet[str]
) -> int:
    """The last wave of which anything may start."""
    held = set(done | failed | parked)
    held.update(*(graph.descendants(name) for name in failed | parked))
    for index, wave in enumerate(graph.waves):
        if not (failed.isdisjoint(wave) and held.issuperset(wave)):
            return index
    return len(graph.waves)


@st.composite
def acyclic(draw: st.DrawFn) -> Needs:
    """Needs point to nodes of lower rank; the declared order is any."""
    count = draw(st.integers(0, 12))
    needs = {
        f"n{i}": [
            f"n{j}" for j in sorted(draw(st.sets(st.integers(0, i - 1)) if i else st.just(set())))
        ]
        for i in range(count)
    }
    order = draw(st.permutations(list(needs)))
    return {name: needs[name] for name in order}


@st.composite
def any_shape(draw: st.DrawFn) -> Needs:
    """Any edges at all, self-loops included."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 8)))]
    return {name: draw(st.lists(st.sampled_from(names), max_size=3)) for name in names}


def start(graph: Graph, schedule: Literal["waves", "ready"] = "waves", **sets: str) -> list[str]:
    """`ready` with sets given as words."""
    given_sets: dict[str, Any] = {
        name: set(sets.get(name, "").split()) for name in ("done", "failed", "parked", "running")
    }
    return ready(graph, schedule=schedule, **given_sets)


DIAMOND = {"top": [], "left": ["top"], "right": ["top"], "join": ["left", "right"]}


def test_h15_diamond_has_one_join() -> None:
    """H15: the join behind a diamond stands once, after both its parents."""
    graph = build_graph(DIAMOND)
    assert graph.waves == (("top",), ("left", "right"), ("join",))
    assert graph.ancestors("join") == {"top", "left", "right"}
    assert graph.descendants("top") == {"left", "right", "join"}
    assert graph.descendants("join") == frozenset()
    assert list(graph.names) == list(DIAMOND)


@pytest.mark.parametrize(
    ("needs", "path"),
    [
        ({"a": ["a"]}, ("a", "a")),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, ("a", "b", "c", "a")),
        ({"way": ["b"], "b": ["c"], "c": ["b"], "free": []}, ("b", "c", "b")),
    ],
)
def test_h15_cycle_is_named_by_its_path(needs: Needs, path: tuple[str, ...]) -> None:
    """H15: a self-loop or a circle is refused at the build, naming exactly the circle."""
    with pytest.raises(CycleError) as caught:
        build_graph(needs)
    assert caught.value.path == path
    assert " -> ".join(path) in str(caught.value)


def test_h15_unknown_node_is_named_with_who_needs_it() -> None:
    """H15: an edge to an undeclared node names both, and a name that is near."""
    with pytest.raises(GraphError, match=r"'triage' needs 'enrihc'.*did you mean 'enrich'"):
        build_graph({"enrich": [], "triage": ["enrihc"]})


def test_h15_two_nodes_of_one_name_are_refused() -> None:
    """H15: a name used twice is refused, not the last one taken."""
    with pytest.raises(GraphError, match="two nodes are called 'a'"):
        build_graph([("a", []), ("b", []), ("a", ["b"])])


def test_need_named_twice_counts_once() -> None:
    """A parameter and a `needs=` that name one node make one edge."""
    assert build_graph({"a": [], "b": ["a", "a"]}).waves == (("a",), ("b",))


def test_h15_long_chain_and_wide_wave_are_fast() -> None:
    """H15: a chain of 5,000 and a wave of 10,000 neither overflow nor take long."""
    began = time.process_time()
    chain = build_graph((str(i), [str(i - 1)] if i else []) for i in range(5_000))
    assert len(chain.waves) == 5_000
    assert len(chain.ancestors("4999")) == len(chain.descendants("0")) == 4_999
    wide = build_graph([(str(i), []) for i in range(10_000)])
    assert len(start(wide)) == 10_000
    with pytest.raises(CycleError) as caught:
        build_graph((str(i), [str((i + 1) % 5_000)]) for i in range(5_000))
    assert len(caught.value.path) == 5_001
    assert time.process_time() - began < 5


@given(acyclic())
def test_waves_agree_with_graphlib(needs: Needs) -> None:
    """The standard library's sorter, asked a generation at a time, gives the same waves."""
    sorter = graphlib.TopologicalSorter(needs)
    sorter.prepare()
    expected: list[set[str]] = []
    while sorter.is_active():
        generation = sorter.get_ready()
        expected.append(set(generation))
        sorter.done(*generation)
    graph = build_graph(needs)
    assert [set(wave) for wave in graph.waves] == expected
    order = list(needs)
    assert all(list(wave) == sorted(wave, key=order.index) for wave in graph.waves)


@given(any_shape())
def test_cycle_found_is_a_cycle(needs: Needs) -> None:
    """A shape is refused exactly if graphlib refuses it, and the path named is a simple circle of it."""
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError:
        with pytest.raises(CycleError) as caught:
            build_graph(needs)
        path = caught.value.path
        assert path[0] == path[-1]
        assert len(set(path)) == len(path) - 1 >= 1
        assert all(after in needs[before] for before, after in zip(path, path[1:], strict=False))
    else:
        build_graph(needs)


@given(acyclic())
def test_ancestors_and_descendants_mirror_each_other(needs: Needs) -> None:
    """A node is below another exactly if that one is above it, and both follow the edges."""
    graph = build_graph(needs)
    for name in needs:
        above: set[str] = set()
        for need in needs[name]:
            above |= {need, *graph.ancestors(need)}
        assert graph.ancestors(name) == above
        assert all(name in graph.descendants(other) for other in above)
        assert all(name in graph.ancestors(other) for other in graph.descendants(name))


# ---- what may start -------------------------------------------------------------------------------

TWO = {"a": [], "b": [], "a2": ["a"], "b2": ["b"], "a3": ["a2"]}
"""Two chains side by side: a, a2, a3 and b, b2."""


def test_waves_wait_for_the_whole_wave() -> None:
    """Under waves nothing starts before every node of the earlier waves is done."""
    graph = build_graph(TWO)
    assert start(graph) == ["a", "b"]
    assert start(graph, running="a b") == []
    assert start(graph, done="a", running="b") == []
    assert start(graph, done="a b") == ["a2", "b2"]


def test_ready_waits_for_its_own_needs_only() -> None:
    """Under ready a node starts as soon as what it needs is done."""
    graph = build_graph(TWO)
    assert start(graph, "ready", done="a", running="b") == ["a2"]
    assert start(graph, "ready", done="a a2", running="b") == ["a3"]


def test_parked_node_holds_up_nothing_unrelated() -> None:
    """A node that waits for a person holds back what descends from it, and nothing else."""
    graph = build_graph(TWO)
    assert start(graph, done="b", parked="a") == ["b2"]
    assert start(graph, done="a b b2", parked="a2") == []
    assert start(graph, done="a a2", parked="b") == ["a3"]


def test_answered_node_starts_again() -> None:
    """Once it is no longer parked, a node may start like any other."""
    graph = build_graph(TWO)
    assert start(graph, done="b b2") == ["a"]


def test_failure_stops_later_waves_and_not_its_siblings() -> None:
    """After a failure the wave it happened in goes on; under ready nothing starts any more."""
    graph = build_graph(TWO)
    assert start(graph, failed="a") == ["b"]
    assert start(graph, failed="a", done="b") == []
    assert start(graph, failed="a2", done="a b") == ["b2"]
    assert start(graph, failed="a2", done="a b b2") == []
    assert start(graph, "ready", failed="a") == []


def test_failure_in_an_early_wave_stops_what_a_parked_one_let_through() -> None:
    """A wave that was already open, because an earlier node waits, closes when that node fails."""
    graph = build_graph(TWO)
    assert start(graph, done="b", parked="a") == ["b2"]
    assert start(graph, done="b", failed="a") == []


@given(acyclic(), st.sampled_from(["waves", "ready"]), st.data())
def test_every_node_runs_once_after_its_needs(
    needs: Needs, schedule: Literal["waves", "ready"], data: st.DataObject
) -> None:
    """Started and finished in any order, every node starts exactly once, after all it needs."""
    graph = build_graph(needs)
    done: set[str] = set()
    running: list[str] = []
    started: list[str] = []
    while True:
        new = ready(
            graph, done=done, failed=set(), parked=set(), running=set(running), schedule=schedule
        )
        for name in new:
            assert set(needs[name]) <= done
        running += new
        started += new
        if not running:
            break
        done.add(running.pop(data.draw(st.integers(0, len(running) - 1))))
    assert sorted(started) == sorted(needs)


@given(acyclic(), st.data())
def test_what_does_not_descend_from_a_parked_node_gets_done(
    needs: Needs, data: st.DataObject
) -> None:
    """With some nodes parked for good, exactly they and their descendants are left."""
    graph = build_graph(needs)
    parked = data.draw(st.sets(st.sampled_from(sorted(needs)))) if needs else set[str]()
    done: set[str] = set()
    while new := ready(
        graph, done=done, failed=set(), parked=parked, running=set(), schedule="waves"
    ):
        done.update(new)
    left = parked.union(*(graph.descendants(name) for name in parked))
    assert done == set(needs) - left


@pytest.mark.parametrize("schedule", ["waves", "ready"])
@given(seed=st.integers(0, 10_000))
def test_the_frontier_keeps_the_rule(schedule: Literal["waves", "ready"], seed: int) -> None:
    """Step by step, in any order of ends, parkings and failures, the frontier gives what the rule gives."""
    random = Random(seed)
    names = [f"n{i}" for i in range(random.randint(1, 10))]
    graph = build_graph(
        {n: [m for m in names[:i] if random.random() < 0.3] for i, n in enumerate(names)}
    )
    frontier = Frontier(graph, schedule)
    done, failed, parked, running = set[str](), set[str](), set[str](), set[str]()
    while True:
        rule = ready(
            graph, done=done, failed=failed, parked=parked, running=running, schedule=schedule
        )
        assert sorted(frontier.take_ready(parked)) == sorted(rule)
        running |= set(rule)
        if not running | parked:
            break
        name = random.choice(sorted(running | parked))
        end = random.choice(["done", "done", "fails", "parks"])
        running.discard(name)
        if end == "parks" and name not in parked:
            parked.add(name)
            continue
        parked.discard(name)
        if end == "fails":
            failed.add(name)
            frontier.failed(name)
        else:
            done.add(name)
            frontier.done(name)
