"""may_resend as a whole: doubt only ever forbids, and less declared never allows more."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evsrc.core.events import OutcomeUnknown
from evsrc.core.settle import Look, horizon_s, may_resend, window_open
from evsrc.core.verdicts import (
    Absent,
    Capabilities,
    Conflict,
    Effect,
    Happened,
    InProgress,
    Undetermined,
)
from evsrc.testing.specification import CALL, SECOND_NS, START_NS, caps, intent, keyed, marked
from evsrc.testing.specification import given as run_with

CALL_STATE = run_with(intent(1), OutcomeUnknown(CALL, 1, "timeout")).call

SECONDS = st.sampled_from([None, 0.0, 1.0, 5.0, 60.0])
TOOLS = st.builds(
    Capabilities,
    effect=st.sampled_from(Effect),
    window_s=SECONDS,
    lag_s=SECONDS,
    late_s=SECONDS,
    timeout_s=st.sampled_from([1.0, 10.0]),
    history=st.booleans(),
    fence=st.booleans(),
    resend_safe=st.booleans(),
    can_probe=st.booleans(),
    on_unknown=st.sampled_from(["ask", "resend", "skip"]),
)
VERDICTS = st.sampled_from(
    [
        Absent(complete=True),
        Absent(),
        Undetermined("x"),
        InProgress(),
        Conflict("x"),
        Happened(b"v"),
    ]
)
LOOKS = st.none() | st.builds(Look, VERDICTS, st.sampled_from([0.0, 1.0, 5.9, 6.0, 65.0, 1e6]))
NOW = st.integers(-100, 200).map(lambda s: START_NS + s * SECOND_NS)

WORSE = {
    "window_s": None,
    "lag_s": None,
    "late_s": None,
    "history": False,
    "fence": False,
    "resend_safe": False,
}


def permits(tool: Capabilities, look: Look | None, now_ns: int) -> bool:
    """May a further attempt be sent?"""
    return may_resend(CALL_STATE, tool, look, now_ns).permission in ("resend", "proven-absent")


@pytest.mark.parametrize("name", WORSE)
@given(tool=TOOLS, look=LOOKS, now_ns=NOW)
def test_less_declared_never_allows_more(
    name: str, tool: Capabilities, look: Look | None, now_ns: int
) -> None:
    """Undeclared takes the worst value, in every combination."""
    worse = msgspec.structs.replace(tool, **{name: WORSE[name]})
    assert permits(tool, look, now_ns) or not permits(worse, look, now_ns)


@given(tool=TOOLS, look=LOOKS, now_ns=NOW, more=st.sampled_from(["lag_s", "late_s", "timeout_s"]))
def test_a_slower_tool_never_allows_more(
    tool: Capabilities, look: Look | None, now_ns: int, more: str
) -> None:
    """A longer lag, lateness or time-out only postpones."""
    now = getattr(tool, more)
    assume(now is not None)
    slower = msgspec.structs.replace(tool, **{more: now + 10.0})
    assert permits(tool, look, now_ns) or not permits(slower, look, now_ns)


@given(tool=TOOLS, look=LOOKS, now_ns=NOW)
def test_only_a_complete_absence_beyond_the_horizon_closes_an_attempt(
    tool: Capabilities, look: Look | None, now_ns: int
) -> None:
    """Whatever the effect class: complete, late enough, and of a tool that keeps its history."""
    if may_resend(CALL_STATE, tool, look, now_ns).permission == "proven-absent":
        horizon = horizon_s(tool)
        assert look is not None
        assert look.verdict == Absent(complete=True)
        assert horizon is not None
        assert look.waited_s >= horizon
        assert tool.history


@given(tool=TOOLS, look=LOOKS, now_ns=NOW)
def test_a_resend_without_proof_is_named_fenced_or_keyed(
    tool: Capabilities, look: Look | None, now_ns: int
) -> None:
    """Nothing else allows a second request while the first is unknown."""
    if may_resend(CALL_STATE, tool, look, now_ns).permission == "resend":
        fenced = tool.effect is Effect.STATE and tool.fence and tool.resend_safe
        window = window_open(CALL_STATE, tool, now_ns)
        assert tool.effect is Effect.NAMED or fenced or window


@given(tool=TOOLS, look=LOOKS, now_ns=NOW)
def test_policies_and_conflicts_change_no_permission(
    tool: Capabilities, look: Look | None, now_ns: int
) -> None:
    """What may be concluded does not depend on what its author would do in doubt."""
    asks = msgspec.structs.replace(tool, on_unknown="ask")
    assert may_resend(CALL_STATE, tool, look, now_ns) == may_resend(CALL_STATE, asks, look, now_ns)


def test_a_person_says_resend_by_name() -> None:
    """The one permission that no declaration gives."""
    call = msgspec.structs.replace(CALL_STATE, resend_by="ada")
    allowed = may_resend(call, caps(Effect.BLIND), None, START_NS)
    assert allowed.permission == "resend"
    assert "ada" in allowed.rule


def test_the_horizon_needs_both_declarations() -> None:
    """Lag and lateness add up; one alone is no horizon."""
    assert horizon_s(marked()) == 7.0
    assert horizon_s(marked(lag_s=None)) is None
    assert horizon_s(marked(late_s=None)) is None


@pytest.mark.parametrize(
    ("after_s", "open_"), [(-0.001, False), (0.0, True), (84.999, True), (85.0, False)]
)
def test_the_window_at_its_edges(after_s: float, open_: bool) -> None:
    """From the first intent on, until the reserve of time-out and lateness begins."""
    now_ns = START_NS + round(after_s * SECOND_NS)
    assert window_open(CALL_STATE, keyed(), now_ns) is open_


def test_a_window_belongs_to_keyed_tools_with_an_attempt() -> None:
    """No other effect class has one, and nothing is inside a window that has not begun."""
    other = msgspec.structs.replace(keyed(), effect=Effect.MARKED)
    assert not window_open(CALL_STATE, other, START_NS)
    never_sent = msgspec.structs.replace(CALL_STATE, attempts=[])
    assert not window_open(never_sent, keyed(), START_NS)
