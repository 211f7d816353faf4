"""The writer's lock: `flock` on the file LOCK and on the folder itself.

Two locks, because a clean-up job that deletes LOCK would otherwise let a second writer lock a fresh
file of that name. A process number in a file was not chosen as the lock: numbers are used again, and in
containers every process is number 1. The text in LOCK only names the holder in messages.

Rule: LOCK is never unlinked; the kernel frees the locks when the holder's last descriptor goes.
Does not know: what is locked.
"""

import os
from contextlib import ExitStack, suppress

import msgspec

from evsrc.errors import LogLocked
from evsrc.log.file.fs import Fs, read_file

LOCK_NAME = "LOCK"

LOCK_BYTES_MAX = 4096
"""What is read of LOCK to name the holder."""


class Holder(msgspec.Struct, frozen=True):
    """Who holds the log: the text in LOCK, as JSON."""

    pid: int
    host: str
    boot_id: str
    started_ns: int


class FolderLock:
    """Both locks of a log's folder, held until `release`."""

    def __init__(self, fs: Fs, folder: str, started_ns: int) -> None:
        """Take the locks.

        Raises:
            LogLocked: another holder has one of them; names the holder.
            OSError: the folder or LOCK cannot be opened or written.
        """
        self._fs = fs
        self._descriptors: list[int] = []
        with ExitStack() as undo:
            undo.callback(self.release)
            # The folder first: when it is held, LOCK is not created, and not touched.
            self._take(fs.open_dir(folder), folder)
            lock = fs.open_update(f"{folder}/{LOCK_NAME}", create=True)
            self._take(lock, folder)
            host, boot_id = fs.whereabouts()
            text = msgspec.json.encode(Holder(os.getpid(), host, boot_id, started_ns)) + b"\n"
            fs.pwrite(lock, text, 0)
            fs.truncate(lock, len(text))
            undo.pop_all()

    def release(self) -> None:
        """Free the locks. Idempotent."""
        while self._descriptors:
            with suppress(OSError):  # closing frees the lock whatever it says
                self._fs.close(self._descriptors.pop())

    def _take(self, descriptor: int, folder: str) -> None:
        self._descriptors.append(descriptor)
        if not self._fs.lock(descriptor):
            raise LogLocked(f"log {folder} is open for writing in {_name_holder(self._fs, folder)}")


def _name_holder(fs: Fs, folder: str) -> str:
    try:
        text = read_file(fs, f"{folder}/{LOCK_NAME}", LOCK_BYTES_MAX)
        holder = msgspec.json.decode(text, type=Holder)
    except (OSError, ValueError, msgspec.MsgspecError):
        pid = fs.holder_pid(folder)
        if pid is None:
            return "another process; its name is lost because LOCK was deleted or damaged"
        return f"process {pid} (as the kernel says; LOCK was deleted or damaged)"
    return (
        f"process {holder.pid} on {holder.host}, since {holder.started_ns} ns"
        f" (boot {holder.boot_id}): close it, or wait for it to end"
    )
