"""The eleven-node enrichment workflow as a Flow: the plain functions of nodes.py, wired to the tools.

Rule: public names of evsrc only. A node that acts takes `run` and calls exactly one tool.
Does not know: how often it is killed.

    triage ─┬─ asset ────┬─ verdict ─┬─ ticket ── page ─┐
            └─ context ──┤           ├─ block ──────────┼─ report
    indicators ─ reputation (each)   └─ disable ────────┘
"""

from collections.abc import Callable
from typing import Any

import evsrc
from evsrc.demo import nodes
from evsrc.demo.corpus import Finding, Indicator
from evsrc.demo.nodes import (
    Assessment,
    Asset,
    Effected,
    Enrichment,
    Report,
    Reputation,
    Triage,
)
from evsrc.demo.tools import TrustingTools, WorldTools

Heard = Callable[[str], None]
"""Told the name of every node whose body runs: counts executions without looking at the log."""


def _deaf(_: str) -> None:
    """Nobody counts."""


def build_flow(
    tools: WorldTools | TrustingTools,
    feed: str,
    *,
    blind: bool = False,
    heard: Heard = _deaf,
    name: str = "ir-enrichment",
) -> evsrc.Flow[Finding]:
    """The workflow on one world's tools and one version of the feed.

    Args:
        feed: path of the intel feed; its digest is part of every reputation's key.
        blind: page through the webhook that tells nothing.
        heard: called with a node's name at the start of its body.
    """
    flow = evsrc.Flow(name, input=Finding, run_id=lambda finding: finding.uid)
    pager = tools.blind_page if blind and isinstance(tools, WorldTools) else tools.page
    _gather(flow, feed, tools.enrich, heard)
    _judge(flow, heard)
    _contain(flow, tools, heard)
    _tell(flow, tools.open_ticket, pager, heard)
    return flow


# The bodies stand in closures over the tools, which have no stable form: hence a declared version.


def _gather(
    flow: evsrc.Flow[Finding], feed: str, enrich: evsrc.Tool[..., Enrichment], heard: Heard
) -> None:
    @flow.node(version="1")
    async def triage(finding: Finding) -> Triage:
        heard("triage")
        return nodes.triage(finding)

    @flow.node(version="1")
    async def indicators(finding: Finding) -> list[Indicator]:
        heard("indicators")
        return await nodes.indicators(finding)

    @flow.each(
        indicators,
        key=lambda indicator: indicator.value,
        reads=[feed],
        params={"feed": feed},
        retry=evsrc.Retry(attempts=4),
        version="1",
        cost=0.01,
    )
    async def reputation(indicator: Indicator, feed: str) -> Reputation:
        heard("reputation")
        return await nodes.reputation(indicator, feed)

    @flow.node(version="1")
    def asset(triage: Triage) -> Asset:
        heard("asset")
        return nodes.asset(triage)

    @flow.node(version="1")
    async def context(run: evsrc.Run, triage: Triage) -> Enrichment:
        heard("context")
        return await run.call(enrich, **nodes.enrich_arguments(triage))


def _judge(flow: evsrc.Flow[Finding], heard: Heard) -> None:
    @flow.node(version="1")
    async def verdict(
        triage: Triage, reputation: list[Reputation], asset: Asset, context: Enrichment
    ) -> Assessment:
        heard("verdict")
        return nodes.verdict(triage, reputation, asset, context)

    @flow.node(version="1")
    async def report(
        triage: Triage,
        verdict: Assessment,
        ticket: Effected,
        block: Effected | None,
        disable: Effected | None,
        page: Effected | None,
    ) -> Report:
        heard("report")
        return nodes.report(triage, verdict, ticket, block, disable, page)


def _contain(flow: evsrc.Flow[Finding], tools: WorldTools | TrustingTools, heard: Heard) -> None:
    @flow.node(version="1")
    async def block(run: evsrc.Run, triage: Triage, verdict: Assessment) -> Effected | None:
        heard("block")
        arguments = nodes.block_arguments(triage, verdict)
        if arguments is None:
            return None
        return await run.call(tools.block_ip, **arguments)

    @flow.node(version="1")
    async def disable(run: evsrc.Run, triage: Triage, verdict: Assessment) -> Effected | None:
        heard("disable")
        arguments = nodes.disable_arguments(triage, verdict)
        if arguments is None:
            return None
        return await run.call(tools.disable_account, **arguments)


def _tell(
    flow: evsrc.Flow[Finding],
    open_ticket: evsrc.Tool[..., Effected],
    pager: evsrc.Tool[..., Effected],
    heard: Heard,
) -> None:
    @flow.node(version="1")
    async def ticket(run: evsrc.Run, triage: Triage, verdict: Assessment) -> Effected:
        heard("ticket")
        return await run.call(open_ticket, **nodes.ticket_arguments(triage, verdict))

    @flow.node(version="1")
    async def page(
        run: evsrc.Run, triage: Triage, verdict: Assessment, ticket: Effected
    ) -> Effected | None:
        heard("page")
        arguments = nodes.page_arguments(triage, verdict, ticket)
        if arguments is None:
            return None
        return await run.call(pager, **arguments)


def all_tools(tools: WorldTools | TrustingTools) -> list[evsrc.Tool[..., Any]]:
    """Every tool, for `open_runtime(tools=...)`: interrupted calls are then settled right away."""
    blind = [tools.blind_page] if isinstance(tools, WorldTools) else []
    return [
        tools.enrich,
        tools.open_ticket,
        tools.block_ip,
        tools.disable_account,
        tools.page,
        *blind,
    ]
