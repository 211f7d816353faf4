"""Node keys of a built flow: the parts of a key from what the upstream nodes gave and the files hold.

Rule: the same code serves the plan and the execution, so that a plan cannot say something else.
Does not know: what is done with a key (core/nodes.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from evsrc.core import canonical, keys
from evsrc.core.codec import decode_value
from evsrc.core.events import NodeOutput
from evsrc.core.nodes import NodeAsk, mixed_files
from evsrc.errors import DefinitionError, LimitExceeded
from evsrc.runtime.fingerprint import file_digest
from evsrc.runtime.flow import Node
from evsrc.runtime.run import item_keys

FAN_OUT_MAX = 10_000
"""Items of one fan-out: a wider one is several runs."""

NO_DIGEST = ""


class NodeResult(msgspec.Struct, frozen=True):
    """What a done node gives to those that need it."""

    decode: Callable[[], Any]
    key: str
    digest: str
    files: frozenset[tuple[str, str]] = frozenset()
    """(path, digest) of every file that it, or anything above it, read."""
    asked: frozenset[str] = frozenset()
    """Files of which it, or a node above it, met two versions: somebody was asked there already."""

    @property
    def value(self) -> Any:
        """The recorded value, decoded anew: a node that changes what it got changes nobody else's."""
        return self.decode()


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
    needs = {name: r for name, r in upstream.items() if not (item and _only_source(node, name))}
    parts = keys.NodeKeyParts(
        node=node.name,
        code=node.code,
        params=node.params_digest,
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


def _only_source(node: Node, need: str) -> bool:
    """Does an item depend on this need by its own item only, not on the whole list?"""
    return (
        need == node.declared.source
        and need not in node.edges.values()
        and need not in node.declared.needs
    )


def _newly_mixed(upstream: Iterable[NodeResult], files: Mapping[str, str]) -> tuple[str, ...]:
    """Files of which this node is the first to meet two versions; further down it was asked already."""
    results = list(upstream)
    if not any(r.files for r in results):
        return ()
    asked = frozenset[str]().union(*(r.asked for r in results))
    read = [{path: digest} for r in results for path, digest in r.files]
    return tuple(path for path in mixed_files([*read, files]) if path not in asked)


def result_of(output: NodeOutput, node: Node, upstream: Mapping[str, NodeResult]) -> NodeResult:
    """What a recorded output gives to those below: the decoded value, on the first run too."""
    decode_value(output.output, node.returns)  # one that no longer fits is refused here, not below
    decode = partial(decode_value, output.output, node.returns)
    return _result(decode, output.key, output.output_digest, output.files, upstream)


def not_yet(key: str, files: Mapping[str, str], upstream: Mapping[str, NodeResult]) -> NodeResult:
    """Stands in a plan for the result of a node that has yet to run: its output has no digest."""
    return _result(lambda: None, key, NO_DIGEST, files, upstream)


def _result(
    decode: Callable[[], Any],
    key: str,
    digest: str,
    files: Mapping[str, str],
    upstream: Mapping[str, NodeResult],
) -> NodeResult:
    read = frozenset(files.items()).union(*(r.files for r in upstream.values()))
    mixed = mixed_files({path: digest} for path, digest in read) if len(read) > 1 else ()
    return NodeResult(decode, key, digest, read, frozenset(mixed))


def joined(names: list[str], results: list[NodeResult]) -> NodeResult:
    """The list that a fan-out gives: its key and digest follow from those of its items, in order."""
    pairs = list(zip(names, results, strict=True))
    return NodeResult(
        lambda: [r.value for r in results],
        keys.bytes_digest(canonical.canonical([(name, r.key) for name, r in pairs])),
        keys.bytes_digest(canonical.canonical([(name, r.digest) for name, r in pairs])),
        frozenset[tuple[str, str]]().union(*(r.files for r in results)),
        frozenset[str]().union(*(r.asked for r in results)),
    )


def names_of_items(node: Node, value: Any) -> list[str]:
    """The keys of a fan-out's items, checked.

    Raises:
        DefinitionError: there is no list, or the key function fails or gives no text.
        KeyReuseError: two items have one key.
        LimitExceeded: too many items, or a key that is empty or too long.
    """
    where, key = f"node {node.name}", node.declared.item_key
    if key is None or not isinstance(value, list | tuple):
        source = node.declared.source
        raise DefinitionError(f"{where}: {source!r} gave a {type(value).__name__}, expected a list")
    items = cast("Sequence[Any]", value)
    if len(items) > FAN_OUT_MAX:
        raise LimitExceeded(f"{where}: {len(items)} items, at most {FAN_OUT_MAX}")
    names: list[Any] = []
    for index, item in enumerate(items):
        try:
            names.append(key(item))
        except Exception as error:
            raise DefinitionError(
                f"{where}: key= failed for item {index}: {type(error).__name__}: {error}"
            ) from error
    strange = next((name for name in names if not isinstance(name, str)), "")
    if not isinstance(strange, str):
        raise DefinitionError(f"{where}: key= gave {strange!r}; expected text")
    if "" in names:
        raise LimitExceeded(f"{where}: an item key is empty; keys name items")
    return item_keys(names, where)
