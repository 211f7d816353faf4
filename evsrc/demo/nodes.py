"""The work of the eleven-node enrichment workflow, as plain functions of their inputs.

Rule: deterministic; no clock, no randomness, no network. A parameter named like a node is the
output of that node. Acting nodes have their pure half here: `<node>_arguments` says what to ask a
tool for, None where nothing is to be done. Text of a finding is cleaned once, in `triage`.
Does not know: flows, runs, tools, the log. The flow wires these functions and performs the calls.
Must change together: data/feed-v1.json and feed-v2.json (scores against the thresholds below).
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypedDict

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from evsrc.demo.corpus import Finding, Indicator, indicators_of

NODES: Final = (
    "triage",
    "indicators",
    "reputation",
    "asset",
    "context",
    "verdict",
    "ticket",
    "block",
    "disable",
    "page",
    "report",
)
"""The workflow's nodes in one possible order; `reputation` runs once per indicator."""

TITLE_CHARS_MAX = 160
"""Longest title sent to a tool: ticket systems cut at 255 and a pager shows less."""

SUMMARY_CHARS_MAX = 2000
"""Longest description sent to a tool: one screen of an analyst."""

BLOCK_SCORE_MIN = 80
"""From this score on an address is blocked: below it, shared hosting gives false alarms."""

PAGE_SEVERITY_MIN = 4
"""OCSF severity (4 is high) from which somebody is woken up."""

DISABLE_TACTICS = ("Credential Access", "Initial Access", "Impact", "Collection")
"""Tactics in which the account itself is in foreign hands."""

NEVER_BLOCKED = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
)
"""Networks of our own: blocking one of them is an outage, not a defence."""

OWNERS = (
    ("dc", "identity-team", 5),
    ("srv", "platform-team", 4),
    ("ws", "workplace-team", 2),
    ("lt", "workplace-team", 2),
)
"""First part of a host's name, owner, criticality 1 to 5. Tuples: they count as code of `asset`."""

NO_OWNER = ("soc", 3)
"""Owner and criticality of a host that the inventory does not know."""


# ---- what flows along the edges ----------------------------------------------------------------


class Triage(msgspec.Struct, frozen=True):
    """The finding in our own words: printable text, one account, one host. Severity as in OCSF."""

    finding: str
    title: str
    summary: str
    tactic: str
    severity: int
    account: str
    host: str
    source: str


class Reputation(msgspec.Struct, frozen=True):
    """What the feed says about one indicator; if nothing, `known` is False and the score 0."""

    indicator: Indicator
    score: int
    tags: list[str]
    known: bool


class FeedEntry(msgspec.Struct, frozen=True):
    """One line of the intel feed. The score is from 0 (harmless) to 100."""

    score: int
    tags: list[str] = []
    source: str = ""


class Asset(msgspec.Struct, frozen=True):
    """Who answers for the host, and how much hangs on it (1 to 5)."""

    host: str
    owner: str
    criticality: int


class Enrichment(msgspec.Struct, frozen=True):
    """Answer of the READ tool `enrich` about an account or a host."""

    subject: str
    country: str
    network: str
    prior_findings: int


class Assessment(msgspec.Struct, frozen=True):
    """What is to be done, and why. `block_ip` is empty unless `should_block`."""

    severity: int
    score: int
    reasons: list[str]
    should_block: bool
    should_disable: bool
    should_page: bool
    block_ip: str
    account: str
    owner: str


class Effected(msgspec.Struct, frozen=True):
    """What an acting tool answers: the kind of object, its target, and the tool's own reference."""

    kind: str
    target: str
    ref: str


class Report(msgspec.Struct, frozen=True):
    """The end of the workflow for one finding. References are empty where nothing was done."""

    finding: str
    title: str
    severity: int
    score: int
    reasons: list[str]
    ticket: str
    block: str
    disable: str
    page: str


# ---- reading and judging -----------------------------------------------------------------------


def triage(finding: Finding) -> Triage:
    """The finding, normalised: all but its id is printable text on one line from here on."""
    info = finding.finding_info
    kind = info.types[0] if info.types else ""
    parts = kind.split("/")
    return Triage(
        finding=finding.uid,
        title=clean(info.title, TITLE_CHARS_MAX) or "Untitled finding",
        summary=clean(info.desc, SUMMARY_CHARS_MAX),
        tactic=clean(parts[1] if len(parts) > 1 else kind, TITLE_CHARS_MAX),
        severity=min(max(finding.severity_id, 0), 6),
        account=_resource(finding, ("User Account", "AwsIamAccessKey")),
        host=_resource(finding, ("Host",)),
        source=clean(finding.metadata.product.name, TITLE_CHARS_MAX),
    )


def clean(text: str, chars_max: int) -> str:
    """`text` on one line, without control, format and surrogate characters, cut to `chars_max`."""
    import unicodedata

    # Cut first: alert text may be of any length. Four times as much, as cleaning only removes.
    head = text[: 4 * chars_max]
    kept = (
        " " if one.isspace() else "" if unicodedata.category(one).startswith("C") else one
        for one in head
    )
    line = " ".join("".join(kept).split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def _resource(finding: Finding, kinds: Sequence[str]) -> str:
    for one in finding.resources:
        if one.type in kinds:
            return clean(one.name or one.uid, TITLE_CHARS_MAX)
    return ""


async def indicators(finding: Finding) -> list[Indicator]:
    """What can be looked up, each value once. Async to show both colours: it only yields."""
    await checkpoint()
    return indicators_of(finding)


async def reputation(indicator: Indicator, feed: str) -> Reputation:
    """What the feed file at path `feed` says about one indicator.

    Raises:
        OSError: the file cannot be read.
        msgspec.DecodeError: it is not a feed.
    """
    raw = await anyio.Path(feed).read_bytes()
    entries = msgspec.json.decode(raw, type=dict[str, FeedEntry])
    entry = entries.get(indicator.value)
    if entry is None:
        return Reputation(indicator, score=0, tags=[], known=False)
    return Reputation(indicator, score=entry.score, tags=entry.tags, known=True)


def asset(triage: Triage) -> Asset:
    """Owner and criticality of the host. Blocking, as an inventory's client usually is."""
    first = triage.host.partition("-")[0]
    owner, criticality = next((o[1:] for o in OWNERS if o[0] == first), NO_OWNER)
    return Asset(triage.host, owner, criticality)


def verdict(
    triage: Triage, reputation: list[Reputation], asset: Asset, context: Enrichment
) -> Assessment:
    """What is to be done, from everything that was gathered."""
    worst = max((one.score for one in reputation), default=0)
    block_ip = _worst_address(reputation)
    severity = _severity(triage.severity, worst, asset.criticality)
    hot = worst >= BLOCK_SCORE_MIN
    return Assessment(
        severity=severity,
        score=worst,
        reasons=_reasons(reputation, asset, context),
        should_block=bool(block_ip),
        should_disable=hot and bool(triage.account) and triage.tactic in DISABLE_TACTICS,
        should_page=severity >= PAGE_SEVERITY_MIN,
        block_ip=block_ip,
        account=triage.account,
        owner=asset.owner,
    )


def _severity(told: int, score: int, criticality: int) -> int:
    if score < BLOCK_SCORE_MIN:
        return min(told, PAGE_SEVERITY_MIN - 1)
    return min(5, max(told, PAGE_SEVERITY_MIN if criticality >= 4 else 0))


def _worst_address(reputation: Iterable[Reputation]) -> str:
    bad = [
        (-one.score, one.indicator.value)
        for one in reputation
        if one.indicator.kind == "ip"
        and one.score >= BLOCK_SCORE_MIN
        and may_block(one.indicator.value)
    ]
    return min(bad)[1] if bad else ""


def may_block(ip: str) -> bool:
    """Is this an address, and not one of our own networks?"""
    from ipaddress import ip_address, ip_network

    if "%" in ip:  # a scope id may hold any text, and no firewall takes one
        return False
    try:
        address = ip_address(ip)
    except ValueError:
        return False
    own = [ip_network(one) for one in NEVER_BLOCKED]
    return not any(address in network for network in own)


def _reasons(reputation: Iterable[Reputation], asset: Asset, context: Enrichment) -> list[str]:
    ranked = sorted((one for one in reputation if one.known), key=lambda one: -one.score)
    reasons = [
        f"{one.indicator.kind} {clean(one.indicator.value, TITLE_CHARS_MAX)} scores {one.score}"
        + (f" ({', '.join(one.tags)})" if one.tags else "")
        for one in ranked
    ]
    reasons.append(f"{asset.host or 'no host'}: {asset.owner}, criticality {asset.criticality}")
    if context.prior_findings:
        reasons.append(f"{context.subject} had {context.prior_findings} findings before")
    return reasons


def report(
    triage: Triage,
    verdict: Assessment,
    ticket: Effected,
    block: Effected | None,
    disable: Effected | None,
    page: Effected | None,
) -> Report:
    """What was found and what was done about it."""
    return Report(
        finding=triage.finding,
        title=triage.title,
        severity=verdict.severity,
        score=verdict.score,
        reasons=verdict.reasons,
        ticket=ticket.ref,
        block=block.ref if block else "",
        disable=disable.ref if disable else "",
        page=page.ref if page else "",
    )


# ---- what the acting nodes ask their tools for -------------------------------------------------


class EnrichArguments(TypedDict):
    """For `enrich`, which only reads."""

    subject: str


class TicketArguments(TypedDict):
    """For the tool that opens a ticket."""

    finding: str
    title: str
    body: str
    severity: int


class BlockArguments(TypedDict):
    """For the tool that blocks one address."""

    finding: str
    ip: str
    reason: str


class DisableArguments(TypedDict):
    """For the tool that disables one account."""

    finding: str
    account: str
    reason: str


class PageArguments(TypedDict):
    """For the tool that wakes up a team."""

    finding: str
    team: str
    message: str


def enrich_arguments(triage: Triage) -> EnrichArguments:
    """Whom to ask about: the account, else the host, else the finding itself."""
    return {"subject": triage.account or triage.host or triage.finding}


def ticket_arguments(triage: Triage, verdict: Assessment) -> TicketArguments:
    """Every finding gets exactly one ticket."""
    return {
        "finding": triage.finding,
        "title": triage.title,
        "body": "\n".join([triage.summary, *verdict.reasons]),
        "severity": verdict.severity,
    }


def block_arguments(triage: Triage, verdict: Assessment) -> BlockArguments | None:
    """The worst address of the finding, or None."""
    if not verdict.should_block:
        return None
    return {"finding": triage.finding, "ip": verdict.block_ip, "reason": verdict.reasons[0]}


def disable_arguments(triage: Triage, verdict: Assessment) -> DisableArguments | None:
    """The account of the finding, or None."""
    if not verdict.should_disable:
        return None
    return {"finding": triage.finding, "account": verdict.account, "reason": verdict.reasons[0]}


def page_arguments(triage: Triage, verdict: Assessment, ticket: Effected) -> PageArguments | None:
    """The team that owns the host, told which ticket to open, or None."""
    if not verdict.should_page:
        return None
    message = f"{triage.title} (severity {verdict.severity}, ticket {ticket.ref})"
    return {"finding": triage.finding, "team": verdict.owner, "message": message}
