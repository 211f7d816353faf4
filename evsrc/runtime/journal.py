"""The journal of one run: appends events to its stream, and evolves its state when they land.

Rule: the state changes on the event loop, in log order, when the log says "landed", before any waiter
wakes; never after the appender's own await, which a cancelled appender never reaches.
Does not know: what is decided. One journal per run id and process.
"""

from collections.abc import Callable, Sequence

import anyio

from evsrc.core.codec import decode_events, encode_events
from evsrc.core.events import Event
from evsrc.core.replay import outcome_of
from evsrc.core.state import RunState, evolve
from evsrc.log.base import Log, Record
from evsrc.runtime.replay import ReplayQueue

Listener = Callable[[RunState, Event], None]


class Journal:
    """One run's events and state. `on_event` hears every event right after it changed the state."""

    def __init__(self, log: Log, run_id: str, on_event: Listener | None = None) -> None:
        self.log = log
        self.run_id = run_id
        self.state = RunState(run_id)
        self._on_event = on_event
        self._waiting: dict[str, anyio.Event] = {}
        self._expected: dict[str, list[ReplayQueue]] = {}

    def load(self, record: Record) -> None:
        """Fold a record that was read, not appended.

        Raises:
            UnknownEvent: the record holds an event tag of a later version.
        """
        for event in decode_events(record.body):
            evolve(self.state, event)

    async def append(
        self, events: Sequence[Event], *, durable: bool = True, essential: bool = False
    ) -> None:
        """Append `events` as one record. Raises what `Log.append` raises."""

        def landed(_: Record) -> None:
            for event in events:
                evolve(self.state, event)
                self._arrived(event)
                if self._on_event is not None:
                    self._on_event(self.state, event)
            for event in events:
                self.pulse(event)

        await self.log.append(
            self.run_id,
            encode_events(events),
            count=len(events),
            durable=durable,
            essential=essential,
            landed=landed,
        )

    def expect(self, id_: str, queue: ReplayQueue) -> None:
        """User code waits for the outcome of a call or read: queue it when it lands."""
        self._expected.setdefault(id_, []).append(queue)

    def unexpect(self, id_: str, queue: ReplayQueue) -> None:
        """It does not wait any more."""
        queues = self._expected.get(id_, [])
        if queue in queues:
            queues.remove(queue)
        if not queues:
            self._expected.pop(id_, None)
        queue.forget(id_)

    def _arrived(self, event: Event) -> None:
        # Waiters wake in the loop's order, which may be any; what they see must come in log order, since
        # that is the order in which a replay will hand it out.
        if self._expected:
            id_ = outcome_of(self.state, event)
            for queue in self._expected.pop(id_, []):
                queue.arrived(id_, self.state.events)

    def pulse(self, event: Event) -> None:
        """Wake whoever waits for what the event is about."""
        for name in ("call", "question", "subject"):
            subject = getattr(event, name, "")
            if subject:
                self.wake(subject)
        question = self.state.questions.get(getattr(event, "question", ""))
        if question is not None:
            self.wake(question.asked.subject)

    def wake(self, subject: str) -> None:
        """Wake those who wait for `subject`."""
        waiting = self._waiting.pop(subject, None)
        if waiting is not None:
            waiting.set()

    async def changed(self, subject: str) -> None:
        """Return when an event about `subject` lands (or somebody wakes it)."""
        await self._waiting.setdefault(subject, anyio.Event()).wait()
