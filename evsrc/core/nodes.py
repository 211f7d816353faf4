"""Deciding about nodes: reuse a checkpoint, run, retry, give up, or ask because somebody acted on it.

Rule: a checkpoint is found by its key and admitted by the digests of the outputs it was computed from.
What a recorded intent rests on is pinned: never computed again in that run.
Does not know: functions, files, tasks. Keys and digests are handed in.
Must change together: core/keys.py (what is in a node key), docs/explanation/checkpoints.md.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from evsrc.core import keys
from evsrc.core.events import ErrorData, NodeFailed, NodeOutput, NodeStarted, QuestionAsked
from evsrc.core.graph import Graph
from evsrc.core.state import NodeId, NodeState, RunState, pins

RETRY_PAUSE_S_MAX = 300.0
"""Longest pause before a node's next attempt: an outage of hours is better met by a human's resume."""


class Retry(msgspec.Struct, frozen=True):
    """How often a node may run: `attempts` in all, the first pause in seconds, doubling by `factor`."""

    attempts: int = 1
    pause_s: float = 0.1
    factor: float = 2.0
    on: tuple[type[BaseException], ...] = ()
    """Errors that are transient besides ConnectionError, TimeoutError and evsrc.errors.Transient."""


class NodeAsk(msgspec.Struct, frozen=True, kw_only=True):
    """One node, or one item, whose needs are met. `upstream` maps needs to digests of their outputs."""

    node: str
    key: str
    parts: dict[str, str]
    upstream: dict[str, str]
    now_ns: int
    item: str = ""
    pinned: bool = False
    mixed: tuple[str, ...] = ()
    """Files of which its ancestors saw two versions."""
    elsewhere: NodeOutput | None = None
    """A checkpoint of another run under the same key, where the flow allows that."""
    elsewhere_run: str = ""

    @property
    def subject(self) -> str:
        return f"{self.node}[{self.item}]" if self.item else self.node


class Reuse(msgspec.Struct, frozen=True):
    """The recorded output stands. `stale`: parts of its key that have changed since (pinned)."""

    output: NodeOutput
    stale: tuple[str, ...] = ()


class Adopt(msgspec.Struct, frozen=True):
    """Another run's output stands: append this event."""

    output: NodeOutput


class StartNode(msgspec.Struct, frozen=True):
    """Run it. `event` is None where the log already says so: the same key and attempt go on."""

    attempt: int
    event: NodeStarted | None


class WaitRetry(msgspec.Struct, frozen=True):
    """The next attempt may start after `seconds`."""

    seconds: float


class GiveUp(msgspec.Struct, frozen=True):
    """No further attempt: the run fails with this."""

    error: ErrorData


class AskAbout(msgspec.Struct, frozen=True):
    """Somebody acted on what has changed since: append the question, then wait for its answer."""

    question: QuestionAsked


class AwaitAnswer(msgspec.Struct, frozen=True):
    """The question is open."""

    question: str


NodeAction: TypeAlias = Reuse | Adopt | StartNode | WaitRetry | GiveUp | AskAbout | AwaitAnswer


def pinned_nodes(state: RunState, graph: Graph) -> set[NodeId | str]:
    """Nodes (and single items) that a recorded intent rests on: its own place and all ancestors."""
    pinned: set[NodeId | str] = set()
    for call in state.calls.values():
        scope = call.intent.scope
        if not scope or not pins(call) or scope[0] not in graph.names:
            continue
        item = _item(scope)
        pinned.add((scope[0], item) if item else scope[0])
        pinned.update(graph.ancestors(scope[0]))
    return pinned


def _item(scope: tuple[str, ...]) -> str:
    return scope[1][5:] if len(scope) > 1 and scope[1].startswith("item:") else ""


def is_pinned(pinned: set[NodeId | str], node: str, item: str = "") -> bool:
    """Is this node, or this item of it, pinned?"""
    return node in pinned or (node, item) in pinned


def mixed_files(files: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Paths that appear with more than one digest."""
    seen: dict[str, str] = {}
    mixed: set[str] = set()
    for one in files:
        for path, digest in one.items():
            if seen.setdefault(path, digest) != digest:
                mixed.add(path)
    return tuple(sorted(mixed))


def node_action(state: RunState, ask: NodeAsk) -> NodeAction:
    """What to do with a node whose needs are met."""
    node = state.nodes.get((ask.node, ask.item), NodeState())
    doubt = _doubt(state, node, ask)
    if doubt is not None:
        return doubt
    output = node.output
    if output is not None and (ask.pinned or _admitted(output, ask)):
        return Reuse(output, tuple(keys.why(output.parts, ask.parts)))
    failed = node.failed
    if failed is not None and failed.key == ask.key:
        return _after_failure(failed, ask)
    started = node.started
    if started is not None and started.key == ask.key and node.unfinished:
        return StartNode(started.attempt, None)
    if ask.elsewhere is not None and ask.elsewhere.upstream == ask.upstream:
        return Adopt(
            msgspec.structs.replace(ask.elsewhere, source_run=ask.elsewhere_run, attempt=1)
        )
    return StartNode(1, NodeStarted(ask.node, ask.key, 1, ask.item))


def _admitted(output: NodeOutput, ask: NodeAsk) -> bool:
    return output.key == ask.key and output.upstream == ask.upstream


def _after_failure(failed: NodeFailed, ask: NodeAsk) -> NodeAction:
    if failed.retry_at_ns is None:
        return GiveUp(failed.error)
    wait_s = (failed.retry_at_ns - ask.now_ns) / 1e9
    if 0 < wait_s <= RETRY_PAUSE_S_MAX:
        return WaitRetry(wait_s)
    # Longer than any pause: the clock was set back, and that must not postpone the retry for hours.
    attempt = failed.attempt + 1
    return StartNode(attempt, NodeStarted(ask.node, ask.key, attempt, ask.item))


def _doubt(state: RunState, node: NodeState, ask: NodeAsk) -> NodeAction | None:
    """The question that must be answered first, if an act rests on what has changed."""
    changed: list[str] = []
    if ask.pinned and node.output is not None and not _admitted(node.output, ask):
        changed = keys.why(node.output.parts, ask.parts) or ["upstream outputs"]
    elif ask.pinned and node.output is None and node.started is not None:
        changed = ["code or inputs"] if node.started.key != ask.key else []
    changed += [f"file:{path} in two versions" for path in ask.mixed]
    if not changed:
        return None
    digest = _digest_of(ask)
    id_ = keys.question_id(ask.subject, "pinned", digest)
    asked = state.questions.get(id_)
    if asked is not None:  # the only answer that fits is "keep", and it was said of exactly this
        return AwaitAnswer(id_) if asked.answered is None else None
    text = (
        f"An act of this run rests on {ask.subject}, and {', '.join(changed)} changed since. "
        "Keep the act on the older evidence?"
    )
    return AskAbout(
        QuestionAsked(id_, "pinned", ask.subject, text, digest=digest, at_ns=ask.now_ns)
    )


def _digest_of(ask: NodeAsk) -> str:
    return ask.key + "".join(f"+{path}" for path in ask.mixed)


def node_failed(
    ask: NodeAsk, attempt: int, error: ErrorData, retry: Retry, now_ns: int
) -> NodeFailed:
    """The event of a failed attempt: with a time for the next one if it is transient and allowed."""
    retry_at_ns = None
    if error.transient and attempt < retry.attempts:
        pause_s = min(retry.pause_s * retry.factor ** (attempt - 1), RETRY_PAUSE_S_MAX)
        retry_at_ns = now_ns + round(pause_s * 1e9)
    return NodeFailed(ask.node, ask.key, attempt, error, ask.item, retry_at_ns)


PlanStatus: TypeAlias = Literal["reuse", "run", "pinned"]


class Planned(msgspec.Struct, frozen=True):
    """What a resume would do with one node (or item), and which parts of its key differ."""

    node: str
    status: PlanStatus
    why: tuple[str, ...] = ()
    item: str = ""
    source_run: str = ""


def planned(state: RunState | None, ask: NodeAsk) -> Planned:
    """The plan's line for a node whose key is known. Pure: asks nothing, records nothing."""
    node = None if state is None else state.nodes.get((ask.node, ask.item))
    output = None if node is None else node.output
    differs = () if output is None else tuple(keys.why(output.parts, ask.parts))
    if output is not None and ask.pinned:
        return Planned(ask.node, "pinned", differs, ask.item)
    if output is not None and _admitted(output, ask):
        return Planned(ask.node, "reuse", (), ask.item)
    if ask.elsewhere is not None and ask.elsewhere.upstream == ask.upstream:
        return Planned(ask.node, "reuse", differs, ask.item, ask.elsewhere_run)
    why = ("no checkpoint",) if output is None else differs or ("upstream outputs",)
    return Planned(ask.node, "run", why, ask.item)
