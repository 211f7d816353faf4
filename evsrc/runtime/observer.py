"""The one observer seam: progress bars, logging, metrics, tracing and crash injection listen here.

Rule: each moment is emitted once, in one place. An observer's exception is logged and changes nothing.
Does not know: who listens. Moments carry ids and names, never arguments: alert text stays in the log.
"""

from typing import Literal, Protocol, TypeAlias

import msgspec

MomentName: TypeAlias = Literal[
    "run_started",
    "node_start",
    "node_output",
    "node_reused",
    "node_failed",
    "before_intent",
    "after_intent",
    "answered",
    "after_result",
    "outcome_unknown",
    "question",
    "run_suspended",
    "run_ended",
]


class Moment(msgspec.Struct, frozen=True):
    """One named moment of a run. `node` and `tool` are names from code; `item` is data."""

    name: MomentName
    run: str
    call: str = ""
    tool: str = ""
    node: str = ""
    item: str = ""
    attempt: int = 0
    detail: str = ""


class Observer(Protocol):
    """Anything with `on`. Called on the event loop: it must be quick, and may block only in tests."""

    def on(self, moment: Moment, /) -> None:
        """Learn of one moment."""
        ...


class Observers:
    """Several observers as one; none can hurt the run."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def on(self, moment: Moment, /) -> None:
        """Tell each observer."""
        for observer in self._observers:
            try:
                observer.on(moment)
            except Exception:
                import logging

                logging.getLogger("evsrc").exception("observer failed at %s", moment.name)
