"""The graph of a flow: Kahn's waves, cycles named, and what may start given what is done.

Rule: a bad shape fails at the build, before any effect. Nothing here recurses, so a chain of 5,000
nodes and a wave of 10,000 cost what their edges cost.
Does not know: what a node is or does; names only.
Must change together: core/frontier.py, which answers `ready` step by step instead of from scratch.
"""

from collections.abc import Iterable, KeysView, Mapping, Sequence
from typing import cast

from evsrc.errors import CycleError, GraphError

NAMES_SHOWN_MAX = 3
"""Near names offered for an unknown one: more is a list to read, not a hint."""


class Graph:
    """Nodes and what they need, free of cycles. Made by `build_graph`; never changes."""

    __slots__ = ("_below", "needs", "waves")

    def __init__(
        self, needs: Mapping[str, tuple[str, ...]], waves: tuple[tuple[str, ...], ...]
    ) -> None:
        self.needs = needs
        """Node -> the nodes it needs, each once, in declared order of nodes."""
        self.waves = waves
        """Every node stands in the first wave after all its needs; declared order inside a wave."""
        self._below = _below(needs)

    @property
    def names(self) -> KeysView[str]:
        """All nodes, in declared order."""
        return self.needs.keys()

    def ancestors(self, name: str) -> frozenset[str]:
        """Everything that `name` needs, directly or not. Raises KeyError for an unknown node."""
        return _reachable(self.needs, name)

    def descendants(self, name: str) -> frozenset[str]:
        """Everything that needs `name`, directly or not. Raises KeyError for an unknown node."""
        return _reachable(self._below, name)

    def __repr__(self) -> str:
        return f"Graph({len(self.needs)} nodes, {len(self.waves)} waves)"


def build_graph(
    nodes: Mapping[str, Sequence[str]] | Iterable[tuple[str, Sequence[str]]],
) -> Graph:
    """The graph of nodes and their needs. Pairs, not a mapping, let a name that is used twice be seen.

    A need named twice by one node counts once.

    Raises:
        GraphError: a name is used twice, or a node needs one that is not declared; names both, and
            names that are near.
        CycleError: nodes need each other in a circle; its `path` is such a circle: each node needs
            the one after it.
    """
    needs = _declared(nodes)
    for name, wanted in needs.items():
        for need in wanted:
            if need not in needs:
                raise GraphError(f"node {name!r} needs {need!r}, {_undeclared(need, needs)}")
    return Graph(needs, _waves(needs))


# ---- building -------------------------------------------------------------------------------------


def _declared(
    nodes: Mapping[str, Sequence[str]] | Iterable[tuple[str, Sequence[str]]],
) -> dict[str, tuple[str, ...]]:
    if isinstance(nodes, Mapping):
        nodes = cast("Mapping[str, Sequence[str]]", nodes).items()
    needs: dict[str, tuple[str, ...]] = {}
    for name, wanted in nodes:
        if name in needs:
            raise GraphError(f"two nodes are called {name!r}; rename one")
        needs[name] = tuple(dict.fromkeys(wanted))
    return needs


def _undeclared(need: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(need, list(known), NAMES_SHOWN_MAX)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"which is not declared{hint}"


def _below(needs: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    below: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            below[need].append(name)
    return below


def _waves(needs: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Kahn's algorithm, a wave at a time: take what has no open needs, close it, look below it."""
    place = {name: index for index, name in enumerate(needs)}
    open_needs = {name: len(wanted) for name, wanted in needs.items()}
    below = _below(needs)
    waves: list[tuple[str, ...]] = []
    wave = [name for name, count in open_needs.items() if not count]
    while wave:
        waves.append(tuple(wave))
        freed: list[str] = []
        for name in wave:
            for after in below[name]:
                open_needs[after] -= 1
                if not open_needs[after]:
                    freed.append(after)
        wave = sorted(freed, key=place.__getitem__)
    stuck = {name for name, count in open_needs.items() if count}
    if stuck:
        raise CycleError(_cycle(needs, stuck))
    return tuple(waves)


def _cycle(needs: Mapping[str, tuple[str, ...]], stuck: set[str]) -> tuple[str, ...]:
    """A circle among the nodes that Kahn's algorithm could not place.

    Each of them needs another of them, so following such needs comes back to a node already seen;
    what lies before that node is the way to the circle and is left out.
    """
    name = next(name for name in needs if name in stuck)
    seen: dict[str, int] = {}
    path: list[str] = []
    while name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = next(need for need in needs[name] if need in stuck)
    return (*path[seen[name] :], name)


def _reachable(edges: Mapping[str, Sequence[str]], start: str) -> frozenset[str]:
    found: set[str] = set()
    stack = list(edges[start])
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += edges[name]
    return frozenset(found)
