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
from evsrc.core.calls import pins
from evsrc.core.events import ErrorData, NodeFailed, NodeOutput, NodeStarted, QuestionAsked
from evsrc.core.graph import Graph
from evsrc.core.state import NodeId, NodeState, RunState

RETRY_PAUSE_S_MAX = 300.0
"""Longest pause before a node's next attempt: an outage of hours is better met by a human's resume."""

DOUBLINGS_MAX = 30
"""After so many growths every pause has met its longest; more would overflow."""


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
    output = _last(node) if ask.pinned else node.output
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


def _last(node: NodeState) -> NodeOutput | None:
    """The output of what ran last. A later attempt without one may have acted: it goes on instead."""
    return node.output if node.output_order > node.started_order else None


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
    changed = _changed_since(node, ask) if ask.pinned else []
    mixed = [f"file:{path} in two versions" for path in ask.mixed]
    if not changed and not mixed:
        return None
    subject, digest = ask.subject, ask.key + "".join(f"+{path}" for path in ask.mixed)
    if ask.item and not mixed and all(part in ask.parts for part in changed):
        # Items that share one change (a feed, the code) share one question: a person answers it once.
        subject, digest = ask.node, ",".join(f"{part}={ask.parts[part]}" for part in changed)
    text = (
        f"An act of this run rests on {subject}, and {', '.join(changed + mixed)} changed since. "
        "Keep the act on the older evidence?"
    )
    return _about_acts(state, subject, digest, text, ask.now_ns)


def _changed_since(node: NodeState, ask: NodeAsk) -> list[str]:
    """Which parts of the key differ from what an act rests on."""
    output, started = _last(node), node.started
    if output is not None:
        if _admitted(output, ask):
            return []
        return keys.why(output.parts, ask.parts) or ["upstream outputs"]
    return ["code or inputs"] if started is not None and started.key != ask.key else []


def _about_acts(
    state: RunState, subject: str, digest: str, text: str, now_ns: int
) -> AskAbout | AwaitAnswer | None:
    id_ = keys.question_id(f"{state.run_id}/{subject}", "pinned", digest)
    asked = state.questions.get(id_)
    if asked is not None:  # the only answer that fits is "keep", and it was said of exactly this
        return AwaitAnswer(id_) if asked.answered is None else None
    return AskAbout(QuestionAsked(id_, "pinned", subject, text, digest=digest, at_ns=now_ns))


class LetStand(msgspec.Struct, frozen=True):
    """These recorded calls and reads may stay unasked: nothing acted, or a person lets the acts stand."""

    ids: tuple[str, ...]


def unasked(
    state: RunState, ask: NodeAsk, missing: Mapping[str, str]
) -> LetStand | AskAbout | AwaitAnswer:
    """An attempt ended well without asking for `missing` (id -> description) of its scope.

    What an earlier attempt, or an earlier key, recorded is asked about if it acted. What this very
    attempt recorded is left out of the answer: its code diverged.
    """
    began = state.nodes.get((ask.node, ask.item), NodeState()).started_order
    earlier = tuple(id_ for id_ in missing if _order(state, id_) < began)
    acts = [id_ for id_ in earlier if id_ in state.calls and pins(state.calls[id_])]
    if not acts:
        return LetStand(earlier)
    digest = f"{ask.key} without {','.join(sorted(acts))}"
    text = (
        f"{ask.subject} is done now without {', '.join(missing[id_] for id_ in acts)}, which an "
        "earlier attempt of it did. Keep that act?"
    )
    return _about_acts(state, ask.subject, digest, text, ask.now_ns) or LetStand(earlier)


def _order(state: RunState, id_: str) -> int:
    """Where in the run it was recorded first."""
    call, read, gave_up = state.calls.get(id_), state.reads.get(id_), state.gave_up.get(id_)
    return min(e.order for e in (call, read, gave_up) if e is not None)


def node_failed(
    ask: NodeAsk, attempt: int, error: ErrorData, retry: Retry, now_ns: int
) -> NodeFailed:
    """The event of a failed attempt: with a time for the next one if it is transient and allowed."""
    retry_at_ns = None
    if error.transient and attempt < retry.attempts:
        doublings = min(attempt - 1, DOUBLINGS_MAX)
        pause_s = min(retry.pause_s * retry.factor**doublings, RETRY_PAUSE_S_MAX)
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
    if node is not None and ask.pinned and node.started_order > node.output_order:
        changed = _changed_since(node, ask)
        return Planned(ask.node, "pinned", ("unfinished", *changed), ask.item)
    mixed = tuple(f"file:{path} in two versions" for path in ask.mixed)
    if output is not None and ask.pinned:
        return Planned(ask.node, "pinned", differs + mixed, ask.item)
    if output is not None and _admitted(output, ask):
        return Planned(ask.node, "reuse", (), ask.item)
    if ask.elsewhere is not None and ask.elsewhere.upstream == ask.upstream:
        return Planned(ask.node, "reuse", differs, ask.item, ask.elsewhere_run)
    why = ("no checkpoint",) if output is None else differs or ("upstream outputs",)
    return Planned(ask.node, "run", why + mixed, ask.item)
