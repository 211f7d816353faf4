"""The server process of the crash harness: imports the entry once, then forks a child per job.

Rule: starts no thread before a fork, and is the parent that kills. One job at a time, one JSON line each
way on standard input and output.
Does not know: what the entry does.
"""

import importlib
import os
import select
import signal
import sys
import time
from types import ModuleType
from typing import Any

import msgspec

from evsrc.testing.crash import (
    ENTRY_TIMEOUT_S,
    POLL_S,
    ChildEnd,
    CrashObserver,
    Entry,
    Job,
    TearingFs,
)


def main() -> None:
    """Serve jobs until standard input ends."""
    module, _, name = sys.argv[1].partition(":")
    home = importlib.import_module(module)
    entry: Entry = getattr(home, name)
    _warm(home)
    for line in sys.stdin.buffer:
        end = run_job(entry, msgspec.json.decode(line, type=Job))
        sys.stdout.buffer.write(msgspec.json.encode(end) + b"\n")
        sys.stdout.buffer.flush()


def _warm(home: ModuleType) -> None:
    """Load what every child will need: forked, it is there already, and a crash costs milliseconds."""
    for module in ("evsrc.runtime.runtime", "evsrc.log.file.log", "evsrc.runtime.postman"):
        importlib.import_module(module)
    warm = getattr(home, "warm", None)
    if warm is not None:
        warm()


def run_job(entry: Entry, job: Job) -> ChildEnd:
    """Fork one child, watch it, kill it at the instant."""
    from_child, to_parent = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(from_child)
        _child(entry, job, to_parent)
    os.close(to_parent)
    try:
        return _watch(pid, from_child, job)
    finally:
        os.close(from_child)


def _child(entry: Entry, job: Job, pipe: int) -> None:
    """Run the entry and report; never returns."""
    # The server's standard streams carry the protocol: a print in a node must not land in there.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    kill_at = job.kill_at
    if kill_at is not None and kill_at.name == "effect_committed":
        kill_at = None  # the parent decides, when the world says so
    observer = CrashObserver(kill_at, pipe, torn_write=job.torn_write)

    def fs_factory() -> Any:
        from evsrc.log.file.fs import RealFs

        return TearingFs(RealFs(), observer)

    status = 1
    try:
        result = entry(job.config, observer, fs_factory)
        os.write(pipe, b"r" + msgspec.json.encode(result))
        status = 0
    except BaseException:  # noqa: BLE001  whatever it is, the parent reports it
        import traceback

        os.write(pipe, b"e" + traceback.format_exc().encode("utf-8", "replace")[-4000:])
    finally:
        os._exit(status)


def _watch(pid: int, pipe: int, job: Job) -> ChildEnd:
    deadline = time.monotonic() + ENTRY_TIMEOUT_S
    committed = job.kill_at is not None and job.kill_at.name == "effect_committed"
    data = b""
    while time.monotonic() < deadline:
        if select.select([pipe], [], [], POLL_S if committed else 1.0)[0]:
            chunk = os.read(pipe, 65536)
            data += chunk
            if data[:1] == b"k":
                return _kill(pid)
            if not chunk:
                return _ended(pid, data)
        elif committed and _held(job.held_url):
            return _kill(pid)
    _kill(pid)
    return ChildEnd(1, error=f"the child was still running after {ENTRY_TIMEOUT_S:g} s")


def _kill(pid: int) -> ChildEnd:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return ChildEnd(os.waitstatus_to_exitcode(status))


def _ended(pid: int, data: bytes) -> ChildEnd:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if data[:1] == b"r":
        return ChildEnd(code, msgspec.json.decode(data[1:]))
    return ChildEnd(code, error=data[1:].decode("utf-8", "replace"))


def _held(url: str) -> bool:
    """Does the world hold a committed effect? Asked over loopback, without threads."""
    from urllib.request import urlopen

    with urlopen(url, timeout=10) as answer:
        return bool(answer.read() != b"null")


if __name__ == "__main__":
    main()
