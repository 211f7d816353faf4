"""Arguments: what is asked, what identifies, and what comes back after a restart."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.core.verdicts import Effect
from evsrc.errors import CallerError, DivergenceError, LimitExceeded
from evsrc.tools import Call, SecretRef, tool


class Host(msgspec.Struct, frozen=True):
    name: str
    tags: tuple[str, ...] = ()


@tool(volatile=("trace",))
async def act(
    call: Call,
    host: Host,
    /,
    count: int = 1,
    *,
    weight: float = 0.0,
    token: SecretRef | None = None,
    trace: str = "",
    data: Any = None,
) -> None: ...


@tool(effect=Effect.STATE, target=lambda host, zone: f"{zone}/{host.lower()}")
async def block(call: Call, host: str, zone: str = "eu", reason: str = "") -> None: ...


def bind(*args: Any, **kwargs: Any) -> Any:
    return act.bound.bind(args, kwargs)


def test_arguments_are_bound_converted_and_complete() -> None:
    """Every parameter is there by name, of its declared type, defaults included."""
    bound = bind({"name": "dc", "tags": ["a"]}, 2, weight=1)
    assert bound.arguments["host"] == Host("dc", ("a",))
    assert type(bound.arguments["weight"]) is float
    assert bound.arguments["count"] == 2
    assert bound.arguments["data"] is None
    assert bound.secrets == {"token"}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((Host("a"), "2"), {}, "count"),
        ((Host("a"), True), {}, "count"),
        ((Host("a"),), {"weight": "1.0"}, "weight"),
        ((Host("a"),), {"token": "raw-secret"}, "token"),
        ((), {}, "host"),
        ((Host("a"),), {"colour": 1}, "colour"),
        ((1,), {}, "host"),
    ],
)
def test_wrong_arguments_name_tool_and_parameter(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    """A wrong, missing or unknown argument is refused, naming the tool and the parameter."""
    with pytest.raises(CallerError, match=f"'act'.*{message}") as caught:
        bind(*args, **kwargs)
    assert "raw-secret" not in str(caught.value)


def test_same_meaning_has_one_identity() -> None:
    """Position or keyword, tuple or list, int or float where a float is declared: one call."""
    one = bind(Host("dc", ("a",)), 2, weight=1)
    two = bind({"name": "dc", "tags": ["a"]}, count=2, weight=1.0)
    assert one.identity == two.identity
    assert one.asked == two.asked


def test_secret_and_volatile_arguments_are_in_no_identity() -> None:
    """Another token or trace is the same call; the reference is recorded, nothing else of it."""
    one = bind(Host("dc"), token=SecretRef("A"), trace="1")
    two = bind(Host("dc"), token=SecretRef("B"), trace="2")
    assert one.identity == two.identity == bind(Host("dc")).identity
    assert one.asked != two.asked
    assert msgspec.msgpack.decode(one.asked)["token"] == {"name": "A"}


def test_default_written_out_is_the_default() -> None:
    """An argument at its default leaves the identity as it is, in whichever way it is spelled."""
    assert bind(Host("dc"), 1, weight=0).identity == bind(Host("dc")).identity
    assert bind(Host("dc"), 2).identity != bind(Host("dc")).identity


def test_new_optional_parameter_is_no_divergence() -> None:
    """A later version with one more optional parameter has the same identity and reads the old."""

    @tool(name="act")
    async def old(call: Call, host: str) -> None: ...

    @tool(name="act")
    async def new(call: Call, host: str, zone: str = "eu") -> None: ...

    before, after = old.bound.bind(("dc",), {}), new.bound.bind(("dc",), {})
    assert before.identity == after.identity
    assert new.bound.unbind(before.asked) == {"host": "dc", "zone": "eu"}


def test_parameters_that_no_longer_fit_are_divergence() -> None:
    """A removed, added-without-default or retyped parameter stops the resend, and is named."""

    @tool(name="act")
    async def old(call: Call, host: str) -> None: ...

    @tool(name="act")
    async def removed(call: Call) -> None: ...

    @tool(name="act")
    async def required(call: Call, host: str, zone: str) -> None: ...

    @tool(name="act")
    async def retyped(call: Call, host: int) -> None: ...

    asked = old.bound.bind(("dc",), {}).asked
    for made, name in ((removed, "host"), (required, "zone"), (retyped, "host")):
        with pytest.raises(DivergenceError, match=name):
            made.bound.unbind(asked)


def test_callers_objects_are_not_kept() -> None:
    """Changing an argument after the call was bound changes nothing of the call."""
    data = {"hosts": ["a"]}
    bound = bind(Host("dc"), data=data)
    data["hosts"].append("b")
    assert bound.arguments["data"] == {"hosts": ["a"]}


def test_target_is_computed_from_the_arguments_it_names() -> None:
    """The target of a STATE tool follows its arguments, defaults included; others have none."""
    assert block.bound.bind(("DC01",), {"reason": "c2"}).target == "eu/dc01"
    assert bind(Host("dc")).target == ""


@pytest.mark.parametrize("value", ["", None, 1, "x" * 513])
def test_target_is_a_name(value: Any) -> None:
    """A target that is empty, no string or endless is refused before anything is recorded."""

    @tool(effect=Effect.STATE, target=lambda host: value)
    async def act(call: Call, host: str) -> None: ...

    with pytest.raises(CallerError, match="target"):
        act.bound.bind(("dc",), {})


def test_large_arguments_are_refused_before_anything_is_recorded() -> None:
    """Arguments that would not fit an intent are refused, with size and limit."""
    with pytest.raises(LimitExceeded, match="262144"):
        bind(Host("dc"), data="x" * 300_000)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    name=st.text(),
    count=st.integers(-(2**63), 2**63),
    weight=st.floats(allow_nan=False),
    data=VALUES,
)
def test_unbind_gives_back_what_was_bound(name: str, count: int, weight: float, data: Any) -> None:
    """What is sent again after a restart is what was sent first."""
    bound = bind(Host(name), count, weight=weight, data=data)
    assert act.bound.unbind(bound.asked) == bound.arguments
