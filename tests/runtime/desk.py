"""What the runtime's tests share: a ticket desk that can fail in every way, logs that can be cut, events.

The desk's rows are the judge of how often something really happened; our own events never are.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

import evsrc
from evsrc.core.codec import decode_events
from evsrc.core.events import Event
from evsrc.errors import AlreadyThere, NotSent, Rejected, Throttled
from evsrc.log.base import Landed, Log, Record

Effect = evsrc.Effect


def nothing(_: str) -> None:
    """No hook."""


class Desk:
    """Adapter of an outside world: tools of several kinds over one table of rows.

    `faults` holds, in order, what goes wrong with the next sends: not-sent, reject, throttle, silent
    (sent, nothing landed), lose (landed, the answer is lost), there, hang (landed, no answer), odd (an
    answer that cannot be recorded). `hook` hears the places a call passes: prepare, send, committed,
    probe.
    """

    def __init__(self, *faults: str, rows: Iterable[tuple[str, str]] = ()) -> None:
        self.rows = list(rows)
        self.sent: list[tuple[str, int]] = []
        self.probes = 0
        self.faults = list(faults)
        self.hook: Callable[[str], None] = nothing
        self.linger_s = 0.0
        """How long a prepare, a send or a probe takes after its hook."""
        self.at_once = 0
        self.at_once_max = 0
        self.targets: set[str] = set()

    async def _send(self, call: evsrc.Call, subject: str) -> str:
        fault = self.faults.pop(0) if self.faults else ""
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            _refuse(fault)
            self.sent.append((call.key, call.attempt))
            self.hook("send")
            await anyio.sleep(self.linger_s)
            if fault == "silent":
                raise ConnectionResetError("reset by peer")
            self.rows.append((call.marker, subject))
            self.hook("committed")
            await _after(fault, subject)
            return f"{subject}-{self._number(call.marker)}"
        finally:
            self.at_once -= 1

    async def _look(self, call: evsrc.Call) -> evsrc.Verdict[str]:
        self.probes += 1
        self.hook("probe")
        await anyio.sleep(self.linger_s)
        found = [subject for marker, subject in self.rows if marker == call.marker]
        if not found:
            return evsrc.Absent(complete=True)
        if len(found) > 1:
            return evsrc.Conflict(f"{len(found)} rows")
        return evsrc.Happened(f"{found[0]}-{self._number(call.marker)}")

    def _number(self, marker: str) -> int:
        return [m for m, _ in self.rows].index(marker) + 1

    def effects(self, subject: str) -> int:
        """How often that really happened."""
        return [s for _, s in self.rows].count(subject)

    @property
    def all_tools(self) -> list[evsrc.Tool[..., Any]]:
        """Every tool of the desk."""
        tools: list[Any] = [self.ticket, self.note, self.page, self.block, self.query, self.keyed]
        return [*tools, self.number]

    # ---- the tools ------------------------------------------------------------------------------

    @evsrc.tool(effect=Effect.MARKED, lag_s=0, late_s=0, history=True, timeout_s=0.3)
    async def ticket(self, call: evsrc.Call, subject: str, priority: int = 3) -> str:
        """A tool that can be asked."""
        return await self._send(call, subject)

    @ticket.prepare
    async def _(self, call: evsrc.Call, subject: str, priority: int = 3) -> None:
        self.hook("prepare")
        await anyio.sleep(self.linger_s)

    @ticket.probe
    async def _(self, call: evsrc.Call, subject: str, priority: int = 3) -> evsrc.Verdict[str]:
        return await self._look(call)

    @ticket.sweep
    async def _(self, since: datetime) -> Any:
        for marker, subject in self.rows:
            yield evsrc.Found(marker, subject)
        yield evsrc.SweepEnd(complete=True)

    @evsrc.tool(effect=Effect.MARKED, lag_s=0, late_s=0, history=True, at_once=2)
    async def note(self, call: evsrc.Call, subject: str) -> str:
        """A second tool that can be asked, two at once."""
        return await self._send(call, subject)

    @note.probe
    async def _(self, call: evsrc.Call, subject: str) -> evsrc.Verdict[str]:
        return await self._look(call)

    @evsrc.tool(timeout_s=0.3)
    async def page(self, call: evsrc.Call, subject: str) -> str:
        """A tool that tells nothing."""
        return await self._send(call, subject)

    @evsrc.tool(timeout_s=0.3)
    async def number(self, call: evsrc.Call, subject: str) -> int:
        """A tool that tells nothing and answers with a number."""
        await self._send(call, subject)
        return len(self.rows)

    @evsrc.tool(effect=Effect.KEYED, window_s=3600, late_s=0)
    async def keyed(self, call: evsrc.Call, subject: str) -> str:
        """A tool that remembers keys, and cannot be asked."""
        if any(marker == call.marker for marker, _ in self.rows):
            return f"{subject}-{self._number(call.marker)}"
        return await self._send(call, subject)

    @evsrc.tool(
        effect=Effect.STATE, target=lambda host: f"host:{host}", lag_s=0, late_s=0, history=True
    )
    async def block(self, call: evsrc.Call, host: str, why: str) -> str:
        """A tool that sets a state; two sends on one host at a time are an error of ours."""
        assert host not in self.targets, f"two acts on {host} at once"
        self.targets.add(host)
        try:
            await anyio.sleep(0.01)
            return await self._send(call, host)
        finally:
            self.targets.discard(host)

    @block.probe
    async def _(self, call: evsrc.Call, host: str, why: str) -> evsrc.Verdict[str]:
        return await self._look(call)

    @evsrc.tool(effect=Effect.READ)
    async def query(self, call: evsrc.Call, subject: str) -> str:
        """A tool that changes nothing."""
        return await self._send(call, subject)


def _refuse(fault: str) -> None:
    match fault:
        case "not-sent":
            raise NotSent("connection refused")
        case "throttle":
            raise Throttled(0.01)
        case "reject":
            raise Rejected("no such queue")
        case _:
            pass


async def _after(fault: str, subject: str) -> None:
    match fault:
        case "lose":
            raise ConnectionResetError("the answer is lost")
        case "there":
            raise AlreadyThere(subject)
        case "hang":
            await anyio.sleep_forever()
        case _:
            pass


# ---- logs ----------------------------------------------------------------------------------------


class SlowLog(evsrc.MemoryLog):
    """A log whose appends take a while, and tell `hook` when one that holds `event` is under way."""

    def __init__(self, delay_s: float = 0.03, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.delay_s = delay_s
        self.hook: Callable[[str], None] = nothing
        self.event = ""

    async def append(
        self,
        stream: str,
        body: bytes,
        *,
        count: int = 1,
        expected: int | None = None,
        durable: bool = True,
        essential: bool = False,
        landed: Landed | None = None,
    ) -> Record:
        """As `MemoryLog.append`, late. Once handed over it lands, as in the file log."""
        await checkpoint_if_cancelled()
        with anyio.CancelScope(shield=True):
            if self.event and any(type(e).__name__ == self.event for e in decode_events(body)):
                self.hook(self.event)
                await anyio.sleep(self.delay_s)
            record = await super().append(
                stream,
                body,
                count=count,
                expected=expected,
                durable=durable,
                essential=essential,
                landed=landed,
            )
        await checkpoint_if_cancelled()
        return record


def events(log: Log, run_id: str = "r") -> list[Event]:
    """Every event of a run."""
    return [e for r in log.records(stream=run_id) for e in decode_events(r.body)]


def kinds(log: Log, run_id: str = "r") -> list[str]:
    """The names of the events of a run."""
    return [type(event).__name__ for event in events(log, run_id)]


def of_kind(log: Log, kind: type[Any], run_id: str = "r") -> list[Any]:
    """The events of one kind."""
    return [event for event in events(log, run_id) if isinstance(event, kind)]


async def cut(log: Log, count: int | None = None, *, before: str = "") -> evsrc.MemoryLog:
    """What a crash leaves: the first `count` records, or all before the first event named `before`."""
    kept = evsrc.MemoryLog(namespace=log.namespace)
    for record in list(log.records())[:count]:
        if before and any(type(e).__name__ == before for e in decode_events(record.body)):
            break
        await kept.append(record.stream, record.body, count=record.count)
    return kept


async def until(true: Callable[[], bool], *, within_s: float = 5) -> None:
    """Wait for something that tells nobody."""
    with anyio.fail_after(within_s):
        while not true():  # noqa: ASYNC110 - what is waited for knows no event of ours
            await anyio.sleep(0.002)
