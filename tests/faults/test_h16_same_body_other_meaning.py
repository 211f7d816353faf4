"""H16: one text, two meanings. What a node captures is part of its identity, or refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

import evsrc
from evsrc.errors import DefinitionError, NoStableForm
from tests.runtime.flows import counted, go, load, ran


def blocker(zone: object) -> Callable[[int], Any]:
    """A factory of nodes: one text, another zone."""

    async def block(start: int) -> str:
        return f"blocked {start} in {zone}"

    return block


def flow_of(node: Callable[..., Any]) -> evsrc.Flow[int]:
    """A flow with that one node, which looks for checkpoints in the whole log."""
    flow = evsrc.Flow("zones", input=int, reuse="log")
    flow.node(node)
    return flow


async def test_two_zones_never_share_a_checkpoint() -> None:
    """Same name, same text, same input, another captured value: each computes its own."""
    log = evsrc.MemoryLog()
    values = [
        (await go(log, flow_of(blocker(zone)), 1, run_id=f"{zone}-{n}")).value["block"]
        for n, zone in enumerate(["dmz", "lan", "dmz"])
    ]
    assert values == ["blocked 1 in dmz", "blocked 1 in lan", "blocked 1 in dmz"]


def test_a_captured_value_without_a_stable_form_is_refused() -> None:
    """A handle would share checkpoints, or never find one: the captured name is in the message."""
    with pytest.raises(NoStableForm, match="closure zone: a lock has no stable form"):
        flow_of(blocker(Lock())).build()


MODULE = """
import evsrc
from tests.runtime.flows import heard

ZONES = {"b", "a"}

def build():
    flow = evsrc.Flow("module", input=int, reuse="log")

    @flow.node
    async def node(start: int) -> list[str]:
        heard("node")
        return sorted(ZONES)

    return flow
"""


@pytest.mark.parametrize(
    ("before", "after"), [('{"b", "a"}', '{"b", "c"}'), ("sorted(ZONES)", "sorted(ZONES)[:1]")]
)
async def test_a_module_constant_and_one_changed_line_count(
    tmp_path: Path, before: str, after: str
) -> None:
    """A node that reads a changed constant, or whose code changed by one line, computes anew."""
    ran()
    log = evsrc.MemoryLog()
    first = await go(log, load(tmp_path, MODULE).build(), 1, run_id="a")
    again = await go(log, load(tmp_path, MODULE).build(), 1, run_id="b")
    assert (again.value, counted()) == (first.value, {"node": 1})
    other = await go(log, load(tmp_path, MODULE.replace(before, after)).build(), 1, run_id="c")
    assert other.value != first.value
    assert counted() == {"node": 1}


def test_a_lambda_and_a_partial_are_no_nodes() -> None:
    """Neither has a name that says which node it is."""
    for nameless in (lambda start: start, partial(blocker("dmz"), 1)):
        with pytest.raises(DefinitionError, match="has no name"):
            flow_of(nameless)


async def test_a_declared_version_stands_for_the_code() -> None:
    """Who declares one says that two texts mean the same: the checkpoint is shared."""
    log = evsrc.MemoryLog()
    for number, zone in enumerate(["dmz", "lan"]):
        flow = evsrc.Flow("zones", input=int, reuse="log")
        flow.node(version="1")(blocker(zone))
        outcome = await go(log, flow, 1, run_id=str(number))
        assert outcome.value["block"] == "blocked 1 in dmz"
