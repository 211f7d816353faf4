"""Outcomes: how a run stands, what it gives, and what it refuses to give."""

import pytest

import evsrc
from evsrc.core.events import ErrorData, QuestionAsked
from evsrc.errors import RunNotCompleted
from tests.runtime.desk import Desk
from tests.runtime.flows import go

QUESTION = QuestionAsked("q1", "unknown", "c1", "Did it happen?")


async def node(start: int) -> int:
    """A node."""
    return start


async def stranger(start: int) -> int:
    """A node of no flow."""
    return start


def test_a_completed_outcome_gives_the_outputs_by_node() -> None:
    """By the node's function or its name; its value is all of them."""
    outcome = evsrc.Completed("r", {"node": 1})
    assert outcome.value == {"node": 1}
    assert outcome[node] == 1
    assert repr(outcome) == "<run 'r' completed>"


def test_a_fan_out_gives_a_list() -> None:
    """Each-nodes are named by the object that the decorator made."""
    flow = evsrc.Flow("f", input=int)

    @flow.node(version="1")
    async def source(start: int) -> list[int]:
        return [start]

    @flow.each(source, key=str, version="1")
    async def item(one: int) -> int:
        return one

    assert evsrc.Completed("r", {"item": [1]})[item] == [1]


def test_a_node_of_another_flow_is_named() -> None:
    """Asking for what the run has not is a KeyError."""
    with pytest.raises(KeyError, match="stranger"):
        evsrc.Completed("r", {"node": 1})[stranger]
    with pytest.raises(KeyError, match="no run of a flow"):
        evsrc.Completed("r", 7)[node]


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (evsrc.Failed("r", ErrorData("ValueError", "no"), ()), "failed: ValueError: no"),
        (evsrc.Cancelled("r"), "cancelled"),
        (evsrc.Suspended("r", (QUESTION,)), "suspended: 1 open question(s)"),
    ],
)
def test_only_a_completed_run_gives_a_value(outcome: evsrc.Outcome[int], text: str) -> None:
    """All others raise, and say how the run stands."""
    assert outcome.describe() == text
    with pytest.raises(RunNotCompleted, match=r"run 'r' is "):
        _ = outcome.value
    with pytest.raises(RunNotCompleted, match=r"run 'r' is "):
        outcome[node]


async def test_a_failed_run_lists_its_open_calls() -> None:
    """A terminal event ends the workflow, not its calls; what is done stays in the log."""
    desk, flow = Desk("lose"), evsrc.Flow("f", input=int)

    @flow.node(version="1")
    async def gives_up(run: evsrc.Run) -> str:
        import anyio

        with anyio.move_on_after(0.01):
            return await run.call(desk.page, "p")
        raise ValueError("nobody answered")

    log = evsrc.MemoryLog()
    outcome = await go(log, flow, 1, tools=desk.all_tools)
    assert isinstance(outcome, evsrc.Failed)
    async with evsrc.open_runtime(log, tools=desk.all_tools) as runtime:
        (call,) = runtime.state("r").unsettled
        assert outcome.open_calls == (call.id,)


async def test_a_completed_run_is_read_from_its_log() -> None:
    """Its outputs are those that it recorded; a node that the code gained since is left out."""
    log, flow = evsrc.MemoryLog(), evsrc.Flow("f", input=int)
    flow.node(version="1")(node)
    await go(log, flow, 5)

    @flow.node(version="1")
    async def gained(node: int) -> int:
        raise AssertionError

    outcome = await go(log, flow, 5)
    assert outcome.value == {"node": 5}
    with pytest.raises(KeyError, match="gained"):
        outcome[gained]
