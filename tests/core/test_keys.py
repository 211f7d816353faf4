"""Keys and ids: no two lists of parts share one, and the same parts always give the same one."""

import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evsrc.core import keys
from evsrc.errors import LimitExceeded

# Parts that once ran together in one of the reported faults, and what else could stand in a name.
NASTY = st.sampled_from(
    ["", "a", "b", "ab", "a|b", "b|c", "|", "\0", "\n", "/", ":", "a/b", "a:b", "0", "1", "\ud800"]
)
PART = NASTY | st.text(max_size=4)
SCOPE = st.lists(PART, max_size=3).map(tuple)
CALL = st.fixed_dictionaries(
    {
        "namespace": PART,
        "run_id": PART,
        "scope": SCOPE,
        "tool": PART,
        "instance": PART,
        "label": PART,
        "ordinal": st.integers(0, 3),
        "arguments": st.binary(max_size=3),
    }
)
FIRST: dict[str, Any] = {
    "namespace": "prod",
    "run_id": "alert-1",
    "scope": ("triage", "item:dc01"),
    "tool": "open_ticket",
    "instance": "emea",
    "label": "",
    "ordinal": 0,
    "arguments": b"\x80",
}


def identity(call: dict[str, Any]) -> dict[str, Any]:
    return {**call, "ordinal": None if call["label"] else call["ordinal"]}


def test_idempotency_key_is_pinned() -> None:
    """The derivation never changes under one format tag: keys already given to tools stand."""
    assert keys.idempotency_key(**FIRST) == (
        "5c142293d92d15093622c67670a3e276142d749ecea3571e096692e32dac9b5e"
    )
    assert keys.own_key("prod", "open_ticket", "emea", "K1") == (
        "d5c8466aeccc9f7f8024ef178dbe477e29dfe3e90bd83338fa83a4abfba7e4b8"
    )


def test_ids_are_pinned() -> None:
    """Ids stand in the log: a later version derives the same ones."""
    assert keys.call_id("r", ("n",), "t", "i", "", 2) == "cc6vqgfsfhpvwhtjeifbhqw5fj"
    assert keys.step_id("r", ("n",), "t", "", 2) == "spudg2yhlcopiyplkeq4jvzqx2"
    assert keys.question_id("c1", "unknown", "1") == "qi3v4i3pptqxol7dczr5n2qgnf"
    assert keys.run_id_for("triage", "d") == "r7fqhuarewcbfwgcvahzz5izxc"
    assert keys.marker("prod", "k") == "evsrc-c3upqyvdnjuotedy4kq6inx3wj"


@given(CALL, CALL)
def test_h04_no_two_calls_share_a_key(a: dict[str, Any], b: dict[str, Any]) -> None:
    """H04: whatever the parts contain, two calls have one key only if all their parts are equal."""
    same = keys.idempotency_key(**a) == keys.idempotency_key(**b)
    assert same == (identity(a) == identity(b))


@given(CALL, st.sampled_from(sorted(FIRST)), st.data())
def test_h04_every_part_counts(call: dict[str, Any], name: str, data: st.DataObject) -> None:
    """H04: changing any one part changes the key."""
    other = {**call, name: data.draw(CALL)[name]}
    assume(identity(other) != identity(call))
    assert keys.idempotency_key(**other) != keys.idempotency_key(**call)


@given(CALL, st.integers(0, 3))
def test_h04_neighbours_do_not_run_together(call: dict[str, Any], cut: int) -> None:
    """H04: moving characters over the border between two parts gives another key."""
    text = call["tool"] + call["instance"]
    moved = {**call, "tool": text[:cut], "instance": text[cut:]}
    assume(moved["tool"] != call["tool"])
    assert keys.idempotency_key(**moved) != keys.idempotency_key(**call)


def test_h04_reported_pairs_differ() -> None:
    """H04: the pairs of the reports, as scopes and as tool with instance, all have their own key."""
    pairs = [
        ("a", "b|c"),
        ("a|b", "c"),
        ("ab", ""),
        ("a", "b"),
        ("", "ab"),
        ("a\0b", ""),
        ("a", "\0b"),
    ]
    found = {keys.idempotency_key(**{**FIRST, "scope": pair}) for pair in pairs}
    found |= {keys.idempotency_key(**{**FIRST, "tool": t, "instance": i}) for t, i in pairs}
    assert len(found) == 2 * len(pairs)


def test_label_replaces_the_ordinal() -> None:
    """A labelled call is the same whichever its number; a label is not a number."""
    labelled = {**FIRST, "label": "1"}
    assert keys.idempotency_key(**labelled) == keys.idempotency_key(**{**labelled, "ordinal": 7})
    assert keys.idempotency_key(**labelled) != keys.idempotency_key(**{**FIRST, "ordinal": 1})
    assert keys.call_id("r", (), "t", "", "x", 0) == keys.call_id("r", (), "t", "", "x", 5)
    assert keys.step_id("r", (), "t", "x", 0) == keys.step_id("r", (), "t", "x", 5)


@given(st.tuples(PART, SCOPE, PART, PART, PART), st.tuples(PART, SCOPE, PART, PART, PART))
def test_no_two_identities_share_an_id(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    """Call and step ids differ as soon as one part does."""
    assert (keys.call_id(*a, 0) == keys.call_id(*b, 0)) == (a == b)
    a_step, b_step = (*a[:3], a[4]), (*b[:3], b[4])
    assert (keys.step_id(*a_step, 0) == keys.step_id(*b_step, 0)) == (a_step == b_step)


def test_kinds_of_keys_never_meet() -> None:
    """Equal parts give another digest in every derivation."""
    chars = {
        keys.call_id("a", (), "b", "", "", 0)[1:],
        keys.step_id("a", (), "b", "", 0)[1:],
        keys.question_id("a", "b", "")[1:],
        keys.run_id_for("a", "b")[1:],
        keys.marker("a", "b")[12:],
    }
    assert len(chars) == 5
    assert keys.own_key("a", "b", "", "") != keys.idempotency_key(
        namespace="a",
        run_id="b",
        scope=(),
        tool="",
        instance="",
        label="",
        ordinal=0,
        arguments=b"",
    )


@given(PART, PART)
def test_ids_are_plain_text_of_one_length(a: str, b: str) -> None:
    """An id is a letter and 25 characters of [a-z2-7], whatever the parts hold."""
    for letter, made in (
        ("c", keys.call_id(a, (b,), a, b, a, 0)),
        ("s", keys.step_id(a, (b,), a, b, 0)),
        ("q", keys.question_id(a, b, a)),
        ("r", keys.run_id_for(a, b)),
    ):
        assert made[0] == letter
        assert len(made) == 26
        assert set(made) <= set(string.ascii_lowercase + "234567")


@pytest.mark.parametrize("parts", [((None,), ("",)), ((1,), ("1",)), ((b"a",), ("a",)),
                                   ((("a",),), ("a",)), (((),), ("",)), (({},), ((),)),
                                   ((("a", "b"),), (("ab",),)), (({"a": "b"},), (("a", "b"),))])  # fmt: skip
def test_parts_of_unlike_kinds_differ(parts: tuple[Any, Any]) -> None:
    """A missing part is not an empty one, a number not its digits, a list not its only member."""
    one, other = (keys._framed(part) for part in parts)  # pyright: ignore[reportPrivateUsage]
    assert one != other


# ---- markers --------------------------------------------------------------------------------------


@given(PART, PART, PART)
def test_marker_is_ours_only_in_its_namespace(namespace: str, other: str, key: str) -> None:
    """A marker has one length and alphabet, and belongs to its namespace alone."""
    made = keys.marker(namespace, key)
    assert made.startswith("evsrc-" + keys.marker_namespace(namespace))
    assert len(made) == 32
    assert set(made[6:]) <= set(string.ascii_lowercase + string.digits)
    assert keys.is_ours(made, namespace)
    assert keys.is_ours(made, other) == (namespace == other)


@pytest.mark.parametrize(
    "change",
    [
        str.upper,
        lambda m: m + "a",
        lambda m: m[:-1],
        lambda m: " " + m,
        lambda m: m[:-1] + "1",
        lambda m: m[:-1] + "é",
        lambda m: "",
    ],
)
def test_text_like_a_marker_is_not_ours(change: Any) -> None:
    """A marker is compared exactly: no other case, no text around it, no foreign character."""
    assert not keys.is_ours(change(keys.marker("prod", "k")), "prod")


# ---- nodes ----------------------------------------------------------------------------------------

PARTS: dict[str, Any] = {
    "node": "triage",
    "code": "c1",
    "params": "p1",
    "input": "i1",
    "run_id": "r1",
    "item": "x1",
    "upstream": {"enrich": "k1", "indicators": "k2"},
    "files": {"intel/feed.json": "f1"},
}
CHANGES: list[tuple[str, Any, str]] = [
    ("code", "c2", "code"),
    ("params", "p2", "params"),
    ("input", "i2", "input"),
    ("input", "", "input"),
    ("run_id", "r2", "run"),
    ("run_id", "", "run"),
    ("item", "x2", "item"),
    ("upstream", {"enrich": "k9", "indicators": "k2"}, "upstream:enrich"),
    ("upstream", {"indicators": "k2"}, "upstream:enrich"),
    ("files", {"intel/feed.json": "f2"}, "file:intel/feed.json"),
    ("files", {}, "file:intel/feed.json"),
]


@pytest.mark.parametrize(("name", "value", "named"), CHANGES)
def test_every_part_of_a_node_key_counts_and_is_named(name: str, value: Any, named: str) -> None:
    """A changed part changes the key, and `why` names exactly it."""
    before, after = keys.NodeKeyParts(**PARTS), keys.NodeKeyParts(**{**PARTS, name: value})
    assert keys.node_key(before) != keys.node_key(after)
    assert keys.why(keys.parts_digests(before), keys.parts_digests(after)) == [named]
    assert keys.why(keys.parts_digests(before), keys.parts_digests(before)) == []


def test_node_key_is_pinned_and_forgets_order() -> None:
    """Checkpoints outlive a version of evsrc; the order in which needs are named does not count."""
    parts = keys.NodeKeyParts(**PARTS)
    turned = keys.NodeKeyParts(**{**PARTS, "upstream": dict(reversed(PARTS["upstream"].items()))})
    assert keys.node_key(parts) == keys.node_key(turned)
    assert keys.parts_digests(parts) == keys.parts_digests(turned)
    assert keys.node_key(parts) == (
        "087ee77eb48dc1026495709699dee4d274f7383320aebfa099807b497f052710"
    )


def test_node_and_its_parts_do_not_run_together() -> None:
    """Another node with equal parts, or a value moved to another part, has another key."""
    made = {
        keys.node_key(keys.NodeKeyParts("a", "b", "c")),
        keys.node_key(keys.NodeKeyParts("b", "a", "c")),
        keys.node_key(keys.NodeKeyParts("a", "b", "c", "d")),
        keys.node_key(keys.NodeKeyParts("a", "b", "c", "", "d")),
        keys.node_key(keys.NodeKeyParts("a", "b", "c", "", "", "d")),
        keys.node_key(keys.NodeKeyParts("a", "b", "c", upstream={"x": "y"})),
        keys.node_key(keys.NodeKeyParts("a", "b", "c", files={"x": "y"})),
        keys.node_key(keys.NodeKeyParts("a", "b", "c", files={"xy": ""})),
    }
    assert len(made) == 8


@given(st.dictionaries(PART, PART, max_size=3), st.dictionaries(PART, PART, max_size=3))
def test_no_two_maps_of_needs_share_a_key(a: dict[str, str], b: dict[str, str]) -> None:
    """Names and keys of needs do not run together."""
    one, other = (keys.node_key(keys.NodeKeyParts("n", "c", "p", upstream=m)) for m in (a, b))
    assert (one == other) == (a == b)


def test_run_id_is_not_in_the_recorded_parts() -> None:
    """The parts hold digests: the run's id, which is an alert's text, stays out of them."""
    assert "r1" not in keys.parts_digests(keys.NodeKeyParts(**PARTS)).values()


# ---- run ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", ["a", "é" * 100, "a" * 200, "../../etc/passwd", "\0", " "])
def test_run_id_may_be_any_short_text(run_id: str) -> None:
    """Ids come from alerts: any text passes, since it is never a file name."""
    keys.check_run_id(run_id)


@pytest.mark.parametrize("run_id", ["", "a" * 201, "é" * 101, "\ud800"])
def test_run_id_that_names_no_stream_is_refused(run_id: str) -> None:
    """An empty, long or undecodable id is refused, and the message is printable."""
    with pytest.raises(LimitExceeded, match="run id") as caught:
        keys.check_run_id(run_id)
    assert str(caught.value).isascii()
