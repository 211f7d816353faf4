"""What can be declared, what is refused, and what is missing."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from evsrc.core.verdicts import Absent, Effect, Found, Verdict
from evsrc.errors import DefinitionError
from evsrc.tools import Call, MethodTool, SecretRef, SweepEnd, Tool, tool

Fn = Callable[..., Any]


async def good(call: Call, host: str, *, reason: str = "") -> bool:
    return bool(host and reason)


async def takes_secret(call: Call, host: str, token: SecretRef) -> None: ...


def declare(fn: Fn, **options: Any) -> Any:
    return tool(**options)(fn)


def test_undeclared_is_the_worst() -> None:
    """A tool that declares nothing is blind, never probed, asked about, and has every doubt."""
    caps = declare(good).capabilities
    assert caps.effect is Effect.BLIND
    assert (caps.window_s, caps.lag_s, caps.late_s) == (None, None, None)
    assert not any([caps.history, caps.resend_safe, caps.fence, caps.atomic, caps.can_probe])
    assert caps.on_unknown == "ask"
    assert caps.timeout_s == 60


async def no_return(call: Call):  # type: ignore[no-untyped-def]
    ...


async def no_call(host: str) -> None: ...


async def call_second(host: str, call: Call) -> None: ...


async def nothing_at_all() -> None: ...


async def untyped(call: Call, host) -> None:  # type: ignore[no-untyped-def]
    ...


async def many(call: Call, *hosts: str) -> None: ...


async def named(call: Call, **hosts: str) -> None: ...


async def generator(call: Call) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (no_return, "-> Any"),
        (no_call, "call: Call"),
        (call_second, "call: Call"),
        (nothing_at_all, "call: Call"),
        (untyped, "'host' has no annotation"),
        (many, r"\*hosts"),
        (named, r"\*hosts"),
        (generator, "generator"),
        (int, "function or method"),
    ],
)
def test_functions_that_cannot_be_tools_are_refused(fn: Fn, message: str) -> None:
    """A function that could not be recorded or resent is refused at decoration, with the remedy."""
    with pytest.raises(DefinitionError, match=message):
        declare(fn)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lag_s": -1}, "lag_s"),
        ({"late_s": float("nan")}, "late_s"),
        ({"window_s": float("inf")}, "window_s"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"cost": -0.5}, "cost"),
        ({"attempts": 0}, "attempts"),
        ({"attempts": 10_000}, "attempts"),
        ({"at_once": 0}, "at_once"),
        ({"on_unknown": "retry"}, "on_unknown"),
        ({"effect": "marked"}, "effect"),
        ({"lag_s": "30"}, "lag_s"),
        ({"lag_s": True}, "lag_s"),
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "bell\n"}, "name"),
        ({"secret": "host"}, "tuple"),
        ({"secret": ("nobody",)}, "'nobody'"),
        ({"volatile": ("nobody",)}, "'nobody'"),
        ({"effect": Effect.STATE}, "target"),
        ({"effect": Effect.MARKED, "target": lambda host: host}, "target"),
        ({"effect": Effect.STATE, "target": lambda server: server}, "'server'"),
        ({"effect": Effect.STATE, "target": lambda host: host, "volatile": ("host",)}, "target"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    """Wrong numbers, unknown parameters and targets that do not fit are refused at decoration."""
    with pytest.raises(DefinitionError, match=message):
        declare(good, **options)


def test_secret_parameters_hold_references_only() -> None:
    """A parameter declared secret whose type is not SecretRef is refused: it would be logged."""
    with pytest.raises(DefinitionError, match="SecretRef"):
        declare(good, secret=("host",)).bound.check()


def test_any_reference_is_secret() -> None:
    """A SecretRef parameter is secret without being declared, and cannot select the target."""
    assert declare(takes_secret).bound.definition.types.secrets == {"token"}
    chosen = declare(takes_secret, effect=Effect.STATE, target=lambda token: "x")
    with pytest.raises(DefinitionError, match="target"):
        chosen.bound.check()


async def wrong_first(call: "int") -> None: ...


async def unresolved(call: Call, host: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    ...


async def ambiguous(call: Call, host: dict[str, str] | list[int] | tuple[int, ...]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "message"),
    [(wrong_first, "must be a Call"), (unresolved, "Nowhere"), (ambiguous, "host")],
)
def test_annotations_are_checked_once_they_can_be_resolved(fn: Fn, message: str) -> None:
    """What only resolved annotations show is reported by `check`, not when a call is in flight."""
    made = declare(fn)
    with pytest.raises(DefinitionError, match=message):
        made.bound.check()


def test_function_or_method_is_told_by_where_it_stands() -> None:
    """Functions become tools, functions in class bodies become method tools, also local ones."""

    class Adapter:
        @tool()
        async def act(self, call: Call) -> None: ...

    async def local(call: Call) -> None: ...

    assert isinstance(Adapter.act, MethodTool)
    assert isinstance(Adapter().act, Tool)
    assert isinstance(declare(local), Tool)


def test_blocking_is_seen() -> None:
    """A plain function runs in a thread, an async one does not."""

    def plain(call: Call) -> None: ...

    assert declare(plain).bound.blocking
    assert not declare(good).bound.blocking


def test_handlers_are_registered_once_and_fit() -> None:
    """A second probe, and one whose parameters are not the tool's, are refused at once."""
    made = declare(good, effect=Effect.MARKED)

    async def other(call: Call, server: str) -> Verdict[bool]:
        return Absent()

    async def fits(call: Call, host: str, *, reason: str = "") -> Verdict[bool]:
        return Absent()

    with pytest.raises(DefinitionError, match="reason"):
        made.probe(other)
    assert not made.capabilities.can_probe
    assert made.probe(fits) is fits
    assert made.capabilities.can_probe
    with pytest.raises(DefinitionError, match="already"):
        made.probe(fits)


def test_sweep_and_undo_have_their_own_parameters() -> None:
    """A sweep takes a time, an undo the call and the result; anything else is refused."""
    made = declare(good)

    async def sweep(since: object) -> AsyncIterator[Found | SweepEnd]:
        yield SweepEnd(complete=True)

    async def no_parameters() -> None: ...

    for role in ("sweep", "undo"):
        with pytest.raises(DefinitionError, match=role):
            getattr(made, role)(no_parameters)
    made.sweep(sweep)
    assert made.capabilities.can_sweep


def test_handlers_of_methods_are_declared_in_the_class() -> None:
    """A probe cannot be given to one object's tool: it would hold for all of them."""

    class Adapter:
        @tool()
        async def act(self, call: Call) -> None: ...

    async def probe(call: Call) -> Verdict[None]:
        return Absent()

    with pytest.raises(DefinitionError, match="class body"):
        Adapter().act.probe(probe)


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({}, ["effect"]),
        ({"effect": Effect.READ}, []),
        ({"effect": Effect.MARKED}, ["probe", "lag_s", "late_s", "history"]),
        ({"effect": Effect.MARKED, "lag_s": 1, "history": True}, ["probe", "late_s"]),
        ({"effect": Effect.NAMED}, ["probe"]),
        (
            {"effect": Effect.KEYED, "window_s": 60, "lag_s": 1, "history": True},
            ["probe", "late_s"],
        ),
        (
            {"effect": Effect.STATE, "target": lambda host: host, "fence": True},
            ["probe", "resend_safe"],
        ),
    ],
)
def test_missing_names_what_would_spare_a_question(
    options: dict[str, Any], missing: list[str]
) -> None:
    """The declarations that an unknown outcome would need are named, and no others."""
    assert declare(good, **options).missing() == missing
