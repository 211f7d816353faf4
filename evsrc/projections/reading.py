"""Reading a log without a runtime: typed events by run, type and time, from a folder, without a lock.

Rule: a reader never writes, never repairs, and never fails on a live tail.
Does not know: who writes the log. Values inside events are msgpack: `evsrc.core.codec.plain` decodes
them without the user's classes.
"""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from evsrc.core.codec import decode_events
from evsrc.core.events import Event
from evsrc.core.state import RunState, evolve
from evsrc.errors import LogCorrupt
from evsrc.log.base import Record
from evsrc.projections.base import Seen

if TYPE_CHECKING:
    from evsrc.log.file.reader import ReadReport

FOLLOW_POLL_S = 0.2
"""How often a follower looks for new records."""


class LogReader:
    """A log on disk, open for reading. Holds nothing open between reads."""

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False) -> None:
        self._path = os.fspath(path)
        self._follow = follow

    def records(self, *, after: int = 0, run: str | None = None) -> Iterator[Record]:
        """Verified records beyond a position, optionally of one run.

        With `follow` it does not end: it waits for more, until the caller stops iterating.

        Raises:
            LogCorrupt: a record does not verify and what follows proves that it once did. A tail that
                is missing whole is found by `evsrc.verify`, which knows the mark.
            FileNotFoundError: there is no log.
        """
        from evsrc.log.file.reader import LogReader as FileReader

        reader = FileReader(self._path, after=after, stream=run)
        while True:
            yield from reader.advance()
            if not self._follow:
                self._check(reader.report)
                return
            import time

            time.sleep(FOLLOW_POLL_S)

    @staticmethod
    def _check(report: "ReadReport") -> None:
        if report.state == "corrupt":
            raise LogCorrupt(
                report.reason,
                segment=report.segment,
                offset=report.offset,
                sequence=report.sequence,
            )

    def events(
        self,
        *,
        run: str | None = None,
        types: Sequence[type[Event]] = (),
        since_ns: int = 0,
        after: int = 0,
    ) -> Iterator[Seen]:
        """Events in log order, each with its run, position and wall time.

        Args:
            run: only this run's. types: only these event classes. since_ns: only records written at
                or after this wall time. after: only beyond this position.

        Raises:
            UnknownEvent: a record holds an event of a later version.
            LogCorrupt, FileNotFoundError: as `records`.
        """
        wanted = tuple(types)
        for record in self.records(after=after, run=run):
            if record.time_ns < since_ns:
                continue
            for event in decode_events(record.body):
                if not wanted or isinstance(event, wanted):
                    yield Seen(record.stream, event, record.position, record.time_ns)

    def state(self, run: str) -> RunState:
        """The folded state of one run; new and empty if the log does not hold it.

        Raises: as `events`.
        """
        state = RunState(run)
        for seen in self.events(run=run):
            evolve(state, seen.event)
        return state


def open_log(
    path: str | os.PathLike[str], *, mode: Literal["read"] = "read", follow: bool = False
) -> LogReader:
    """Open a log on disk for reading, beside whoever writes it.

    Raises:
        FileNotFoundError: there is no folder at `path`.
    """
    if not os.path.isdir(path):
        raise FileNotFoundError(f"no log at {os.fspath(path)!r}")
    return LogReader(path, follow=follow)
