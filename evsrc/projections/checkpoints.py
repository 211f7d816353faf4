"""Checkpoints: node key -> output, over every run of a log.

Rule: derived from NodeOutput events only; a key that is not found is simply computed again. A node that
recorded an intent, and whatever descends from one, has its run id in its key: no other run finds it.
Does not know: whether a checkpoint may be used; core/nodes.py admits it by its upstream digests.
"""

from evsrc.core.events import NodeOutput
from evsrc.projections.base import Seen


class Checkpoints:
    """The newest output per node key, and the run that computed it."""

    def __init__(self) -> None:
        self._by_key: dict[str, tuple[str, NodeOutput]] = {}

    def apply(self, seen: Seen, /) -> None:
        """Take in one event."""
        if isinstance(seen.event, NodeOutput):
            self.add(seen.run, seen.event)

    def add(self, run: str, output: NodeOutput) -> None:
        """Take in one output."""
        self._by_key[output.key] = (output.source_run or run, output)

    def find(self, key: str) -> tuple[str, NodeOutput] | None:
        """(run, output) under that key."""
        return self._by_key.get(key)

    def __len__(self) -> int:
        return len(self._by_key)
