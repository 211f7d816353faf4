"""A unit is one piece of user code that replays as a whole: a node, an item of a fan-out, a workflow body.

Rule: a call is named by where it stands (scope), what it calls, and its label or its number among the
unlabelled calls of that tool in that scope. Calls that could not be told apart on replay are refused.
Does not know: tools or events. The scope path lives in a context variable, so that a `run` captured by a
closure still names the scope of the task that uses it.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from evsrc.core.events import Scope
from evsrc.core.replay import owed, recorded
from evsrc.core.state import RunState
from evsrc.errors import AmbiguousCall, KeyReuseError, LimitExceeded, RunStopped
from evsrc.runtime.replay import ReplayQueue

if TYPE_CHECKING:
    from evsrc.runtime.execution import Execution

SCOPE_DEPTH_MAX = 16
"""Deepest scope path: deeper nesting is a loop that should be a list."""

LABEL_BYTES_MAX = 200
"""Longest label or item key: they come from alerts, which attackers write."""

current_place: ContextVar["Place | None"] = ContextVar("evsrc_place", default=None)


class Place:
    """Where a task stands: in which unit, under which scope path."""

    __slots__ = ("scope", "slots", "unit")

    def __init__(self, unit: "Unit", scope: Scope, slots: "tuple[Slot, ...]" = ()) -> None:
        if len(scope) > SCOPE_DEPTH_MAX:
            raise LimitExceeded(
                f"scope {'/'.join(scope)[:200]!r} is {len(scope)} deep, at most {SCOPE_DEPTH_MAX}"
            )
        self.unit = unit
        self.scope = scope
        self.slots = slots


class Slot:
    """A place among the items of a map that run at once; given back while its item waits for a human."""

    __slots__ = ("_held", "_limiter", "_wanted")

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        self._limiter = limiter
        self._held = False
        self._wanted = False

    async def take(self) -> None:
        """Wait for the place. Idempotent: of two calls of one item that waited, one takes it again."""
        if self._wanted:
            return
        self._wanted = True
        try:
            await self._limiter.acquire_on_behalf_of(self)
        except BaseException:
            self._wanted = False
            raise
        self._held = True

    def give(self) -> None:
        """Give the place to the next item. Idempotent."""
        if self._held:
            self._limiter.release_on_behalf_of(self)
            self._held = self._wanted = False


class _Counter:
    """Unlabelled calls of one tool in one scope: how many, by whom, and whether one is in flight."""

    __slots__ = ("count", "in_flight", "task")

    def __init__(self) -> None:
        self.count = 0
        self.in_flight = 0
        self.task: Any = None


class Unit:
    """One execution of one piece of user code, with its replay queue and its calls' names."""

    def __init__(
        self, execution: "Execution", scope: Scope, state: RunState, stall_s: float
    ) -> None:
        self.execution = execution
        self.scope = scope
        self.queue = ReplayQueue(recorded(state, scope), owed(state, scope), stall_s)
        self.live = 0
        """Asks that are being worked on."""
        self.parked = 0
        """Asks that wait for a human."""
        self.idle = anyio.Event()
        self.resumed: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
        """Awaited after a wait for a human, before the code goes on: a node takes its slot again."""
        self._counters: dict[tuple[Scope, str], _Counter] = {}
        self._labels: set[tuple[Scope, str, str]] = set()

    def claim(self, scope: Scope, name: str, label: str) -> tuple[int, "Claim"]:
        """The ordinal of a call (0 for a labelled one) and a claim to release when it is settled.

        Raises:
            KeyReuseError: the label was used in this scope in this execution.
            AmbiguousCall: an unlabelled call of that tool in that scope is in flight, or was made by
                another task that is still alive.
            LimitExceeded: the label is too long.
            RunStopped: the run's code was stopped.
        """
        self.check()
        if label:
            check_label(label)
            named = (scope, name, label)
            if named in self._labels:
                raise KeyReuseError(
                    f"label {label!r} of {name} is used twice in scope {'/'.join(scope)}: "
                    "a label names one call"
                )
            self._labels.add(named)
            return 0, Claim(None)
        counter = self._counters.setdefault((scope, name), _Counter())
        task = _current_task()
        if counter.in_flight or (counter.task is not task and _alive(counter.task)):
            raise AmbiguousCall(
                f"two unlabelled calls of {name} in scope {'/'.join(scope) or '(run)'} could not be "
                "told apart on replay: give each a label (run.options(label=...)), or use run.map "
                "with a key per item"
            )
        counter.task = task
        counter.count += 1
        counter.in_flight += 1
        return counter.count, Claim(counter)

    def pulse(self) -> None:
        """What waits or goes on has changed."""
        self.idle.set()
        self.idle = anyio.Event()

    @contextmanager
    def parking(self) -> Generator[None]:
        """Something of this unit waits for a human."""
        self.parked += 1
        self.pulse()
        try:
            yield
        finally:
            self.parked -= 1
            self.pulse()

    def check(self) -> None:
        """Raises RunStopped once the run's code was stopped: nothing it asks is done or recorded."""
        if self.execution.stopped:
            raise RunStopped(
                f"run {self.execution.run_id!r} was stopped ({self.execution.stopped}); "
                "what its code asks now is neither done nor recorded"
            )


class Claim:
    """An unlabelled call in flight."""

    __slots__ = ("_counter",)

    def __init__(self, counter: _Counter | None) -> None:
        self._counter = counter

    def release(self) -> None:
        """The call is settled. Idempotent."""
        if self._counter is not None:
            self._counter.in_flight -= 1
            self._counter = None


def check_label(label: str) -> None:
    """Raises LimitExceeded if a label or item key is over LABEL_BYTES_MAX bytes of UTF-8."""
    size = len(label.encode("utf-8", "surrogatepass"))
    if size > LABEL_BYTES_MAX:
        raise LimitExceeded(f"label or item key of {size} bytes, at most {LABEL_BYTES_MAX}")


def _current_task() -> Any:
    """The native task, held strongly: an id alone would be given to another task after its death."""
    import sys

    trio = sys.modules.get("trio")
    if trio is not None:
        try:
            return trio.lowlevel.current_task()
        except RuntimeError:
            pass  # trio is loaded, but this loop is asyncio
    return current_asyncio_task()


def current_asyncio_task() -> Any:
    """The native task where asyncio runs this code, else None."""
    import sys

    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _alive(task: Any) -> bool:
    return task is not None and any(t.id == id(task) for t in anyio.get_running_tasks())
