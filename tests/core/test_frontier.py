"""The frontier on random graphs: everything starts once, in order, and nothing waits without a reason."""

from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.core.frontier import Frontier
from evsrc.core.graph import Graph, build_graph

Schedule = Literal["waves", "ready"]


def random_graph(random: Random) -> Graph:
    """Up to twelve nodes, edges from earlier to later ones, declared in any order."""
    names = [f"n{i}" for i in range(random.randint(1, 12))]
    needs = {
        name: tuple(n for n in names[:i] if random.random() < 0.3) for i, name in enumerate(names)
    }
    random.shuffle(names)
    return build_graph({name: needs[name] for name in names})


class Executor:
    """Runs a graph by a frontier: finishes running nodes in random order."""

    def __init__(self, graph: Graph, schedule: Schedule, random: Random) -> None:
        self.graph, self.random = graph, random
        self.frontier = Frontier(graph, schedule)
        self.running: list[str] = []
        self.started: list[str] = []
        self.done: set[str] = set()
        self.waves = {name: i for i, wave in enumerate(graph.waves) for name in wave}

    def take(self, parked: frozenset[str] = frozenset()) -> list[str]:
        new = self.frontier.take_ready(parked)
        for name in new:
            assert set(self.graph.needs[name]) <= self.done, f"{name} before its needs"
        self.started += new
        self.running += new
        return new

    def finish(self, name: str) -> None:
        self.running.remove(name)
        self.done.add(name)
        self.frontier.done(name)


@pytest.mark.parametrize("schedule", ["waves", "ready"])
@given(random=st.randoms(use_true_random=False))
def test_every_node_starts_once_after_its_needs(schedule: Schedule, random: Random) -> None:
    """All nodes run, each exactly once; under waves no node overtakes an earlier wave."""
    run = Executor(random_graph(random), schedule, random)
    run.take()
    while run.running:
        run.finish(random.choice(run.running))
        before = set(run.done)
        for name in run.take():
            earlier = {n for n, wave in run.waves.items() if wave < run.waves[name]}
            assert schedule == "ready" or earlier <= before
    assert sorted(run.started) == sorted(run.graph.names)


@pytest.mark.parametrize("schedule", ["waves", "ready"])
@given(random=st.randoms(use_true_random=False))
def test_parked_nodes_hold_up_their_descendants_only(schedule: Schedule, random: Random) -> None:
    """While some nodes wait for a person, everything unrelated runs to the end; then the rest does."""
    graph = random_graph(random)
    run = Executor(graph, schedule, random)
    parking = {n for n in graph.names if random.random() < 0.25}
    held = parking.union(*(graph.descendants(n) for n in parking))
    parked: set[str] = set()
    run.take()
    while set(run.running) - parked:
        name = random.choice(sorted(set(run.running) - parked))
        if name in parking:
            parked.add(name)
        else:
            run.finish(name)
        run.take(frozenset(parked))
    assert set(graph.names) - held == run.done
    while run.running:
        name = random.choice(run.running)
        parked.discard(name)
        run.finish(name)
        run.take(frozenset(parked & set(run.running)))
    assert sorted(run.started) == sorted(graph.names)


@pytest.mark.parametrize("schedule", ["waves", "ready"])
@given(random=st.randoms(use_true_random=False))
def test_nothing_later_starts_after_a_failure(schedule: Schedule, random: Random) -> None:
    """Siblings finish; no descendant and no node of a later wave starts; under ready nothing does."""
    run = Executor(random_graph(random), schedule, random)
    run.take()
    failed: list[str] = []
    while run.running:
        name = random.choice(run.running)
        if random.random() < 0.3:
            run.running.remove(name)
            run.frontier.failed(name)
            failed.append(name)
        else:
            run.finish(name)
        for new in run.take():
            assert schedule == "waves" or not failed
            assert all(run.waves[new] <= run.waves[f] for f in failed)
    for one in failed:
        assert not run.graph.descendants(one) & set(run.started)
