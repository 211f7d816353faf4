"""The demo's five tools: adapters for the simulated world, over loopback HTTP.

Rule: public names of evsrc only. What each tool can tell is declared, not assumed; the world itself
never refuses a repetition.
Does not know: runs, crashes, or what the flow does with the results.

| tool | effect | how an interrupted call is settled |
|---|---|---|
| enrich | READ | it is asked again |
| open_ticket | MARKED | search by marker, no lag |
| block_ip, disable_account | STATE | read the state, and whose doing it is |
| page | MARKED, lag 1 s | search by marker, once the lag has passed |
| blind_page | BLIND | nothing tells: a human is asked |
"""

from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

import evsrc
from evsrc.demo.nodes import Effected, Enrichment
from evsrc.errors import NotSent, Rejected

LATE_S = 0.2
"""Longest a request of ours can still be under way in the world: a thread over loopback."""

PAGE_LAG_S = 1.0
"""The world's pager shows a page this long after it was committed."""

TIMEOUT_S = 20.0


class WorldTools:
    """All tools of one world. Use as an async context manager, on the loop that calls the tools."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        # No retry below us: a client that sends twice on its own defeats every intent.
        self._client = httpx.AsyncClient(
            base_url=self._url, timeout=TIMEOUT_S, transport=httpx.AsyncHTTPTransport(retries=0)
        )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

    # ---- reading --------------------------------------------------------------------------------

    @evsrc.tool(effect=evsrc.Effect.READ, timeout_s=TIMEOUT_S, cost=0.01)
    async def enrich(self, call: evsrc.Call, *, subject: str) -> Enrichment:
        """What the world knows about an account or host."""
        answer = await self.get("/enrich", subject=subject)
        return msgspec.convert(answer, Enrichment)

    # ---- ticket ---------------------------------------------------------------------------------

    @evsrc.tool(
        effect=evsrc.Effect.MARKED,
        lag_s=0,
        late_s=LATE_S,
        history=True,
        timeout_s=TIMEOUT_S,
        cost=0.05,
    )
    async def open_ticket(
        self, call: evsrc.Call, *, finding: str, title: str, body: str, severity: int
    ) -> Effected:
        """Open a ticket that carries our marker."""
        payload = {"title": title, "body": body, "severity": severity}
        return await self.post("ticket", call, finding, finding, payload)

    @open_ticket.probe
    async def _(
        self, call: evsrc.Call, *, finding: str, title: str, body: str, severity: int
    ) -> evsrc.Verdict[Effected]:
        return await self._search("ticket", call)

    # ---- block ----------------------------------------------------------------------------------

    @evsrc.tool(
        effect=evsrc.Effect.STATE,
        target=lambda ip: f"block:{ip}",
        lag_s=0,
        late_s=LATE_S,
        history=True,
        timeout_s=TIMEOUT_S,
        cost=0.02,
    )
    async def block_ip(self, call: evsrc.Call, *, finding: str, ip: str, reason: str) -> Effected:
        """Block one address."""
        return await self.post("block", call, finding, ip, {"reason": reason})

    @block_ip.probe
    async def _(
        self, call: evsrc.Call, *, finding: str, ip: str, reason: str
    ) -> evsrc.Verdict[Effected]:
        return await self._state("block", call, ip)

    # ---- disable --------------------------------------------------------------------------------

    @evsrc.tool(
        effect=evsrc.Effect.STATE,
        target=lambda account: f"disable:{account}",
        lag_s=0,
        late_s=LATE_S,
        history=True,
        timeout_s=TIMEOUT_S,
        cost=0.02,
    )
    async def disable_account(
        self, call: evsrc.Call, *, finding: str, account: str, reason: str
    ) -> Effected:
        """Disable one account."""
        return await self.post("disable", call, finding, account, {"reason": reason})

    @disable_account.probe
    async def _(
        self, call: evsrc.Call, *, finding: str, account: str, reason: str
    ) -> evsrc.Verdict[Effected]:
        return await self._state("disable", call, account)

    # ---- page -----------------------------------------------------------------------------------

    @evsrc.tool(
        effect=evsrc.Effect.MARKED,
        lag_s=PAGE_LAG_S,
        late_s=LATE_S,
        history=True,
        timeout_s=TIMEOUT_S,
        cost=0.10,
    )
    async def page(self, call: evsrc.Call, *, finding: str, team: str, message: str) -> Effected:
        """Wake up a team."""
        return await self.post("page", call, finding, team, {"message": message})

    @page.probe
    async def _(
        self, call: evsrc.Call, *, finding: str, team: str, message: str
    ) -> evsrc.Verdict[Effected]:
        return await self._search("page", call)

    @evsrc.tool(timeout_s=TIMEOUT_S, late_s=LATE_S, cost=0.10)
    async def blind_page(
        self, call: evsrc.Call, *, finding: str, team: str, message: str
    ) -> Effected:
        """Wake up a team through a webhook that tells nothing: BLIND, since nothing is declared."""
        return await self.post("page", call, finding, team, {"message": message})

    # ---- the wire -------------------------------------------------------------------------------

    async def post(
        self, kind: str, call: evsrc.Call, finding: str, target: str, payload: dict[str, Any]
    ) -> Effected:
        body = {
            "target": target,
            "finding": finding,
            "tool": kind,
            "marker": call.marker,
            "payload": payload,
        }
        try:
            answer = await self._http.post(f"/{kind}", json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotSent(str(error)) from error  # no connection: no byte left
        if 400 <= answer.status_code < 500:
            raise Rejected(f"{kind}: status {answer.status_code}")
        answer.raise_for_status()
        return _effected(answer.json())

    async def _search(self, kind: str, call: evsrc.Call) -> evsrc.Verdict[Effected]:
        rows = await self.get(f"/search/{kind}", marker=call.marker)
        if len(rows) > 1:
            return evsrc.Conflict(f"{len(rows)} rows with marker {call.marker}")
        if rows:
            return evsrc.Happened(_effected(rows[0]), evidence=f"{kind} {rows[0]['id']}")
        return evsrc.Absent(complete=True, evidence=f"no {kind} with marker {call.marker}")

    async def _state(self, kind: str, call: evsrc.Call, target: str) -> evsrc.Verdict[Effected]:
        ours = await self._search(kind, call)
        if not isinstance(ours, evsrc.Absent):
            return ours
        state = await self.get(f"/state/{kind}", target=target)
        if state["state"] == "on":
            row = state["row"]
            return evsrc.Happened(_effected(row), whose="theirs", evidence=f"{kind} {row['id']}")
        return ours

    async def get(self, path: str, **query: str) -> Any:
        answer = await self._http.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            raise NotSent("the tools are not open: use them as an async context manager")
        return self._client


class TrustingTools:
    """The same world as most agents see it: every call is simply sent again when in doubt."""

    def __init__(self, tools: WorldTools) -> None:
        self._tools = tools

    @evsrc.tool(on_unknown="resend", timeout_s=TIMEOUT_S, attempts=10)
    async def open_ticket(
        self, call: evsrc.Call, *, finding: str, title: str, body: str, severity: int
    ) -> Effected:
        """Open a ticket."""
        payload = {"title": title, "body": body, "severity": severity}
        return await self._tools.post("ticket", call, finding, finding, payload)

    @evsrc.tool(on_unknown="resend", timeout_s=TIMEOUT_S, attempts=10)
    async def block_ip(self, call: evsrc.Call, *, finding: str, ip: str, reason: str) -> Effected:
        """Block one address."""
        return await self._tools.post("block", call, finding, ip, {"reason": reason})

    @evsrc.tool(on_unknown="resend", timeout_s=TIMEOUT_S, attempts=10)
    async def disable_account(
        self, call: evsrc.Call, *, finding: str, account: str, reason: str
    ) -> Effected:
        """Disable one account."""
        return await self._tools.post("disable", call, finding, account, {"reason": reason})

    @evsrc.tool(on_unknown="resend", timeout_s=TIMEOUT_S, attempts=10)
    async def page(self, call: evsrc.Call, *, finding: str, team: str, message: str) -> Effected:
        """Wake up a team."""
        return await self._tools.post("page", call, finding, team, {"message": message})

    @evsrc.tool(effect=evsrc.Effect.READ, timeout_s=TIMEOUT_S)
    async def enrich(self, call: evsrc.Call, *, subject: str) -> Enrichment:
        """What the world knows about an account or host."""
        return msgspec.convert(await self._tools.get("/enrich", subject=subject), Enrichment)


def _effected(row: Any) -> Effected:
    return Effected(kind=row["kind"], target=row["target"], ref=f"{row['kind']}-{row['id']}")
