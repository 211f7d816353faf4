"""Tools as users hold them, and the set of them that a runtime is given."""

from typing import Any

import pytest

from evsrc.core.verdicts import Effect
from evsrc.errors import CallerError, DefinitionError
from evsrc.tools import Call, Tool, ToolSet, tool


@tool(effect=Effect.MARKED)
async def open_ticket(call: Call, title: str) -> int:
    return len(title)


class Tracker:
    def __init__(self, instance: str) -> None:
        self.instance = instance

    @tool(effect=Effect.NAMED, name="tracker.create")
    async def create(self, call: Call, title: str) -> int:
        return len(title)


class LaterTracker(Tracker):
    @tool(effect=Effect.BLIND, name="tracker.create")
    async def create(self, call: Call, title: str) -> int:
        title_length: int = await super().create.fn(call, title)
        return -title_length


def test_direct_call_names_the_right_way() -> None:
    """Calling a tool outside a run is refused at once, naming `run.call`."""
    with pytest.raises(CallerError, match=r"run\.call"):
        open_ticket("a")  # type: ignore[unused-coroutine]


async def test_plain_function_is_there_for_unit_tests(anyio_backend: str) -> None:
    """An adapter's own tests can call what they decorated."""
    assert await open_ticket.fn(Call(key="k", marker="m"), "abc") == 3


def test_reading_a_method_twice_gives_equal_names() -> None:
    """Tools of one object are told by name and instance; two objects differ by instance."""
    one, two = Tracker("a"), Tracker("b")
    assert (one.create.name, one.create.instance) == ("tracker.create", "a")
    assert (two.create.name, two.create.instance) == ("tracker.create", "b")
    assert repr(one.create) == "<tool 'tracker.create' at 'a', NAMED>"


async def test_override_replaces_the_whole_declaration(anyio_backend: str) -> None:
    """A tool that overrides another inherits no declaration, and can reach its function."""
    later = LaterTracker("a").create
    assert later.capabilities.effect is Effect.BLIND
    assert await later.bound.send(Call(key="k", marker="m"), {"title": "abc"}) == -3


def test_set_finds_by_name_and_instance() -> None:
    """A recorded name and instance lead to exactly one tool; a missing one is named."""
    tools = ToolSet([open_ticket, Tracker("a").create, Tracker("b").create])
    assert len(tools) == 3
    assert tools.get("tracker.create", "b").instance == "b"
    assert tools.find("tracker.create") is None
    with pytest.raises(CallerError, match="tracker.create@a"):
        tools.get("tracker.create", "c")
    assert [bound.name for bound in tools] == ["open_ticket", "tracker.create", "tracker.create"]


def test_set_refuses_duplicates_and_strangers() -> None:
    """Two tools of one name and instance, and what is no tool, are refused with the remedy."""
    with pytest.raises(DefinitionError, match="given twice"):
        ToolSet([Tracker("a").create, LaterTracker("a").create])
    wrong: list[Any] = [Tracker.create, open_ticket.fn, None]
    for stranger in wrong:
        with pytest.raises(DefinitionError, match="@tool"):
            ToolSet([stranger])


def test_set_resolves_annotations_when_given_a_tool() -> None:
    """An annotation that cannot be resolved is reported at opening, not during a call."""

    async def odd(call: Call, host: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
        ...

    made: Tool[..., Any] = tool()(odd)
    with pytest.raises(DefinitionError, match="Nowhere"):
        ToolSet([made])
