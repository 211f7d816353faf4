"""The inbox: a folder beside the log into which any process may drop a message for the owner.

Rule: a message is there whole or not at all (temp, sync, rename), its name is drawn and never holds
what somebody wrote, and it is removed by the owner only, after what it asks for is durable. Nothing a
stranger puts there stops the owner: what cannot be read, or is too large, is moved to refused/.
Does not know: what a message means; whoever reads it removes duplicates by an id inside.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

from evsrc.errors import LimitExceeded

INBOX_NAME = "inbox"
REFUSED_NAME = "refused"
SUFFIX = ".msg"

INBOX_BYTES_MAX = 1024 * 1024
"""Largest message: what it carries ends in one record."""

INBOX_MESSAGES_MAX = 1000
"""Most messages that wait, and that one `list` returns: a flood is seen, not swallowed."""

NAME_BYTES = 16
"""Random bytes of a name: two drops never meet."""


def drop(
    path: str | os.PathLike[str],
    message: bytes,
    *,
    name_entropy: Callable[[int], bytes] = os.urandom,
) -> str:
    """Leave `message` for the owner of the log in folder `path`; durable when this returns its name.

    Raises:
        LimitExceeded: the message is too large, or too many are waiting.
        OSError: the folder is not there or cannot be written.
    """
    if len(message) > INBOX_BYTES_MAX:
        raise LimitExceeded(f"message: at most {INBOX_BYTES_MAX} bytes, found {len(message)}")
    folder = _make(path)
    waiting = sum(name.endswith(SUFFIX) for name in os.listdir(folder))
    if waiting >= INBOX_MESSAGES_MAX:
        raise LimitExceeded(
            f"inbox: at most {INBOX_MESSAGES_MAX} messages wait, found {waiting}:"
            " is the owner of the log running?"
        )
    name = name_entropy(NAME_BYTES).hex() + SUFFIX
    temporary = f"{folder}/{name}.tmp"
    with ExitStack() as undo:
        _write(temporary, message, undo)
        os.replace(temporary, f"{folder}/{name}")
        undo.pop_all()
    _sync_folder(folder)
    return name


class Inbox:
    """The owner's side of the inbox of the log in folder `path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make the folder if it is not there. Raises OSError."""
        self._folder = _make(path)

    def list(self) -> list[tuple[str, bytes]]:
        """Return (name, message) of what waits, the oldest first, at most INBOX_MESSAGES_MAX.

        What is too large, cannot be read or is no plain file is moved to refused/ on the way.

        Raises: OSError: the folder cannot be listed.
        """
        found: list[tuple[str, bytes]] = []
        for name in self._names():
            if len(found) == INBOX_MESSAGES_MAX:
                break
            message = _read(f"{self._folder}/{name}")
            if message is None:
                self.refuse(name)
            else:
                found.append((name, message))
        return found

    def done(self, name: str) -> None:
        """Remove a message that has been dealt with; fine if it is gone.

        Not synced: a message that comes back after a loss of power is a duplicate by its id.

        Raises: ValueError: `name` is none that `list` returned. OSError.
        """
        if os.sep in name or not name.endswith(SUFFIX):
            raise ValueError(f"not the name of a message: {name!r}")
        with suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/{name}")

    def _names(self) -> Iterator[str]:
        """Names by time of writing, then by name: random names alone would shuffle a conversation."""
        aged: list[tuple[int, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                # *.tmp is still being written, or was left by a killed sender.
                if entry.name.endswith(SUFFIX):
                    with suppress(FileNotFoundError):
                        aged.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
        return iter([name for _, name in sorted(aged)])

    def refuse(self, name: str) -> None:
        """Move a message that nobody can read or use aside; the owner's log says why."""
        target = f"{self._folder}/{REFUSED_NAME}"
        with suppress(OSError):  # what cannot even be moved is passed over again next time
            os.makedirs(target, 0o700, exist_ok=True)
            os.replace(f"{self._folder}/{name}", f"{target}/{name}")


def _make(path: str | os.PathLike[str]) -> str:
    folder = f"{os.fspath(path)}/{INBOX_NAME}"
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
        _sync_folder(os.fspath(path))
    return folder


def _write(path: str, message: bytes, undo: ExitStack) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    undo.callback(os.unlink, path)
    try:
        rest = memoryview(message)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes | None:
    """Return a message, None if it is refused. A link or a pipe could point, or block, anywhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as source:
            message = source.read(INBOX_BYTES_MAX + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return message if len(message) <= INBOX_BYTES_MAX else None
