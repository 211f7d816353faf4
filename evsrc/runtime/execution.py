"""One execution of one run: its units, the calls in flight, and how it stops.

Rule: an execution is thrown away whenever the run suspends, blocks or the process ends; the journal is
what stays. What stopped code still asks is refused and unrecorded.
Does not know: graphs or workflows (flow_execution.py, workflow.py); it serves whatever code runs in units.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from evsrc.core.events import Scope, WaitAbandoned
from evsrc.core.replay import Recorded
from evsrc.core.state import RunState
from evsrc.errors import CallerError, DivergenceError, RunStopped
from evsrc.runtime.driver import Driver
from evsrc.runtime.journal import Journal
from evsrc.runtime.services import Services
from evsrc.runtime.unit import Place, Slot, Unit, current_asyncio_task, current_place

T = TypeVar("T")

PARK_GRACE_S = 0.05
"""How long a unit must have nothing but parked calls before it counts as waiting for a human."""


class Execution:
    """Code of one run, being executed."""

    def __init__(self, services: Services, journal: Journal) -> None:
        self.services = services
        self.journal = journal
        self.run_id = journal.run_id
        self.stopped = ""
        """Why the code was stopped, empty while it runs."""
        self.blocked: CallerError | None = None
        """The first divergence, ambiguity or mismatch: no terminal event follows it."""

    def unit(self, scope: Scope, *, first: bool = False) -> Unit:
        """A unit for the code that stands under `scope`. `first`: no code ever ran there.

        Then nothing is recorded there, and the run is not searched for it: in a wide fan-out that
        search, for each item, would cost as much as the fan-out is wide.
        """
        state = RunState(self.run_id) if first else self.journal.state
        return Unit(self, scope, state, self.services.stall_s)

    def stop(self, why: str) -> None:
        """Refuse everything the code asks from now on."""
        self.stopped = self.stopped or why

    def block(self, error: CallerError) -> None:
        """Remember why this code does not fit the run."""
        if not isinstance(error, RunStopped) and self.blocked is None:
            self.blocked = error

    async def inside(self, unit: Unit, body: Callable[[], Awaitable[T]]) -> T:
        """Run `body` as the code of `unit`; at its end everything recorded must have been asked for.

        Raises:
            DivergenceError: the code ended without asking for a recorded call.
        """
        token = current_place.set(Place(unit, unit.scope))
        pending = _pending_cancels()
        try:
            value = await body()
        except Exception:
            self._forget_cancels(pending)
            # A node's further attempt may fail before it comes to what an earlier one asked for. The
            # code of a workflow came past all of it when it was recorded: that it fails now is no end.
            if not unit.scope:
                self._check_all_asked(unit)
            raise
        finally:
            current_place.reset(token)
        self._forget_cancels(pending)
        if self.blocked is not None:
            raise self.blocked  # the body may have swallowed it
        self._check_all_asked(unit)
        return value

    def _forget_cancels(self, before: int) -> None:
        """Drop what the body left behind of cancels that were its own affair and are over.

        asyncio.TaskGroup of 3.11 leaves the cancel that a failing child caused on its parent. Later on,
        our own scopes would take it for a cancel from outside, and let it end the task.
        """
        task = None if self.stopped else current_asyncio_task()
        while task is not None and task.cancelling() > before:
            task.uncancel()

    def _check_all_asked(self, unit: Unit) -> None:
        missing = unit.queue.missing
        if missing and not self.stopped:
            self.block(
                DivergenceError(
                    f"run {self.run_id!r}, scope {'/'.join(unit.scope) or '(run)'}: the code ended "
                    f"without asking for {', '.join(list(missing.values())[:3])}, which the run "
                    "recorded. Nothing was sent. Deploy the code that recorded it."
                )
            )
        if self.blocked is not None:
            raise self.blocked

    # ---- waiting for a call ---------------------------------------------------------------------

    async def turn(self, unit: Unit, id_: str) -> None:
        """Wait until the recorded outcome of `id_` is next. Raises DivergenceError as the queue does."""
        if not unit.queue.is_next(id_):
            await _without_slots(lambda: unit.queue.turn(id_))

    async def live(self, unit: Unit) -> None:
        """Wait until replay is over. Raises DivergenceError as the queue does."""
        if not unit.queue.is_live:
            await _without_slots(unit.queue.live)

    async def turn_live(self, unit: Unit, subject: str, scope: Scope, name: str) -> None:
        """Wait until replay is over. Giving up here is as much a fact as giving up later."""
        began = self.services.clock.monotonic()
        try:
            await self.live(unit)
        except anyio.get_cancelled_exc_class():
            if not self.stopped:
                waited_s = self.services.clock.monotonic() - began
                await self.record_give_up(subject, scope, name, waited_s)
            raise
        unit.check()

    async def wait_for(self, unit: Unit, driver: Driver, scope: Scope) -> None:
        """Wait until `driver` ended. A caller that is cancelled is recorded as having given up."""
        began = self.services.clock.monotonic()
        unit.live += 1
        live, waited, slots = True, False, _slots()
        driver.join()
        self.journal.expect(driver.spec.call, unit.queue)
        try:
            while not driver.ended.is_set():
                if live == driver.parked:
                    live = not driver.parked
                    waited |= not live
                    for slot in () if live else slots:
                        slot.give()
                    unit.live += 1 if live else -1
                    unit.parked += -1 if live else 1
                    unit.pulse()
                await driver.state_changed.wait()
            if waited:
                if not live:
                    live = True
                    unit.live += 1
                    unit.parked -= 1
                    unit.pulse()
                await unit.resumed()
                for slot in slots:
                    await slot.take()
            await self.turn(unit, driver.spec.call)
            unit.queue.handed_out(driver.spec.call)
        except anyio.get_cancelled_exc_class():
            driver.leave(gave_up=not self.stopped)
            if not self.stopped:
                waited_s = self.services.clock.monotonic() - began
                await self.record_give_up(driver.spec.call, scope, driver.tool.name, waited_s)
            raise
        finally:
            self.journal.unexpect(driver.spec.call, unit.queue)
            if live:
                unit.live -= 1
            else:
                unit.parked -= 1
            unit.pulse()

    async def record_give_up(self, subject: str, scope: Scope, name: str, waited_s: float) -> None:
        """Record that a caller stopped waiting, before its code goes on. Shielded: it was cancelled."""
        with anyio.CancelScope(shield=True):
            await self.journal.append(
                [WaitAbandoned(subject, waited_s, scope, name)], durable=False
            )

    async def replay_give_up(self, unit: Unit, place: Recorded) -> Any:
        """The recorded caller gave up here: wait for this one to do the same.

        Its own time-out or cancel arrives as it did then; only it can raise through its own scopes.

        Raises:
            DivergenceError: it did not, within the recorded wait and the replay limit.
        """
        limit_s = place.waited_s + self.services.stall_s
        try:
            with anyio.move_on_after(limit_s):
                await anyio.sleep_forever()
        finally:
            unit.queue.handed_out(place.id)
        raise DivergenceError(
            f"the recorded caller of {place.id} gave up after {place.waited_s:.3f} s; this code "
            f"waited {limit_s:.3f} s. Deploy the code that recorded it."
        )


def _slots() -> tuple[Slot, ...]:
    place = current_place.get()
    return () if place is None else place.slots


async def _without_slots(wait: Callable[[], Awaitable[None]]) -> None:
    """Wait for other items of a map, which may need the place that this one has."""
    slots = _slots()
    for slot in slots:
        slot.give()
    await wait()
    for slot in slots:
        await slot.take()


def _pending_cancels() -> int:
    task = current_asyncio_task()
    return 0 if task is None else task.cancelling()


async def wait_parked(unit: Unit) -> None:
    """Return once nothing of `unit` goes on but calls that wait for a human."""
    while True:
        if unit.parked and not unit.live:
            with anyio.move_on_after(PARK_GRACE_S):
                await unit.idle.wait()
                continue
            if unit.parked and not unit.live:
                return
        else:
            await unit.idle.wait()
