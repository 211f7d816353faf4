"""Node keys of a built flow: what changes them, what does not, and how two versions of a file are met."""

from pathlib import Path
from typing import Any

import pytest

import evsrc
from evsrc.core.events import NodeOutput
from evsrc.errors import DefinitionError, KeyReuseError, LimitExceeded, UnusableValue
from evsrc.runtime.node_keys import (
    FAN_OUT_MAX,
    KeyContext,
    NodeResult,
    ask_for,
    file_digests,
    joined,
    names_of_items,
    not_yet,
    result_of,
)

HERE = KeyContext("run-1", "input-digest")


def flow(feed: str = "") -> evsrc.Flow[int]:
    """A list, an item node that may read a file, an act, and one that takes nothing of the run."""
    declared = evsrc.Flow("keys", input=int)

    @declared.node(version="1")
    async def source(start: int) -> list[int]:
        return [start]

    @declared.each(source, key=str, reads=[feed] if feed else [], version="1")
    async def item(one: int) -> int:
        return one

    @declared.node(version="1", params={"limit": 3})
    async def act(run: evsrc.Run, item: list[int], limit: int) -> int:
        return limit

    return declared


def key(node: str, context: KeyContext = HERE, **options: Any) -> str:
    """The key of a node of that flow, above which all is known by letters."""
    built = flow().build()
    upstream = {need: given(need) for need in built.graph.needs[node]}
    upstream.update(options.pop("upstream", {}))
    return ask_for(built.nodes[node], context, upstream, {}, **options).key


def given(name: str, **options: Any) -> NodeResult:
    """A result with a key and a digest."""
    return NodeResult(lambda: [1], f"key of {name}", f"digest of {name}", **options)


def test_only_a_node_that_takes_the_input_depends_on_it() -> None:
    """Another input is another key for it, and through its key for those below."""
    other = KeyContext("run-1", "another-digest")
    assert key("source") != key("source", other)
    assert key("item", item="1", item_value=1) == key("item", other, item="1", item_value=1)


def test_only_a_node_that_takes_the_run_depends_on_it() -> None:
    """Hence neither it nor what descends from it is shared with another run."""
    other = KeyContext("run-2", "input-digest")
    assert key("act") != key("act", other)
    assert key("source") == key("source", other)


def test_an_item_depends_on_its_value_not_on_the_list() -> None:
    """A list that grew leaves the other items alone; another value under the same name does not."""
    grown = {"source": NodeResult(lambda: [1, 2], "another key", "another digest")}
    one = key("item", item="1", item_value=1)
    assert one == key("item", item="1", item_value=1, upstream=grown)
    assert one != key("item", item="1", item_value=2)


def test_a_missing_file_is_named() -> None:
    """Before the node runs."""
    node = flow("/nowhere/feed.csv").build().nodes["item"]
    with pytest.raises(DefinitionError, match=r"/nowhere/feed\.csv"):
        file_digests(node)


def test_the_join_follows_its_items_in_order() -> None:
    """Key and digest of a fan-out change with an item, with its name, and with their order."""
    a, b = given("a"), given("b")
    keys = [
        joined(names, results).key
        for names, results in [
            (["1", "2"], [a, b]),
            (["2", "1"], [a, b]),
            (["1", "2"], [b, a]),
            (["1"], [a]),
            ([], []),
        ]
    ]
    assert len(set(keys)) == len(keys)
    assert joined(["1", "2"], [a, b]).value == [[1], [1]]


def test_a_result_is_decoded_anew_for_each_that_takes_it() -> None:
    """Nobody sees what another one did to it."""
    node = flow().build().nodes["source"]
    result = result_of(NodeOutput("source", "k", b"\x91\x01", "d"), node, {})
    result.value.append(2)
    assert result.value == [1]


def test_an_output_that_no_longer_fits_its_type_is_refused() -> None:
    """The annotation changed and the declared version did not: found before anything below runs."""
    node = flow().build().nodes["source"]
    with pytest.raises(UnusableValue):
        result_of(NodeOutput("source", "k", b"\xa1x", "d"), node, {})


# ---- two versions of one file --------------------------------------------------------------------


def mixed(upstream: dict[str, NodeResult], files: dict[str, str] | None = None) -> tuple[str, ...]:
    """The files of which a node meets two versions first."""
    return ask_for(flow().build().nodes["act"], HERE, upstream, files or {}).mixed


def test_two_versions_are_met_where_they_come_together() -> None:
    """In the ancestry of two needs, in the items of one fan-out, or in a need and the node itself."""
    old, new = (given(d, files=frozenset({("feed", d)})) for d in ("old", "new"))
    assert mixed({"a": old, "b": old}) == ()
    assert mixed({"a": old, "b": new}) == ("feed",)
    assert mixed({"item": joined(["1", "2"], [old, new])}) == ("feed",)
    assert mixed({"a": old}, {"feed": "new"}) == ("feed",)
    assert mixed({}, {"feed": "new"}) == ()


def test_further_down_they_were_asked_about_already() -> None:
    """The node that met them first has asked; below it nobody asks again, unless another file is mixed."""
    old, new = (given(d, files=frozenset({("feed", d)})) for d in ("old", "new"))
    below = not_yet("k", {}, {"a": old, "b": new})
    assert below.asked == {"feed"}
    assert mixed({"x": below}) == ()
    assert mixed({"x": below, "b": new}) == ()
    other = [given(d, files=frozenset({("other", d)})) for d in "pq"]
    assert mixed({"x": below, "y": joined(["1", "2"], other)}) == ("other",)


# ---- items ---------------------------------------------------------------------------------------


def test_the_names_of_items_are_checked() -> None:
    """A list with a key each: text, not empty, not too long, not twice, not too many."""
    node = flow().build().nodes["item"]
    assert names_of_items(node, [3, 1, 2]) == ["3", "1", "2"]
    assert names_of_items(node, []) == []
    for value, error in (
        ([1, 1], KeyReuseError),
        (["x" * 201], LimitExceeded),
        ([""], LimitExceeded),
        (range(FAN_OUT_MAX + 1), DefinitionError),
        (list(range(FAN_OUT_MAX + 1)), LimitExceeded),
        (None, DefinitionError),
    ):
        with pytest.raises(error, match="item"):
            names_of_items(node, value)


def test_the_digests_of_declared_files(tmp_path: Path) -> None:
    """By the path as declared."""
    feed = tmp_path / "feed"
    feed.write_text("x")
    node = flow(str(feed)).build().nodes["item"]
    (before,) = file_digests(node).values()
    feed.write_text("y")
    assert file_digests(node) != {str(feed): before}
