"""node_action as a whole: total, bounded in attempts, and never past a pinned act without an answer."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from evsrc.core.events import (
    ErrorData,
    Event,
    NodeFailed,
    NodeOutput,
    NodeStarted,
    QuestionAnswered,
)
from evsrc.core.nodes import (
    Adopt,
    AskAbout,
    AwaitAnswer,
    GiveUp,
    NodeAsk,
    Retry,
    Reuse,
    StartNode,
    WaitRetry,
    node_action,
    node_failed,
)
from evsrc.core.state import RunState, evolve
from evsrc.testing.specification import RUN, SECOND_NS, START_NS

ACTIONS_MAX = 60
"""Far more than any node of these stories needs."""

FATES = st.lists(st.sampled_from(["done", "transient", "hard", "crash", "crash"]), max_size=20)


def ask(key: str, now_ns: int, *, pinned: bool = False) -> NodeAsk:
    """The node, under this key."""
    return NodeAsk(
        node="n", key=key, parts={"code": key}, upstream={}, now_ns=now_ns, pinned=pinned
    )


@given(FATES, st.integers(1, 4))
def test_attempts_survive_crashes_and_are_bounded(fates: list[str], allowed: int) -> None:
    """However often the process dies, the node starts at most so many attempts, and ends."""
    state, now_ns = RunState(RUN), START_NS
    left, started, deaths = list(fates), list[int](), 0
    retry = Retry(attempts=allowed, pause_s=1.0)
    for _ in range(ACTIONS_MAX):
        action = node_action(state, ask("k", now_ns))
        if isinstance(action, Reuse | GiveUp):
            break
        if isinstance(action, WaitRetry):
            assert 0 < action.seconds <= 300
            now_ns += round(action.seconds * SECOND_NS)
            continue
        assert isinstance(action, StartNode)
        if action.event is not None:
            started.append(action.attempt)
            evolve(state, action.event)
        fate = left.pop() if left else "done"
        if fate == "done":
            evolve(state, NodeOutput("n", "k", b"o", "d", action.attempt, parts={"code": "k"}))
        elif fate == "crash":
            deaths += 1
        else:
            error = ErrorData("Error", fate, transient=fate == "transient")
            evolve(state, node_failed(ask("k", now_ns), action.attempt, error, retry, now_ns))
    else:
        raise AssertionError("the node does not end")
    assert started == list(range(1, len(started) + 1))
    assert len(started) <= allowed


NODE_EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(NodeStarted, st.just("n"), st.sampled_from("ab"), st.integers(1, 2)),
    st.builds(
        NodeOutput,
        st.just("n"),
        st.sampled_from("ab"),
        st.just(b"o"),
        st.just("d"),
        parts=st.just({"code": "a"}),
    ),
    st.builds(
        NodeFailed,
        st.just("n"),
        st.sampled_from("ab"),
        st.integers(1, 2),
        st.just(ErrorData("E", "x")),
        retry_at_ns=st.sampled_from([None, START_NS]),
    ),
)


@given(st.lists(NODE_EVENTS, max_size=8), st.sampled_from("ab"))
def test_a_pinned_node_is_never_computed_again_without_an_answer(
    log: list[Event], key: str
) -> None:
    """Under another key than the one that acted, a person is asked first, once, and their keep is enough."""
    state = RunState(RUN)
    for event in log:
        evolve(state, event)
    node = state.nodes.get(("n", ""))
    pinned = msgspec.structs.replace(ask(key, START_NS), pinned=True)
    action = node_action(state, pinned)
    done = node is not None and node.output_order > node.started_order
    if node is not None and node.output is not None and done:
        assert isinstance(action, Reuse if node.output.key == key else AskAbout)
    elif node is not None and node.started is not None and node.started.key != key:
        assert isinstance(action, AskAbout)
    if isinstance(action, AskAbout):
        evolve(state, action.question)
        assert node_action(state, pinned) == AwaitAnswer(action.question.question)
        evolve(state, QuestionAnswered(action.question.question, "ada", "keep"))
        assert not isinstance(node_action(state, pinned), AskAbout | AwaitAnswer)


@given(st.lists(NODE_EVENTS, max_size=8), st.sampled_from("ab"))
def test_an_action_follows_from_every_history(log: list[Event], key: str) -> None:
    """Total: any order of events leads to one action, and asking twice gives the same one."""
    state = RunState(RUN)
    for event in log:
        evolve(state, event)
    action = node_action(state, ask(key, START_NS))
    assert action == node_action(state, ask(key, START_NS))
    assert isinstance(action, Reuse | Adopt | StartNode | WaitRetry | GiveUp)
    if isinstance(action, Reuse):
        assert action.output.key == key
