"""Semantics 6 and 7: what a read may serve, when a checkpoint is admitted, what an act pins."""

import msgspec

from evsrc.core.events import (
    CallNotSent,
    ErrorData,
    Event,
    IntentReconciled,
    NodeFailed,
    NodeOutput,
    NodeStarted,
    OutcomeUnknown,
    QuestionAnswered,
    ResultRecorded,
    RunFailed,
    RunReopened,
    StepRecorded,
    WaitAbandoned,
)
from evsrc.core.graph import build_graph
from evsrc.core.nodes import (
    Adopt,
    AskAbout,
    AwaitAnswer,
    GiveUp,
    NodeAsk,
    Planned,
    Retry,
    Reuse,
    StartNode,
    WaitRetry,
    is_pinned,
    mixed_files,
    node_action,
    node_failed,
    pinned_nodes,
    planned,
)
from evsrc.core.replay import owed, recorded
from evsrc.core.state import RunState
from evsrc.testing.specification import CALL, SECOND_NS, START_NS, Given, given, intent

SCOPE = ("ticket",)
TRANSIENT = ErrorData("ConnectionError", "reset", transient=True)
HARD = ErrorData("ValueError", "bad input")
GRAPH = build_graph({"feed": (), "score": ("feed",), "ticket": ("score",), "page": ("score",)})


def ask(node: str = "ticket", key: str = "key-1", **fields: object) -> NodeAsk:
    """A node whose needs are met."""
    plain = NodeAsk(
        node=node,
        key=key,
        parts={"code": f"code of {key}"},
        upstream={"score": "digest-1"},
        now_ns=START_NS,
    )
    return msgspec.structs.replace(plain, **fields)


def output(node: str = "ticket", key: str = "key-1", **fields: object) -> NodeOutput:
    """That node's output."""
    plain = NodeOutput(
        node,
        key,
        b"output",
        "output-digest",
        upstream={"score": "digest-1"},
        parts={"code": f"code of {key}"},
    )
    return msgspec.structs.replace(plain, **fields)


def started(key: str = "key-1", attempt: int = 1) -> NodeStarted:
    """The node starts."""
    return NodeStarted("ticket", key, attempt)


def failed(attempt: int = 1, at_s: float | None = None, error: ErrorData = TRANSIENT) -> NodeFailed:
    """An attempt of the node failed; the next one may start `at_s` after START_NS."""
    retry_at_ns = None if at_s is None else START_NS + round(at_s * SECOND_NS)
    return NodeFailed("ticket", "key-1", attempt, error, retry_at_ns=retry_at_ns)


def read(name: str, scope: tuple[str, ...] = SCOPE) -> Event:
    """A read in the scope of the node."""
    return StepRecorded(scope, name, "args", ordinal=1, value=b"v")


def reads(story: Given) -> list[str]:
    """Names of the reads that may still be served."""
    return [r.event.name for r in story.state.reads.values()]


def about(node_ask: NodeAsk):  # type: ignore[no-untyped-def]
    """The command: what to do with this node."""
    return lambda state: node_action(state, node_ask)


# ---- what a read may serve -----------------------------------------------------------------------


def test_the_same_key_and_attempt_replay_every_read() -> None:
    """A crash in the middle of an attempt loses no read."""
    story = given(started(), read("a"), read("b"), started())
    assert reads(story) == ["a", "b"]


def test_another_attempt_hides_the_reads() -> None:
    """A retry asks again what no act rests on."""
    story = given(started(), read("a"), failed(at_s=0), started(attempt=2))
    assert reads(story) == []
    assert recorded(story.state, SCOPE) == []
    assert owed(story.state, SCOPE) == {}


def test_another_key_hides_the_reads() -> None:
    """A changed feed never leaks an old read into a new output."""
    assert reads(given(started("key-1"), read("a"), started("key-2"))) == []


def test_reads_before_the_last_pinning_intent_stay() -> None:
    """An act rests on them: they are served for ever, later ones are asked again."""
    acted = (intent(1), ResultRecorded(CALL, 1, b"T-1"))
    story = given(started(), read("before"), *acted, read("after"), started(attempt=2))
    assert reads(story) == ["before"]


def test_the_last_pinning_intent_is_of_the_last_attempt_that_may_have_acted() -> None:
    """A first attempt that was not sent pins nothing; what the second one rests on, it does."""
    story = given(
        started(),
        intent(1),
        CallNotSent(CALL, 1, ErrorData("NotSent", "refused")),
        read("between"),
        intent(2),
        OutcomeUnknown(CALL, 2, "timeout"),
        read("after"),
        started(attempt=2),
    )
    assert reads(story) == ["between"]


def test_an_intent_closed_without_effect_pins_no_read() -> None:
    """A refused act holds nothing back."""
    refused = IntentReconciled(CALL, 1, "absent", "probe")
    assert reads(given(started(), read("a"), intent(1), refused, started(attempt=2))) == []


def test_reads_of_other_scopes_are_not_hidden() -> None:
    """A node hides what stands below its own scope: its items and maps, not its neighbours."""
    story = given(
        started(), read("mine", (*SCOPE, "map:#1")), read("other", ("page",)), started("key-2")
    )
    assert reads(story) == ["other"]


def test_an_item_hides_only_its_own_reads() -> None:
    """The items of a fan-out are retried one by one."""
    story = given(
        NodeStarted("ticket", "k", item="x"),
        NodeStarted("ticket", "k", item="y"),
        read("x", ("ticket", "item:x")),
        read("y", ("ticket", "item:y")),
        NodeStarted("ticket", "k", 2, item="x"),
    )
    assert reads(story) == ["y"]


def test_a_retry_waits_anew_for_a_call_that_was_given_up() -> None:
    """The patience of the first attempt is no history of the second; the call itself is found again."""
    gave_up = WaitAbandoned(CALL, 1.0, SCOPE, "open_ticket")
    first = given(started(), intent(1), OutcomeUnknown(CALL, 1, "cancelled"), gave_up)
    assert [r.kind for r in recorded(first.state, SCOPE)] == ["abandoned"]
    late = IntentReconciled(CALL, 1, "happened", "probe", value=b"T-1")
    second = first.and_then(late, failed(at_s=0), started(attempt=2))
    assert [r.kind for r in recorded(second.state, SCOPE)] == ["outcome"]


# ---- attempts of a node --------------------------------------------------------------------------


def test_a_node_without_history_starts() -> None:
    """Its first attempt is an event."""
    given().when(about(ask())).then(StartNode(1, NodeStarted("ticket", "key-1", 1)))


def test_an_attempt_that_a_crash_cut_goes_on() -> None:
    """Same key, same attempt: no second event, so that its reads are replayed."""
    given(started(attempt=2)).when(about(ask())).then(StartNode(2, None))


def test_an_attempt_of_another_key_is_not_continued() -> None:
    """Changed code or inputs start from the first attempt."""
    given(started("key-0", 3)).when(about(ask())).then(StartNode(1, started("key-1")))


def test_retry_attempts_survive_a_crash() -> None:
    """The number of the next attempt, and when it may start, come from the log."""
    story = given(started(), failed(1, 10.0), started(attempt=2), failed(2, 30.0))
    story.when(about(ask())).then(WaitRetry(30.0))
    late = ask(now_ns=START_NS + 30 * SECOND_NS)
    story.when(about(late)).then(StartNode(3, started(attempt=3)))


def test_a_clock_set_back_does_not_postpone_a_node_for_hours() -> None:
    """A time further away than any pause is a clock that was set back: the retry is due."""
    story = given(started(), failed(1, 10.0))
    story.when(about(ask(now_ns=START_NS - 290 * SECOND_NS))).then(WaitRetry(300.0))
    story.when(about(ask(now_ns=0))).then(StartNode(2, started(attempt=2)))


def test_a_hard_failure_gives_up() -> None:
    """No time for a next attempt: the run fails with the recorded error, now and on every resume."""
    story = given(started(), failed(error=HARD))
    story.when(about(ask())).then(GiveUp(HARD))
    story.when(about(ask(key="key-2"))).then(StartNode(1, started("key-2")))


def test_only_transient_errors_are_retried_and_only_so_often() -> None:
    """Pauses double; the last attempt, and a hard error, leave no time for another."""
    retry = Retry(attempts=3, pause_s=1.0)
    times = [node_failed(ask(), n, TRANSIENT, retry, START_NS).retry_at_ns for n in (1, 2, 3)]
    assert times == [START_NS + SECOND_NS, START_NS + 2 * SECOND_NS, None]
    assert node_failed(ask(), 1, HARD, retry, START_NS).retry_at_ns is None
    patient = node_failed(ask(), 5_000, TRANSIENT, Retry(attempts=9_999), START_NS)
    assert patient.retry_at_ns == START_NS + 300 * SECOND_NS


def test_a_reopened_run_tries_its_failed_nodes_again() -> None:
    """One more attempt is owed, of its own number: it does not replay the reads that made it fail."""
    story = given(started(), read("a"), failed(1), RunFailed(TRANSIENT), RunReopened("ada"))
    assert story.state.status == "running"
    story.when(about(ask())).then(StartNode(2, started(attempt=2)))
    assert reads(story.and_then(started(attempt=2))) == []


# ---- checkpoints ---------------------------------------------------------------------------------


def test_a_checkpoint_is_found_by_its_key_and_admitted_by_its_upstream() -> None:
    """The same key, computed from the same outputs, is reused; anything else runs again."""
    story = given(started(), output())
    story.when(about(ask())).then(Reuse(output()))
    story.when(about(ask(upstream={"score": "digest-2"}))).then_is(StartNode)
    story.when(about(ask(key="key-2"))).then_is(StartNode)


def test_a_checkpoint_of_another_run_is_adopted() -> None:
    """Admitted by its upstream digests too; the event names where it came from."""
    elsewhere = output(attempt=4)
    story = given().when(about(ask(elsewhere=elsewhere, elsewhere_run="run-0")))
    story.then(Adopt(output(source_run="run-0")))
    other = output(upstream={"score": "digest-2"})
    given().when(about(ask(elsewhere=other, elsewhere_run="run-0"))).then_is(StartNode)


# ---- pinned acts ---------------------------------------------------------------------------------

ACTED = (started(), intent(1), ResultRecorded(CALL, 1, b"T-1"))


def test_an_act_pins_its_node_and_all_ancestors() -> None:
    """What a recorded intent rests on is never computed again in that run; a sibling is free."""
    given(*ACTED).when(lambda s: pinned_nodes(s, GRAPH)).then({"ticket", "score", "feed"})


def test_an_act_of_an_item_pins_that_item_only() -> None:
    """The other items of the fan-out are free, its ancestors are not."""
    pinned = pinned_nodes(given(intent(1, scope=("ticket", "item:x"))).state, GRAPH)
    assert is_pinned(pinned, "ticket", "x")
    assert not is_pinned(pinned, "ticket", "y")
    assert is_pinned(pinned, "score")


def test_an_act_without_effect_pins_nothing() -> None:
    """All attempts closed without effect."""
    story = given(intent(1), IntentReconciled(CALL, 1, "absent", "probe"))
    assert pinned_nodes(story.state, GRAPH) == set()
    strange = given(intent(1, scope=("gone",)))
    assert pinned_nodes(strange.state, GRAPH) == set()


def test_an_act_on_older_evidence_raises_a_question() -> None:
    """Changed code or inputs under a pinned node: a person decides, and the text names what changed."""
    story = given(*ACTED, output()).when(about(ask(key="key-2", pinned=True)))
    story.then_is(AskAbout)
    action = story.answer
    assert isinstance(action, AskAbout)
    assert action.question.kind == "pinned"
    assert "code" in action.question.text
    open_ = given(*ACTED, output(), action.question)
    open_.when(about(ask(key="key-2", pinned=True))).then(AwaitAnswer(action.question.question))


def keep(story: Given, node_ask: NodeAsk) -> Given:
    """Ask about the node, and let a person say keep."""
    action = node_action(story.state, node_ask)
    assert isinstance(action, AskAbout)
    return story.and_then(
        action.question, QuestionAnswered(action.question.question, "ada", "keep")
    )


def test_keep_lets_the_act_stand() -> None:
    """The old output goes on, with the parts of its key that changed."""
    changed = ask(key="key-2", pinned=True)
    story = keep(given(*ACTED, output()), changed)
    story.when(about(changed)).then(Reuse(output(), ("code",)))


def test_keep_is_said_of_one_change_only() -> None:
    """Changed again asks again; going back to what was kept does not."""
    kept, again = ask(key="key-2", pinned=True), ask(key="key-3", pinned=True)
    story = keep(given(*ACTED, output()), kept)
    story.when(about(again)).then_is(AskAbout)
    both = keep(story, again)
    both.when(about(again)).then_is(Reuse)
    both.when(about(kept)).then_is(Reuse)


def test_an_act_on_unchanged_evidence_is_reused_without_a_question() -> None:
    """Nothing changed: pinned or not, the checkpoint stands."""
    given(*ACTED, output()).when(about(ask(pinned=True))).then(Reuse(output()))


def test_an_unfinished_pinned_node_goes_on_or_asks() -> None:
    """It settles and replays under its own key; under another one a person decides first."""
    given(*ACTED).when(about(ask(pinned=True))).then(StartNode(1, None))
    changed = ask(key="key-2", pinned=True)
    given(*ACTED).when(about(changed)).then_is(AskAbout)
    keep(given(*ACTED), changed).when(about(changed)).then_is(StartNode)


def test_a_failed_pinned_node_is_retried() -> None:
    """An attempt that acted and failed is followed by one that finds the act again."""
    story = given(*ACTED, failed(1, 0.0))
    story.when(about(ask(pinned=True))).then(StartNode(2, started(attempt=2)))


def test_two_versions_of_one_file_above_a_node_raise_the_question() -> None:
    """Some items pinned on the old feed, some computed on the new one: a person decides."""
    files = [{"feed.csv": "d1"}, {"feed.csv": "d2", "other": "x"}, {"other": "x"}]
    assert mixed_files(files) == ("feed.csv",)
    mixed = ask(mixed=("feed.csv",))
    story = given().when(about(mixed))
    action = story.answer
    assert isinstance(action, AskAbout)
    assert "feed.csv" in action.question.text
    keep(given(), mixed).when(about(mixed)).then_is(StartNode)


# ---- the plan ------------------------------------------------------------------------------------


def plan_of(state: RunState | None, node_ask: NodeAsk) -> Planned:
    """The line of the plan."""
    return planned(state, node_ask)


def test_the_plan_says_what_happens_and_why() -> None:
    """Reuse, run or pinned, with the parts of the key that differ."""
    done = given(started(), output()).state
    assert plan_of(None, ask()) == Planned("ticket", "run", ("no checkpoint",))
    assert plan_of(done, ask()) == Planned("ticket", "reuse")
    assert plan_of(done, ask(key="key-2")) == Planned("ticket", "run", ("code",))
    assert plan_of(done, ask(upstream={})) == Planned("ticket", "run", ("upstream outputs",))
    assert plan_of(done, ask(key="key-2", pinned=True)) == Planned("ticket", "pinned", ("code",))
    there = ask(elsewhere=output(), elsewhere_run="run-0")
    assert plan_of(None, there) == Planned("ticket", "reuse", (), "", "run-0")
    changed = ask(key="key-2", elsewhere=output(key="key-2"), elsewhere_run="run-0")
    assert plan_of(done, changed) == Planned("ticket", "reuse", ("code",), "", "run-0")
