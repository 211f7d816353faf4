"""Opening a log for writing: lock it, create it if it is not there, judge it, and make its end safe.

In this order, and a crash anywhere in it repeats the same steps with the same result:

    lock; remove *.tmp; sync the last segment BEFORE reading it (what was written and never synced would
    otherwise be read from memory, acted upon, and lost with the power); judge; copy a torn tail aside;
    start a new segment whose header says where the old one ends; write the mark for it

Rule: nothing that was written is changed or cut, and nothing is appended behind bytes of unknown fate:
the same segment goes on only after a clean close, or while it is empty.
Does not know: tasks, threads, what a record means.
"""

from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from evsrc.errors import CallerError, LimitExceeded, LogCorrupt
from evsrc.log.file.appender import (
    Appender,
    create_segment,
    following,
    next_flush,
)
from evsrc.log.file.framing import (
    FORMAT_VERSION,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    start_of,
)
from evsrc.log.file.fs import Fs, put_file, read_file
from evsrc.log.file.judge import Judgement, Torn, judge
from evsrc.log.file.lock import FolderLock
from evsrc.log.file.mark import MARK_BYTES, MARK_NAME, Mark, decode_file, encode_file
from evsrc.log.file.meta import (
    META_BYTES_MAX,
    META_NAME,
    NAMESPACE_BYTES_MAX,
    Meta,
    decode_meta,
    encode_meta,
)
from evsrc.log.file.segments import (
    SEGMENT_SUFFIX,
    Segment,
    file_segments,
    segment_names,
)
from evsrc.log.streams import Heads

QUARANTINE_NAME = "quarantine"

QUARANTINE_BYTES_MAX = 1024 * 1024
"""How much of a torn tail is kept aside: one write, which is what a crash can leave."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What opening found. `torn` is told by the opening that drops the bytes, and by no later one."""

    created: bool
    clean: bool
    """The log was made now, or its last owner closed it."""
    records: int
    segments: int
    torn: Torn | None = None
    quarantine: str = ""
    """Where the torn bytes were copied, relative to the log's folder."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to open a log for writing."""

    folder: str
    fs: Fs
    namespace: str | None
    clock: Callable[[], int]
    entropy: Callable[[int], bytes]
    segment_bytes_max: int


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A log that may be appended to."""

    meta: Meta
    appender: Appender
    heads: Heads
    recovery: Recovery


def open_folder(settings: Settings) -> Opened:
    """Lock, create or recover, and return what is needed to append.

    Raises:
        LogLocked: another holder has it open.
        LogCorrupt: what was acknowledged is damaged or missing; nothing was changed.
        CallerError: the log has another namespace than the one asked for.
        LimitExceeded: the namespace is too long.
        OSError: the file system refused something.
    """
    fs, folder = settings.fs, settings.folder
    if settings.namespace is not None:
        _check_namespace(settings.namespace)
    fs.make_dir(folder)
    lock = FolderLock(fs, folder, settings.clock())
    with ExitStack() as undo:
        undo.callback(lock.release)
        _remove_temporary(fs, folder)
        created = META_NAME not in fs.list(folder)
        if created:
            _create(settings)
        opened = _recover(settings, lock, created)
        undo.pop_all()
    return opened


def read_meta(fs: Fs, folder: str) -> Meta:
    """Read `log.meta`.

    Raises: LogCorrupt: it does not verify. FileNotFoundError: there is no log.
    """
    try:
        return decode_meta(read_file(fs, f"{folder}/{META_NAME}", META_BYTES_MAX))
    except ValueError as error:
        raise LogCorrupt(str(error), segment=META_NAME, offset=0, sequence=0) from error


def read_mark(fs: Fs, folder: str) -> Mark:
    """Read `durable.mark`.

    Raises: LogCorrupt: it is missing, or both its slots are damaged.
    """
    try:
        mark = decode_file(read_file(fs, f"{folder}/{MARK_NAME}", MARK_BYTES))
    except FileNotFoundError:
        mark = None
    if mark is None:
        # It was created and synced with the log: no crash leaves the log without it.
        raise LogCorrupt(
            "the mark is missing or both its slots are damaged",
            segment=MARK_NAME,
            offset=0,
            sequence=0,
        )
    return mark


def _check_namespace(namespace: str) -> None:
    # "?" stands for what UTF-8 cannot hold: such a name is refused as well.
    size = len(namespace.encode(errors="replace"))
    if (
        not 1 <= size <= NAMESPACE_BYTES_MAX
        or namespace.encode(errors="ignore").decode() != namespace
    ):
        raise LimitExceeded(f"namespace: 1 to {NAMESPACE_BYTES_MAX} bytes of UTF-8, found {size}")


def _remove_temporary(fs: Fs, folder: str) -> None:
    for name in fs.list(folder):
        if name.endswith(".tmp"):
            fs.unlink(f"{folder}/{name}")


def _create(settings: Settings) -> None:
    """Make the files of an empty log; `log.meta` last, for that makes it a log."""
    fs, folder, entropy = settings.fs, settings.folder, settings.entropy
    _remove_half_made(fs, folder)
    log_id, created_ns = entropy(16), settings.clock()
    namespace = entropy(16).hex() if settings.namespace is None else settings.namespace
    header = SegmentHeader(
        log_id=log_id,
        number=1,
        base_sequence=1,
        salt=entropy(16),
        created_ns=created_ns,
        previous_number=0,
        previous_end_offset=0,
        previous_last_sequence=0,
        previous_digest=bytes(32),
        base_position=1,
    )
    fs.close(create_segment(fs, folder, header, entropy(4)))
    start = start_of(header)
    mark = Mark(
        log_id=log_id,
        counter=0,
        segment=1,
        end_offset=start.offset,
        last_sequence=0,
        digest=start.digest,
    )
    put_file(fs, folder, MARK_NAME, encode_file(mark))
    meta = Meta(FORMAT_VERSION, log_id.hex(), namespace, created_ns)
    put_file(fs, folder, META_NAME, encode_meta(meta))


def _remove_half_made(fs: Fs, folder: str) -> None:
    """Clear what a creation that was killed left; refuse to clear anything that held a record.

    Raises: LogCorrupt: there are records, so `log.meta` was lost.
    """
    for name in segment_names(fs, folder):
        found = len(read_file(fs, f"{folder}/{name}", SEGMENT_HEADER_BYTES + 1))
        if found > SEGMENT_HEADER_BYTES:
            raise LogCorrupt(
                f"{META_NAME} is missing and {name} holds records: restore {META_NAME}",
                segment=META_NAME,
                offset=0,
                sequence=0,
            )
    for name in fs.list(folder):
        if name == MARK_NAME or name.endswith(SEGMENT_SUFFIX):
            fs.unlink(f"{folder}/{name}")


def _recover(settings: Settings, lock: FolderLock, created: bool) -> Opened:
    fs, folder = settings.fs, settings.folder
    meta = read_meta(fs, folder)
    if settings.namespace not in (None, meta.namespace):
        raise CallerError(
            f"log {folder} has namespace {meta.namespace!r}, asked for {settings.namespace!r}:"
            " idempotency keys would differ; open it without namespace, or make another log"
        )
    mark, segments, heads = read_mark(fs, folder), file_segments(fs, folder), Heads()
    if segments:
        _sync_unread(fs, folder, segments[-1])
    found = judge(segments, mark, heads.admit)
    if found.segment.header.log_id.hex() != meta.log_id:
        raise LogCorrupt(
            f"log.meta says log {meta.log_id}, the segments say"
            f" {found.segment.header.log_id.hex()}",
            segment=META_NAME,
            offset=0,
            sequence=0,
        )
    quarantine = "" if found.torn is None else _keep_aside(fs, folder, found.torn)
    recovery = Recovery(
        created=created,
        clean=created or found.closed,
        records=found.position,
        segments=len(segments),
        torn=found.torn,
        quarantine=quarantine,
    )
    appender = _continue(settings, found, mark, lock)
    return Opened(meta=meta, appender=appender, heads=heads, recovery=recovery)


def _sync_unread(fs: Fs, folder: str, segment: Segment) -> None:
    try:
        descriptor = fs.open_append(f"{folder}/{segment.name}")
        try:
            fs.fdatasync(descriptor)
        finally:
            fs.close(descriptor)
    except OSError as error:
        raise LogCorrupt(
            f"cannot be synced before it is read: {error}",
            segment=segment.name,
            offset=0,
            sequence=segment.header.base_sequence,
        ) from error
    fs.fsync_dir(folder)


def _keep_aside(fs: Fs, folder: str, torn: Torn) -> str:
    """Copy torn bytes to quarantine/; the name is derived, so that a repeat overwrites its own copy."""
    target = f"{folder}/{QUARANTINE_NAME}"
    fs.make_dir(target)
    _remove_temporary(fs, target)
    data = read_file(fs, f"{folder}/{torn.segment}", QUARANTINE_BYTES_MAX, torn.offset)
    name = f"{torn.segment}.{torn.offset}.torn"
    put_file(fs, target, name, data)
    return f"{QUARANTINE_NAME}/{name}"


def _continue(settings: Settings, found: Judgement, mark: Mark, lock: FolderLock) -> Appender:
    """Open the end for appending: the same segment where that is safe, else a new one."""
    fs, folder, header = settings.fs, settings.folder, found.segment.header
    with ExitStack() as undo:
        if found.closed or found.empty:
            segment, end = fs.open_append(f"{folder}/{found.segment.name}"), found.end
        else:
            header = following(
                header,
                found.end,
                position=found.position,
                salt=settings.entropy(16),
                created_ns=settings.clock(),
            )
            segment = create_segment(fs, folder, header, settings.entropy(4))
            end = start_of(header)
        undo.callback(fs.close, segment)
        mark_file = fs.open_update(f"{folder}/{MARK_NAME}")
        undo.callback(fs.close, mark_file)
        appender = Appender(
            fs,
            folder,
            header=header,
            segment=segment,
            mark_file=mark_file,
            end=next_flush(end),
            position=found.position,
            mark=mark,
            clock=settings.clock,
            entropy=settings.entropy,
            lock=lock,
            segment_bytes_max=settings.segment_bytes_max,
        )
        appender.dirty = not found.closed
        if (mark.segment, mark.end_offset) != (header.number, end.offset):
            # Records that nobody waited for were kept and will be acted upon: now they count.
            appender.mark()
        undo.pop_all()
    return appender
