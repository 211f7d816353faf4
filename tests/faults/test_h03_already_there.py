"""H03: the second attempt meets "already exists": done where it is ours or equal, a conflict otherwise."""

from typing import Any

import pytest

import evsrc
from evsrc.core.events import IntentReconciled, QuestionAsked
from evsrc.errors import AlreadyThere
from tests.runtime.desk import of_kind

pytestmark = pytest.mark.anyio


class Firewall:
    """Rules by address: (range, who put it there). Adding twice and deleting nothing are refused."""

    def __init__(self) -> None:
        self.rules: dict[str, tuple[str, str]] = {}
        self.lose_answers = 0
        self.adds = 0

    def _lost(self) -> None:
        if self.lose_answers:
            self.lose_answers -= 1
            raise ConnectionResetError("the answer is lost")

    @evsrc.tool(effect=evsrc.Effect.STATE, target=lambda ip: f"rule:{ip}", on_unknown="resend")
    async def add(self, call: evsrc.Call, ip: str, ports: str) -> str:
        """Add a rule; refused if there is one."""
        if ip in self.rules:
            raise AlreadyThere(ip)
        self.rules[ip] = (ports, call.marker)
        self.adds += 1
        self._lost()
        return ip

    @add.probe
    async def _(self, call: evsrc.Call, ip: str, ports: str) -> evsrc.Verdict[str]:
        if ip not in self.rules:
            return evsrc.Absent(complete=True)
        found, who = self.rules[ip]
        if found != ports:
            return evsrc.Conflict(f"{ip}: wanted ports {ports}, found {found}")
        return evsrc.Happened(ip, whose="ours" if who == call.marker else "theirs")

    @evsrc.tool(effect=evsrc.Effect.STATE, target=lambda ip: f"rule:{ip}")
    async def delete(self, call: evsrc.Call, ip: str) -> str:
        """Delete a rule; refused if there is none."""
        if self.rules.pop(ip, None) is None:
            raise AlreadyThere(ip, "no such rule")
        self._lost()
        return ip

    @delete.probe
    async def _(self, call: evsrc.Call, ip: str) -> evsrc.Verdict[str]:
        if ip in self.rules:
            return evsrc.Absent(complete=True)
        return evsrc.Happened(ip, whose="unknown", gone=True)


async def run(firewall: Firewall, tool: Any, *args: str) -> tuple[Any, evsrc.MemoryLog]:
    """One call of a tool."""

    @evsrc.workflow(version="1")
    async def flow(run: evsrc.Run, ip: str) -> str:
        value: str = await run.call(tool, ip, *args)
        return value

    log = evsrc.MemoryLog()
    async with evsrc.open_runtime(log, tools=[firewall.add, firewall.delete]) as runtime:
        return await runtime.run(flow, "198.51.100.7", run_id="r"), log


async def test_h03_a_our_own_first_try_is_done() -> None:
    """Added, the answer lost: the rule is found as ours and the call is done, with one add."""
    firewall = Firewall()
    firewall.lose_answers = 1
    outcome, log = await run(firewall, firewall.add, "443")
    assert outcome.value == "198.51.100.7"
    assert firewall.adds == 1
    assert [r.whose for r in of_kind(log, IntentReconciled)] == ["ours"]


async def test_h03_a_somebody_s_equal_rule_is_done_and_not_ours() -> None:
    """The same rule was there before: done, and the record says that it is somebody else's."""
    firewall = Firewall()
    firewall.rules["198.51.100.7"] = ("443", "the network team")
    outcome, log = await run(firewall, firewall.add, "443")
    assert outcome.value == "198.51.100.7"
    assert firewall.adds == 0
    assert [r.whose for r in of_kind(log, IntentReconciled)] == ["theirs"]


async def test_h03_b_other_content_is_a_conflict() -> None:
    """A wider rule of that name is a question that shows both values; nothing is overwritten."""
    firewall = Firewall()
    firewall.rules["198.51.100.7"] = ("1-65535", "the network team")
    outcome, log = await run(firewall, firewall.add, "443")
    assert isinstance(outcome, evsrc.Suspended)
    (question,) = of_kind(log, QuestionAsked)
    assert question.kind == "conflict"
    assert "443" in question.text
    assert "1-65535" in question.text
    assert firewall.rules["198.51.100.7"] == ("1-65535", "the network team")


@pytest.mark.parametrize("lost", [0, 1])
async def test_h03_c_deleting_what_is_gone_is_done(lost: int) -> None:
    """A delete that meets nothing, at once or after its answer was lost, is done."""
    firewall = Firewall()
    firewall.lose_answers = lost
    if lost:
        firewall.rules["198.51.100.7"] = ("443", "x")
    outcome, log = await run(firewall, firewall.delete)
    assert outcome.value == "198.51.100.7"
    assert [(r.verdict, r.gone) for r in of_kind(log, IntentReconciled)] == [("happened", True)]
