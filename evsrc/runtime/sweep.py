"""The full sweep: which effects carry our markers, and which of them no intent of this log explains.

Rule: only markers of this log's namespace count. What a sweep saw is an event; a call that would derive
an unexplained marker probes before it sends.
Does not know: when to sweep. Manual in this version.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from evsrc.core import keys
from evsrc.core.codec import decode_events
from evsrc.core.events import IntentRecorded, SweepRecorded
from evsrc.core.verdicts import Found
from evsrc.runtime.journal import Journal
from evsrc.runtime.services import Services
from evsrc.tools.bound import BoundTool
from evsrc.tools.call import SweepEnd

SINCE = datetime.fromtimestamp(0, UTC)
"""A full sweep asks for everything: an effect may be older than a log that was restored."""


class Swept(msgspec.Struct, frozen=True):
    """What one tool's sweep saw."""

    tool: str
    instance: str
    complete: bool
    seen: int
    orphans: tuple[str, ...]
    duplicates: tuple[str, ...]


async def sweep(services: Services, journal: Journal, markers: Mapping[str, str]) -> list[Swept]:
    """Sweep every tool that can, one after the other, and record what each one saw.

    `markers` are those of every intent so far; what is recorded meanwhile is read from the log.

    Raises: OperatorError if the log refused.
    """
    began = services.log.last_position
    results: list[Swept] = []
    for tool in services.tools:
        if not tool.capabilities.can_sweep:
            continue
        result = await _one(services, tool, markers, began)
        services.orphans.update(result.orphans)
        await journal.append(
            [
                SweepRecorded(
                    result.tool,
                    result.instance,
                    result.complete,
                    result.orphans,
                    result.duplicates,
                    result.seen,
                )
            ],
            durable=True,
            essential=True,
        )
        results.append(result)
    return results


async def _one(
    services: Services, tool: BoundTool, markers: Mapping[str, str], began: int
) -> Swept:
    seen: Counter[str] = Counter()
    complete = False
    try:
        async with aclosing(tool.sweep(SINCE, services.threads)) as found:
            async for item in found:
                if isinstance(item, SweepEnd):
                    complete = item.complete
                elif _ours(services, item):
                    seen[item.marker] += 1
    except Exception:  # noqa: BLE001  a sweep that breaks off is recorded as incomplete
        complete = False
    explained = {*markers, *_recorded_since(services, began)}
    return Swept(
        tool.name,
        tool.instance,
        complete,
        seen.total(),
        tuple(sorted(m for m in seen if m not in explained)),
        tuple(sorted(m for m, n in seen.items() if n > 1)),
    )


def _recorded_since(services: Services, began: int) -> set[str]:
    """Markers of intents that came during the sweep: each was recorded before its effect could be seen."""
    return {
        event.marker
        for record in services.log.records(after=began)
        for event in decode_events(record.body)
        if isinstance(event, IntentRecorded)
    }


def _ours(services: Services, item: Found) -> bool:
    return keys.is_ours(item.marker, services.log.namespace)
