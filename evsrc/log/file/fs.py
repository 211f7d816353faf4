"""The seam to the file system: every file call of the log, and nothing else.

Rule: the only file of the log, besides inbox.py, that touches files (an AST test). Calls are thin, so
that a simulated disk, or one that counts or fails, has little to imitate. Errors stay OSError here.
Does not know: formats. Linux first: other systems need their own fdatasync, locks and directory sync.

A forked child inherits descriptors, and with them the lock, which lives as long as any copy does. So
`RealFs` remembers the descriptors it opened for writing or locking, and closes them in the child.
"""

import fcntl
import os
import weakref
from contextlib import ExitStack
from typing import Protocol

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
"""What bodies hold is nobody else's."""

READ_BYTES = 8 * 1024 * 1024
"""Most bytes asked of one read call."""


class Fs(Protocol):
    """What the log needs of a file system. Paths are absolute or relative strings, descriptors ints."""

    def make_dir(self, path: str) -> None:
        """Create a folder and those above it, each durable; fine if it is there."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, unordered. Raises FileNotFoundError."""
        ...

    def open_dir(self, path: str) -> int:
        """Open a folder, to lock or sync it."""
        ...

    def open_read(self, path: str) -> int:
        """Open for reading."""
        ...

    def open_new(self, path: str) -> int:
        """Create a file for appending; FileExistsError if it is there."""
        ...

    def open_append(self, path: str) -> int:
        """Open an existing file for appending."""
        ...

    def open_update(self, path: str, *, create: bool = False) -> int:
        """Open for reading and for writing in place."""
        ...

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        ...

    def write(self, descriptor: int, data: memoryview) -> int:
        """Append; may write less than asked. Returns the number of bytes written."""
        ...

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        """Write in place; may write less than asked."""
        ...

    def read(self, descriptor: int, offset: int, size: int) -> bytes:
        """Read up to `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    def size(self, descriptor: int) -> int:
        """Size of the file in bytes."""
        ...

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file. Used for the text in LOCK only, never for data."""
        ...

    def fdatasync(self, descriptor: int) -> None:
        """Make the file's data durable, and its size."""
        ...

    def fsync(self, descriptor: int) -> None:
        """Make a file durable."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a folder durable."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` in one step."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def lock(self, descriptor: int) -> bool:
        """Take the exclusive lock of a file or folder without waiting; False if another has it."""
        ...

    def holder_pid(self, path: str) -> int | None:
        """Process that holds the lock of `path` as the kernel tells it, None if it does not tell."""
        ...

    def whereabouts(self) -> tuple[str, str]:
        """Host name and boot id: what a process id means nothing without."""
        ...


class RealFs:
    """The file system of this machine, through POSIX calls."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        _instances.add(self)

    def make_dir(self, path: str) -> None:
        """Create a folder and those above it; each new entry is synced in the folder above."""
        if os.path.isdir(path):
            return
        above = os.path.dirname(os.path.abspath(path))
        self.make_dir(above)
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            return  # another process was quicker; a file of that name fails at the next call
        self.fsync_dir(above)

    def list(self, path: str) -> list[str]:
        """Names in a folder."""
        return os.listdir(path)

    def open_dir(self, path: str) -> int:
        """Open a folder; not passed on to programs that are started."""
        return self._hold(os.open(path, os.O_RDONLY | os.O_DIRECTORY))

    def open_read(self, path: str) -> int:
        """Open for reading; not closed in a forked child, for readers hold no lock."""
        return os.open(path, os.O_RDONLY)

    def open_new(self, path: str) -> int:
        """Create for appending, mode 0600."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        return self._hold(os.open(path, flags, FILE_MODE))

    def open_append(self, path: str) -> int:
        """Open for appending."""
        return self._hold(os.open(path, os.O_WRONLY | os.O_APPEND))

    def open_update(self, path: str, *, create: bool = False) -> int:
        """Open for update, mode 0600 if created."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return self._hold(os.open(path, flags, FILE_MODE))

    def close(self, descriptor: int) -> None:
        """Close; forgotten first, since a fork must never close a number that is used again."""
        self._held.discard(descriptor)
        os.close(descriptor)

    def write(self, descriptor: int, data: memoryview) -> int:
        """One write call; Python repeats it when a signal interrupts."""
        return os.write(descriptor, data)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        """One pwrite call."""
        return os.pwrite(descriptor, data, offset)

    def read(self, descriptor: int, offset: int, size: int) -> bytes:
        """Read in pieces of at most READ_BYTES."""
        pieces: list[bytes] = []
        while size > 0:
            piece = os.pread(descriptor, min(size, READ_BYTES), offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    def size(self, descriptor: int) -> int:
        """Size by fstat."""
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut by ftruncate."""
        os.ftruncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        """fdatasync: an append changes the size, so the size is synced too."""
        os.fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        """Call fsync."""
        os.fsync(descriptor)

    def fsync_dir(self, path: str) -> None:
        """Sync a folder through a descriptor of its own."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove."""
        os.unlink(path)

    def lock(self, descriptor: int) -> bool:
        """flock, not lockf: a second open in this process is refused, and no stray close frees it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def holder_pid(self, path: str) -> int | None:
        """Look the inode up in /proc/locks: the way out when the text in LOCK was deleted."""
        try:
            status = os.stat(path)
            with open("/proc/locks", encoding="ascii") as table:
                lines = [line.split() for line in table]
        except (OSError, ValueError):
            return None
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for fields in lines:
            if "FLOCK" in fields and "->" not in fields and device in fields:
                return int(fields[4]) or None
        return None

    def whereabouts(self) -> tuple[str, str]:
        """Host name, and the boot id that Linux draws at each boot."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
                boot_id = source.read().strip()
        except OSError:
            boot_id = "unknown"
        return os.uname().nodename, boot_id

    def _hold(self, descriptor: int) -> int:
        self._held.add(descriptor)
        return descriptor

    def close_held(self) -> None:
        """Close what was opened for writing or locking: for a forked child, where it must not live."""
        while self._held:
            try:
                os.close(self._held.pop())
            except OSError:
                continue  # closed by other hands; there is nobody to tell in a half-made child


_instances: "weakref.WeakSet[RealFs]" = weakref.WeakSet()
"""Weak: the fork handler cannot be taken back, so it must not keep logs alive."""


def _after_fork_in_child() -> None:
    for instance in list(_instances):
        instance.close_held()


os.register_at_fork(after_in_child=_after_fork_in_child)


def write_all(fs: Fs, descriptor: int, data: bytes) -> int:
    """Append all of `data`, going on after short writes; returns the number of write calls.

    Raises: OSError: what the file system said, or that it took nothing.
    """
    rest, calls = memoryview(data), 0
    while rest:
        written = fs.write(descriptor, rest)
        if written <= 0:
            raise OSError(f"write took {written} of {len(rest)} bytes")
        rest, calls = rest[written:], calls + 1
    return calls


def read_file(fs: Fs, path: str, size_max: int, offset: int = 0) -> bytes:
    """Return at most `size_max` bytes of a file from `offset`. Raises OSError."""
    descriptor = fs.open_read(path)
    try:
        return fs.read(descriptor, offset, size_max)
    finally:
        fs.close(descriptor)


def put_file(fs: Fs, folder: str, name: str, data: bytes) -> None:
    """Make a file that is there whole or not at all, and durable: temp, sync, rename, sync folder.

    Raises OSError.
    """
    descriptor = new_file(fs, folder, name, data)
    fs.close(descriptor)


def new_file(fs: Fs, folder: str, name: str, data: bytes) -> int:
    """As `put_file`; returns the descriptor, open for appending."""
    temporary = f"{folder}/{name}.tmp"
    descriptor = fs.open_new(temporary)
    with ExitStack() as undo:
        undo.callback(fs.close, descriptor)
        write_all(fs, descriptor, data)
        fs.fsync(descriptor)
        fs.rename(temporary, f"{folder}/{name}")
        # Without this the file's name could be lost with the power, and with it all that follows.
        fs.fsync_dir(folder)
        undo.pop_all()
    return descriptor
