"""Settling what an earlier owner left: a driver for every open call whose tool is known.

Rule: these drivers look, wait and record, and never send: a send is owed only once the run's own code
asks for the call again.
Does not know: rules; a driver performs what core/decide.py says.
"""

from collections.abc import Iterable

from evsrc.core.calls import CallState
from evsrc.runtime.driver import CallSpec, Driver
from evsrc.runtime.journal import Journal
from evsrc.runtime.services import Services


def settle_open_calls(services: Services, journals: Iterable[Journal]) -> None:
    """Start a driver for each open call; reserve the target of each one, known tool or not."""
    for journal in journals:
        for call in journal.state.calls.values():
            if not call.unknown:
                continue
            services.take_target(call.intent.target, call.id)
            tool = services.tools.find(call.intent.tool, call.intent.instance)
            if tool is None:
                continue
            driver = Driver(services, journal, tool, spec_of(call))
            services.drivers[journal.run_id, call.id] = driver
            services.group.start_soon(driver.run)


def spec_of(call: CallState) -> CallSpec:
    """The identity of a recorded call."""
    intent = call.intent
    return CallSpec(
        call=call.id,
        key=intent.key,
        scope=intent.scope,
        label=intent.label,
        ordinal=intent.ordinal,
        own_key=intent.own_key,
        asked=intent.asked,
        asked_digest=intent.asked_digest,
        target=intent.target,
    )
