"""What was spent, and what of it again."""

import pytest

from evsrc.core.events import CallNotSent, NodeStarted, ResultRecorded, StepRecorded
from evsrc.projections.costs import Costs, Spent
from tests.projections.given import ERROR, STARTED, feed, intent, output


def test_an_intent_costs_what_its_tool_declared() -> None:
    """Attempts beyond the first are counted as spent again."""
    costs = feed(
        Costs(),
        STARTED,
        intent(cost=0.5),
        intent(attempt=2, cost=0.5),
        ResultRecorded("c1", 2),
        intent("c2", cost=0.5),
    )

    assert costs.by_tool() == {"page": Spent(3, 1.5, 1, 0.5)}


def test_what_was_not_sent_costs_nothing() -> None:
    """Neither is the attempt after it a repetition; said twice, it still counts once."""
    last = CallNotSent("c1", 1, ERROR, final=True)
    costs = feed(Costs(), intent(cost=0.5), CallNotSent("c1", 1, ERROR), last)
    assert costs.by_tool() == {"page": Spent()}

    feed(costs, intent(attempt=2, cost=0.5))
    assert costs.by_tool() == {"page": Spent(1, 0.5)}


def test_a_node_costs_once_per_start() -> None:
    """Starts beyond the first under one key are spent again; another key is new work."""
    costs = feed(
        Costs(),
        NodeStarted("n", "k"),
        NodeStarted("n", "k", 2),
        output("n", "k", attempt=2, cost=0.25),
        NodeStarted("n", "other"),
        output("n", "other", cost=0.25),
    )

    assert costs.by_node() == {"n": Spent(3, 0.75, 1, 0.25)}


def test_items_are_counted_apart_and_added_up() -> None:
    """One start of each of two items repeats nothing."""
    costs = feed(
        Costs(),
        NodeStarted("n", "k1", item="a"),
        output("n", "k1", item="a", cost=1.0),
        NodeStarted("n", "k2", item="b"),
        output("n", "k2", item="b", cost=1.0),
    )

    assert costs.by_node() == {"n": Spent(2, 2.0)}


def test_an_output_of_another_run_costs_nothing() -> None:
    """A checkpoint taken over was paid for elsewhere."""
    assert feed(Costs(), output(source_run="r-0", cost=1.0)).total() == Spent()


def test_reads_are_counted_by_name() -> None:
    """A read costs when it is recorded."""
    step = StepRecorded((), "ask_model", "d", cost=0.1)
    costs = feed(Costs(), step, step)

    assert costs.by_tool()["ask_model"].count == 2
    assert costs.total().cost == pytest.approx(0.2)


def test_one_run_may_be_asked_for() -> None:
    """Other runs are passed over."""
    costs = feed(feed(Costs("r-2"), intent(cost=1.0)), intent(cost=2.0), run="r-2")

    assert costs.total() == Spent(1, 2.0)
