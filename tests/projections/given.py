"""Events as a projection is fed them, without a log."""

from typing import TypeVar

from evsrc.core.events import ErrorData, Event, IntentRecorded, NodeOutput, RunStarted
from evsrc.projections.base import Projection, Seen

P = TypeVar("P", bound=Projection)

SECOND = 1_000_000_000
STARTED = RunStarted("triage", "1", b"\xa1x", "d1")
ERROR = ErrorData("Rejected", "no")


def feed(projection: P, *events: Event, run: str = "r-1", first: int = 1) -> P:
    """Feed events of one run, a record and a second each."""
    for position, event in enumerate(events, start=first):
        projection.apply(Seen(run, event, position, position * SECOND))
    return projection


def intent(
    call: str = "c1", attempt: int = 1, *, scope: tuple[str, ...] = (), cost: float = 0.0
) -> IntentRecorded:
    return IntentRecorded(
        call, attempt, "page", "key", "marker", scope, b"\x80", b"\x80", "asked", cost=cost
    )


def output(
    node: str = "n",
    key: str = "k",
    *,
    attempt: int = 1,
    item: str = "",
    source_run: str = "",
    cost: float = 0.0,
) -> NodeOutput:
    return NodeOutput(node, key, b"\xc0", "digest", attempt, item, source_run=source_run, cost=cost)
