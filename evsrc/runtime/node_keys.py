"""Node keys of a built flow: the parts of a key from what the upstream nodes gave and the files hold.

Rule: the same code serves the plan and the execution, so that a plan cannot say something else.
Does not know: what is done with a key (core/nodes.py).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from evsrc.core import canonical, keys
from evsrc.core.codec import decode_value
from evsrc.core.events import NodeOutput
from evsrc.core.nodes import NodeAsk, mixed_files
from evsrc.runtime.fingerprint import file_digest
from evsrc.runtime.flow import Node

NO_DIGEST = ""


class NodeResult(msgspec.Struct, frozen=True):
    """What a done node gives to those that need it."""

    value: Any
    key: str
    digest: str
    files: frozenset[tuple[str, str]] = frozenset()
    """(path, digest) of every file that it, or anything above it, read."""


class KeyContext(msgspec.Struct, frozen=True):
    """What all nodes of one run share."""

    run_id: str
    input_digest: str
    now_ns: int = 0


def file_digests(node: Node) -> dict[str, str]:
    """Digest of every file that the node declares. Raises DefinitionError for one that is missing."""
    return {path: file_digest(path) for path in node.declared.reads}


def ask_for(
    node: Node,
    context: KeyContext,
    upstream: Mapping[str, NodeResult],
    files: Mapping[str, str],
    *,
    item: str = "",
    item_value: Any = None,
    pinned: bool = False,
    now_ns: int = 0,
) -> NodeAsk:
    """The question "what about this node?" for core/nodes.py, with its key and the key's parts."""
    needs = {name: r for name, r in upstream.items() if not (item and name == node.declared.source)}
    parts = keys.NodeKeyParts(
        node=node.name,
        code=node.code,
        params=canonical.digest(node.declared.params),
        input=context.input_digest if node.input_parameters else NO_DIGEST,
        run_id=context.run_id if node.run_parameters else NO_DIGEST,
        item=canonical.digest(item_value) if item else NO_DIGEST,
        upstream={name: r.key for name, r in needs.items()},
        files=dict(files),
    )
    return NodeAsk(
        node=node.name,
        key=keys.node_key(parts),
        parts=keys.parts_digests(parts),
        upstream={name: r.digest for name, r in needs.items()},
        now_ns=now_ns,
        item=item,
        pinned=pinned,
        mixed=_newly_mixed(upstream.values(), files),
    )


def _newly_mixed(
    upstream: "Mapping[str, NodeResult] | Any", files: Mapping[str, str]
) -> tuple[str, ...]:
    """Files of which this node is the first to meet two versions; further down it was asked already."""
    results: list[NodeResult] = list(upstream)
    if not any(r.files for r in results):
        return ()
    known = {path for r in results for path in mixed_files({p: d} for p, d in r.files)}
    everything = [{p: d} for r in results for p, d in r.files]
    return tuple(p for p in mixed_files([*everything, dict(files)]) if p not in known)


def result_of(output: NodeOutput, node: Node, upstream: Mapping[str, NodeResult]) -> NodeResult:
    """What a recorded output gives to those below: the decoded value, on the first run too."""
    files = frozenset(output.files.items()).union(*(r.files for r in upstream.values()))
    return NodeResult(
        decode_value(output.output, node.returns), output.key, output.output_digest, files
    )


def joined(names: list[str], results: list[NodeResult]) -> NodeResult:
    """The list that a fan-out gives: its key and digest follow from those of its items, in order."""
    pairs = list(zip(names, results, strict=True))
    return NodeResult(
        [r.value for r in results],
        keys.bytes_digest(canonical.canonical([(name, r.key) for name, r in pairs])),
        keys.bytes_digest(canonical.canonical([(name, r.digest) for name, r in pairs])),
        frozenset().union(*(r.files for r in results)),
    )
