"""What every part of the runtime shares: the log's namespace, the clock, the group, and who is busy.

Rule: holds no decision. One object per open runtime, handed down explicitly instead of globals.
Does not know: flows, runs or calls.
"""

from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.abc import TaskGroup

from evsrc.core.calls import CallState
from evsrc.log.base import Log
from evsrc.runtime.clock import Clock, Entropy
from evsrc.runtime.observer import Moment, Observers
from evsrc.tools.bound import BoundTool
from evsrc.tools.call import SecretResolver
from evsrc.tools.toolset import ToolSet

if TYPE_CHECKING:
    from evsrc.runtime.driver import Driver

BLOCKING_THREADS = 40
"""Threads for blocking nodes, steps and tools: our own limiter, so that they starve nobody else's."""


class OwnKeyUse(msgspec.Struct, frozen=True):
    """The first call of this log that may have acted under a caller's own key."""

    run_id: str
    asked_digest: str


class Services:
    """Shared by all runs of one runtime."""

    def __init__(
        self,
        log: Log,
        group: TaskGroup,
        *,
        clock: Clock,
        entropy: Entropy,
        observers: Observers,
        tools: ToolSet,
        stall_s: float,
        secrets: SecretResolver,
    ) -> None:
        self.log = log
        self.group = group
        self.clock = clock
        self.entropy = entropy
        self.observers = observers
        self.tools = tools
        self.stall_s = stall_s
        self.secrets = secrets
        self.threads = anyio.CapacityLimiter(BLOCKING_THREADS)
        self.drivers: dict[tuple[str, str], Driver] = {}
        self.targets: dict[str, str] = {}
        """Busy target of a STATE tool -> id of the call that is unsettled on it."""
        self.orphans: set[str] = set()
        """Markers that a sweep saw and no intent of this log explains."""
        self.own_keys: dict[str, OwnKeyUse] = {}
        """Callers' own keys, which mean the same in every run of the log."""
        self._target_event = anyio.Event()
        self._limiters: dict[tuple[str, str], anyio.CapacityLimiter] = {}

    def emit(self, moment: Moment) -> None:
        """Tell the observers of one moment."""
        self.observers.on(moment)

    def note_own_key(self, run_id: str, call: CallState) -> None:
        """Remember a call under its caller's own key, unless nothing can have happened."""
        intent = call.intent
        if intent.own_key and not call.without_effect:
            self.own_keys.setdefault(intent.key, OwnKeyUse(run_id, intent.asked_digest))

    def limiter(self, tool: BoundTool) -> anyio.CapacityLimiter | None:
        """The limiter of a tool that declares `at_once`; one per tool and instance."""
        if tool.at_once is None:
            return None
        place = (tool.name, tool.instance)
        return self._limiters.setdefault(place, anyio.CapacityLimiter(tool.at_once))

    def take_target(self, target: str, call: str) -> bool:
        """Reserve a target for a call; False while another call is unsettled on it."""
        return not target or self.targets.setdefault(target, call) == call

    def free_target(self, target: str, call: str) -> None:
        """The call is settled: others may act on its target."""
        if target and self.targets.get(target) == call:
            del self.targets[target]
            self._target_event.set()
            self._target_event = anyio.Event()

    async def target_changed(self) -> None:
        """Return when some target was freed."""
        await self._target_event.wait()
