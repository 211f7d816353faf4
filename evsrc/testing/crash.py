"""The crash harness: run code in a child process and kill it with SIGKILL at a named instant.

Rule: crashes are real. The child stops itself at the instant and says so; its parent kills it and sees
exit status -9. Children are forked from a server process that has imported everything and started no
thread, so that a hundred crashes take seconds.
Does not know: what runs in the child, beyond `entry`; what the instants mean to the outside world.

    with CrashServer("my_tests.child:main") as server:
        end = server.run({"folder": "..."}, kill_at=KillPoint("after_intent", tool="open_ticket"))
        assert end.killed

A function `warm` beside the entry, if there is one, is called once in the server, before the first fork:
it may import and prepare what every child needs, and must start no thread.

`entry` is called in the child as ``entry(config, observer, fs_factory)``: give `observer` to
`open_runtime(observers=[observer])` and open the file log with ``fs=fs_factory()``.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from evsrc.runtime.observer import Moment

ENTRY_TIMEOUT_S = 120.0
"""Longest run of one child: a hang is a failure, not a wait."""

POLL_S = 0.005
"""How often the parent asks whether the world holds a committed effect."""


class KillPoint(msgspec.Struct, frozen=True):
    """An instant: the `nth` moment of that name, of that tool or node (empty: any).

    Two instants are no moments of ours: ``effect_committed`` is when the world says so (the server asks
    `held`), and ``mid_result_write`` is half-way through writing the record that follows ``answered``.
    """

    name: str
    tool: str = ""
    node: str = ""
    nth: int = 1

    def matches(self, moment: Moment) -> bool:
        """Is this the moment, apart from its number?"""
        name = "answered" if self.name == "mid_result_write" else self.name
        return (
            moment.name == name
            and self.tool in ("", moment.tool)
            and self.node in ("", moment.node)
        )


class ChildEnd(msgspec.Struct, frozen=True):
    """How a child ended: exit status -9 for killed, its return value, or its error's text."""

    status: int
    result: Any = None
    error: str = ""

    @property
    def killed(self) -> bool:
        """Was it killed by its parent, at the instant?"""
        return self.status == -signal.SIGKILL


class Job(msgspec.Struct, frozen=True):
    """What the server is told to run. `held_url` is asked for `effect_committed`."""

    config: Any
    kill_at: KillPoint | None = None
    held_url: str = ""
    torn_write: bool = True


# ---- in the parent of the server ---------------------------------------------------------------


class CrashServer:
    """A server process that forks children of `entry` ("module:function"). Use from one thread."""

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        import sys

        self._process = subprocess.Popen(
            [sys.executable, "-m", "evsrc.testing.crash_server", self._entry],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            with process:
                if process.stdin is not None:
                    process.stdin.close()

    def run(
        self,
        config: Any,
        *,
        kill_at: KillPoint | None = None,
        held_url: str = "",
        torn_write: bool = True,
    ) -> ChildEnd:
        """Run one child to its end, or to the instant at which it is killed.

        Args:
            config: plain data for `entry`.
            held_url: where the world tells that it committed and holds its reply.
            torn_write: False where there is no file log: `mid_result_write` is then `answered`.

        Raises:
            RuntimeError: the server ended.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the crash server is not running: use it as a context manager")
        process.stdin.write(msgspec.json.encode(Job(config, kill_at, held_url, torn_write)) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the crash server of {self._entry} ended: {process.wait()}")
        return msgspec.json.decode(line, type=ChildEnd)


# ---- in the child ------------------------------------------------------------------------------


class CrashObserver:
    """Counts moments, and stops the process at the instant until its parent kills it."""

    def __init__(self, kill_at: KillPoint | None, pipe: int, *, torn_write: bool) -> None:
        self._kill_at = kill_at
        self._pipe = pipe
        self._torn_write = torn_write
        self._seen = 0
        self.armed = False
        """The next write to the log is the one to tear."""

    def on(self, moment: Moment, /) -> None:
        """Count one moment; at the instant, stop."""
        point = self._kill_at
        if point is None or not point.matches(moment):
            return
        self._seen += 1
        if self._seen != point.nth:
            return
        if point.name == "mid_result_write" and self._torn_write:
            self.armed = True
            return
        self.stop_here()

    def stop_here(self) -> None:
        """Say that the instant is reached, and wait to be killed. On any thread."""
        os.write(self._pipe, b"k")
        while True:
            time.sleep(60)


class TearingFs:
    """A file system seam that writes half of an armed write, then stops. Wraps a real one."""

    def __init__(self, inner: Any, observer: CrashObserver) -> None:
        self._inner = inner
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, fd: Any, data: Any) -> int:
        """Write; half of it and a stop if armed."""
        if self._observer.armed:
            view = memoryview(data)
            self._inner.write(fd, view[: max(1, len(view) // 2)])
            self._observer.stop_here()
        return int(self._inner.write(fd, data))


Entry = Callable[[Any, CrashObserver, Callable[[], Any]], Any]
"""``entry(config, observer, fs_factory) -> plain data``, run in the child."""
