"""The replay queue of one unit of user code (a node, an item, a workflow body).

Rule: recorded outcomes are handed out one at a time, in log order; live work waits until the last one
was handed out and every recorded call was asked for again. The wait is bounded: code that holds its own
locks around calls can stall it, and then the run is blocked instead of hanging.
Does not know: events or tools; core/replay.py says what is recorded and in which order.
"""

from collections import deque

import anyio

from evsrc.core.replay import Recorded
from evsrc.errors import DivergenceError

REPLAY_STALL_S = 30.0
"""How long replay waits for a recorded call to be asked for again: far above any scheduling delay, far
below a shift of the on-call."""


class ReplayQueue:
    """What is still owed to the code, and who may go next."""

    def __init__(
        self, recorded: list[Recorded], owed: dict[str, str], stall_s: float = REPLAY_STALL_S
    ) -> None:
        self._left = deque(recorded)
        self._places = {r.id: r for r in recorded}
        self._unasked = dict(owed)
        self._turns: dict[str, anyio.Event] = {}
        self._live = anyio.Event()
        self._stall_s = stall_s
        self._settle()

    def asked(self, id_: str) -> Recorded | None:
        """Note that the code asked for `id_`; its place in the queue, if it has one left."""
        self._unasked.pop(id_, None)
        self._settle()
        return self._places.get(id_)

    async def turn(self, id_: str) -> None:
        """Return when the outcome of `id_` is the next one to hand out.

        Raises:
            DivergenceError: the code did not ask for the outcomes recorded before it.
        """
        while id_ in self._places and self._left[0].id != id_:
            await self._wait(self._turns.setdefault(id_, anyio.Event()))

    def handed_out(self, id_: str) -> None:
        """The outcome of `id_` is being returned or raised: the next one may follow."""
        if self._left and self._left[0].id == id_:
            self._left.popleft()
            self._places.pop(id_, None)
        self._wake_next()
        self._settle()

    def arrived(self, id_: str, order: int) -> None:
        """A live outcome landed: it is handed out after those that landed before it, as on replay."""
        if id_ not in self._places:
            self._places[id_] = Recorded(id_, order, "outcome")
            self._left.append(self._places[id_])

    def forget(self, id_: str) -> None:
        """Nobody waits for this outcome any more: those behind it move up."""
        place = self._places.pop(id_, None)
        if place is not None:
            self._left.remove(place)
            self._wake_next()

    async def live(self) -> None:
        """Return when nothing recorded is owed any more.

        Raises:
            DivergenceError: a recorded call was not asked for again in time.
        """
        if not self._live.is_set():
            await self._wait(self._live)

    def is_next(self, id_: str) -> bool:
        """Would `turn` return at once?"""
        return id_ not in self._places or self._left[0].id == id_

    @property
    def is_live(self) -> bool:
        """Would `live` return at once?"""
        return self._live.is_set()

    @property
    def missing(self) -> dict[str, str]:
        """Recorded calls and reads that the code has not asked for: id -> description."""
        return dict(self._unasked)

    def _wake_next(self) -> None:
        if self._left:
            turn = self._turns.pop(self._left[0].id, None)
            if turn is not None:
                turn.set()

    def _settle(self) -> None:
        if not self._left and not self._unasked:
            self._live.set()

    async def _wait(self, event: anyio.Event) -> None:
        with anyio.move_on_after(self._stall_s):
            await event.wait()
            return
        owed = ", ".join(list(self._unasked.values())[:3]) or f"call {self._left[0].id}"
        raise DivergenceError(
            f"the recorded run asked for {owed} next; this code did not within {self._stall_s:g} s. "
            "Deploy the code that recorded it; a lock of your own around calls can cause this too."
        )
