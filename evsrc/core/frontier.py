"""The frontier: which nodes of a graph may start next, as others become done, failed or parked.

Rule: under "ready" a node starts as soon as its needs are met; under "waves" only when every node of
all earlier waves is done, or waits for a human, or descends from one that does. After a failure nothing
of a later wave starts ("waves"), or nothing at all ("ready"); what runs, finishes.
Does not know: what a node does. Works in steps instead of scanning the graph, so that chains of 5,000
and waves of 10,000 nodes cost what their edges cost.
"""

from collections.abc import Set as AbstractSet
from typing import Literal

from evsrc.core.graph import Graph


class Frontier:
    """What may start next. Every node is taken once."""

    def __init__(self, graph: Graph, schedule: Literal["waves", "ready"]) -> None:
        self._graph = graph
        self._schedule = schedule
        self._wave = {name: i for i, wave in enumerate(graph.waves) for name in wave}
        self._place = {name: i for i, name in enumerate(graph.names)}
        self._left = [len(wave) for wave in graph.waves]
        """Per wave: nodes that are not done."""
        self._first_left = 0
        """The first wave that is not done; only grows, so that a chain is not scanned for each node."""
        self._needs = {name: len(set(graph.needs[name])) for name in graph.names}
        self._below: dict[str, list[str]] = {name: [] for name in graph.names}
        for name in graph.names:
            for need in set(graph.needs[name]):
                self._below[need].append(name)
        self._met = [name for name in graph.names if not self._needs[name]]
        self._done: set[str] = set()
        self._failed: set[str] = set()
        self._held: dict[int, int] = {}
        """Per wave: nodes that are stuck, or descend from one that is."""
        self._held_of: frozenset[str] = frozenset()

    def done(self, name: str) -> None:
        """A node has its output."""
        self._done.add(name)
        self._left[self._wave[name]] -= 1
        for below in self._below[name]:
            self._needs[below] -= 1
            if not self._needs[below]:
                self._met.append(below)

    def failed(self, name: str) -> None:
        """A node has no further attempt."""
        self._failed.add(name)

    def take_ready(self, parked: AbstractSet[str] = frozenset()) -> list[str]:
        """The nodes that may start now, in declared order within a wave; each is given out once."""
        if self._failed and self._schedule == "ready":
            return []
        limit = len(self._graph.waves) if self._schedule == "ready" else self._wave_limit(parked)
        ready = [name for name in self._met if self._wave[name] <= limit]
        self._met = [name for name in self._met if self._wave[name] > limit]
        return sorted(ready, key=lambda name: (self._wave[name], self._place[name]))

    def _wave_limit(self, parked: AbstractSet[str]) -> int:
        """The first wave in which something is neither done nor held back: none later may start."""
        while self._first_left < len(self._left) and not self._left[self._first_left]:
            self._first_left += 1
        held = self._hold(frozenset((parked | self._failed) - self._done))
        limit = self._first_left
        while limit < len(self._left) and self._left[limit] <= held.get(limit, 0):
            limit += 1
        return min([limit, *(self._wave[name] for name in self._failed)])

    def _hold(self, stuck: frozenset[str]) -> dict[int, int]:
        """Per wave, how many nodes are stuck or descend from one: none of these can be done meanwhile."""
        if stuck != self._held_of:
            self._held = {}
            for name in stuck.union(*(self._graph.descendants(name) for name in stuck)):
                self._held[self._wave[name]] = self._held.get(self._wave[name], 0) + 1
            self._held_of = stuck
        return self._held
