"""The clock and the entropy that the runtime is given, so that tests and the crash harness own time.

Rule: wall time is only written down; every wait is measured on the monotonic clock.
Does not know: what the times are for.
"""

import os
import time
from collections.abc import Callable
from typing import Protocol

import anyio

Entropy = Callable[[int], bytes]
"""Returns that many random bytes."""


class Clock(Protocol):
    """Wall time in nanoseconds, monotonic time and sleeping in seconds."""

    def now_ns(self) -> int:
        """Wall time since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, from an arbitrary start."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many monotonic seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ns(self) -> int:
        """Wall time since the epoch, in nanoseconds."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await anyio.sleep(seconds)


def system_entropy(count: int) -> bytes:
    """Random bytes of the operating system."""
    return os.urandom(count)
