"""The workflow's nodes: pure functions, and a verdict that follows from what was gathered."""

import ast
import inspect
import unicodedata
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.demo import corpus, nodes
from evsrc.demo.corpus import Finding, Indicator
from evsrc.demo.nodes import Assessment, Asset, Effected, Enrichment, Reputation, Triage

CONTEXT = Enrichment("someone", "NL", "AS64496", 2)
TRIAGE = Triage("f-1", "Title", "Text", "Impact", 3, "someone", "ws-1", "Sensor")
ASSET = Asset("ws-1", "workplace-team", 2)


async def assessed(finding: Finding, feed_version: int = 1) -> Assessment:
    feed = corpus.feed_path(feed_version)
    triaged = nodes.triage(finding)
    found = [await nodes.reputation(one, feed) for one in await nodes.indicators(finding)]
    return nodes.verdict(triaged, found, nodes.asset(triaged), CONTEXT)


def scored(kind: str, value: str, score: int) -> Reputation:
    return Reputation(msgspec.convert({"kind": kind, "value": value}, Indicator), score, [], True)


def test_there_are_eleven_nodes() -> None:
    """Eleven, each once; those that are not here act through a tool and are wired by the flow."""
    assert len(set(nodes.NODES)) == len(nodes.NODES) == 11
    acting = {"context", "ticket", "block", "disable", "page"}
    assert {name for name in nodes.NODES if not hasattr(nodes, name)} == acting


def test_edges_name_nodes() -> None:
    """A parameter is the input, an item, the feed's path, or the output of an earlier node."""
    inputs = {"finding", "indicator", "feed"}
    for place, name in enumerate(nodes.NODES):
        if function := getattr(nodes, name, None):
            parameters = set(inspect.signature(function).parameters)
            assert parameters <= inputs | set(nodes.NODES[:place]), name


def test_nodes_read_neither_clock_nor_chance() -> None:
    """Replay gives the same answer because nothing here could give another."""
    tree = ast.parse(inspect.getsource(nodes))
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not names & {"time", "random", "uuid", "datetime", "secrets", "os", "socket"}


async def test_the_workflow_is_deterministic(anyio_backend: str) -> None:
    """The same finding, read twice, is judged the same, byte for byte."""
    for finding, again in zip(corpus.findings()[:8], corpus.findings()[:8], strict=True):
        first, second = await assessed(finding), await assessed(again)
        assert msgspec.json.encode(first) == msgspec.json.encode(second)


async def test_the_corpus_exercises_every_tool(anyio_backend: str) -> None:
    """Most findings act on all tools, some do not: both branches are there to be killed."""
    found = [await assessed(finding) for finding in corpus.findings()]
    for chosen in ("should_block", "should_disable", "should_page"):
        assert 15 < sum(getattr(one, chosen) for one in found) < 40
    targets = [one.block_ip for one in found if one.should_block]
    assert len(targets) == len(set(targets))


async def test_the_second_feed_changes_what_is_blocked(anyio_backend: str) -> None:
    """A stale checkpoint would block an address that is now known to be harmless."""
    changed = set()
    for finding in corpus.findings():
        before, after = await assessed(finding, 1), await assessed(finding, 2)
        if before.should_block != after.should_block:
            changed.add((before.should_block, after.should_block))
    assert changed == {(True, False), (False, True)}


async def test_an_unknown_indicator_scores_nothing(anyio_backend: str) -> None:
    """No entry is said to be no entry, and is not an error."""
    found = await nodes.reputation(Indicator("ip", "192.0.2.254"), corpus.feed_path(1))
    assert found == Reputation(Indicator("ip", "192.0.2.254"), 0, [], False)


async def test_a_file_that_is_no_feed_is_an_error(anyio_backend: str, tmp_path: Path) -> None:
    """A broken feed fails the node instead of calling everything harmless."""
    feed = tmp_path / "feed.json"
    await anyio.Path(feed).write_text('{"192.0.2.1": {"score": "high"}}')
    with pytest.raises(msgspec.ValidationError, match="score"):
        await nodes.reputation(Indicator("ip", "192.0.2.1"), str(feed))


def test_text_of_every_finding_is_clean_after_triage() -> None:
    """Control, format and direction characters end at the first node, and titles are short."""
    for finding in corpus.findings():
        triaged = nodes.triage(finding)
        text = "".join(msgspec.to_builtins(triaged, str_keys=True)[f] for f in ("title", "summary"))
        assert not any(unicodedata.category(one).startswith("C") for one in text)
        assert 0 < len(triaged.title) <= nodes.TITLE_CHARS_MAX


@given(st.text(max_size=300), st.integers(1, 200))
def test_clean_text_is_one_short_line(text: str, chars_max: int) -> None:
    """Whatever comes in, one printable line within the limit comes out, and stays as it is."""
    line = nodes.clean(text, chars_max)
    assert len(line) <= chars_max
    assert line.isprintable() or any(unicodedata.category(c) == "Zs" for c in line)
    assert nodes.clean(line, chars_max) == line


@pytest.mark.parametrize(
    "ip", ["10.0.0.1", "172.20.1.1", "192.168.1.1", "127.0.0.1", "fe80::1", "no address", ""]
)
def test_our_own_networks_are_never_blocked(ip: str) -> None:
    """An attacker who writes our address into an alert does not cause an outage."""
    found = nodes.verdict(TRIAGE, [scored("ip", ip, 99)], ASSET, CONTEXT)
    assert not found.should_block
    assert found.block_ip == ""


def test_an_address_with_text_in_its_scope_is_never_blocked() -> None:
    """An IPv6 scope id may hold any text, which would reach the firewall."""
    assert nodes.may_block("2001:db8::1")
    assert not nodes.may_block("2001:db8::1%\x1b[2J")


def test_the_worst_address_is_blocked_whatever_the_order() -> None:
    """The order in which a fan-out ends does not change what is done."""
    found = [
        scored("ip", "192.0.2.2", 90),
        scored("ip", "192.0.2.1", 90),
        scored("domain", "x", 99),
    ]
    for order in (found, found[::-1]):
        assert nodes.verdict(TRIAGE, order, ASSET, CONTEXT).block_ip == "192.0.2.1"


@pytest.mark.parametrize(("score", "acts"), [(79, False), (80, True)])
def test_acting_needs_the_score(score: int, acts: bool) -> None:
    """Below the threshold nothing is blocked, disabled or paged, at it everything is."""
    triaged = msgspec.structs.replace(TRIAGE, severity=5)
    found = nodes.verdict(triaged, [scored("ip", "192.0.2.2", score)], ASSET, CONTEXT)
    assert (found.should_block, found.should_disable, found.should_page) == (acts, acts, acts)


def test_no_indicators_is_no_reason_to_act() -> None:
    """A finding without indicators still gets its verdict, and its ticket."""
    found = nodes.verdict(TRIAGE, [], ASSET, CONTEXT)
    assert (found.score, found.should_block, found.should_disable) == (0, False, False)
    assert nodes.ticket_arguments(TRIAGE, found)["severity"] == 3


def test_arguments_say_what_to_ask_a_tool_for() -> None:
    """Each acting node gets its finding and its target; None where nothing is to be done."""
    hot = nodes.verdict(TRIAGE, [scored("ip", "192.0.2.2", 99)], Asset("dc-1", "id", 5), CONTEXT)
    opened = Effected("ticket", "f-1", "7")
    block, disable = nodes.block_arguments(TRIAGE, hot), nodes.disable_arguments(TRIAGE, hot)
    page = nodes.page_arguments(TRIAGE, hot, opened)
    assert block and (block["finding"], block["ip"]) == ("f-1", "192.0.2.2")
    assert disable and disable["account"] == "someone"
    assert page and page["team"] == "id" and "ticket 7" in page["message"]
    cold = nodes.verdict(TRIAGE, [], ASSET, CONTEXT)
    assert nodes.block_arguments(TRIAGE, cold) is None
    assert nodes.disable_arguments(TRIAGE, cold) is None
    assert nodes.page_arguments(TRIAGE, cold, opened) is None


def test_enrich_asks_for_the_account_first() -> None:
    """Account, then host, then the finding: there is always somebody to ask about."""
    assert nodes.enrich_arguments(TRIAGE) == {"subject": "someone"}
    nobody = msgspec.structs.replace(TRIAGE, account="", host="")
    assert nodes.enrich_arguments(nobody) == {"subject": "f-1"}


def test_the_report_says_what_was_done() -> None:
    """References of what was done, empty text for what was not."""
    found = nodes.verdict(TRIAGE, [], ASSET, CONTEXT)
    report = nodes.report(TRIAGE, found, Effected("ticket", "f-1", "7"), None, None, None)
    assert (report.ticket, report.block, report.page) == ("7", "", "")
    assert report.finding == "f-1"


def test_a_host_nobody_knows_belongs_to_the_soc() -> None:
    """The inventory's gap is not an error: somebody always answers."""
    triaged = msgspec.structs.replace(TRIAGE, host="printer-3")
    assert nodes.asset(triaged) == Asset("printer-3", *nodes.NO_OWNER)
