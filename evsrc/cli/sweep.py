"""`sweep`: ask the tools which effects carry our markers, and report those that no intent explains.

Rule: nothing is run and nothing is sent; what was seen is recorded by the runtime.
Does not know: how a tool lists its effects.
"""

from typing import Annotated

import anyio
from cyclopts import Parameter

from evsrc.cli import logs, render, statuses
from evsrc.cli.loading import loaded_tools
from evsrc.cli.logs import AsJson, LogDir
from evsrc.cli.statuses import UsageError
from evsrc.runtime.runtime import open_runtime
from evsrc.runtime.sweep import Swept


def sweep(
    *,
    tools: Annotated[str, Parameter(help="module:attribute of the tools to sweep.")],
    log: LogDir = logs.LOG_DEFAULT,
    json: AsJson = False,
) -> int:
    """Run the full sweep of every tool that can list its effects.

    Exit status 1 if a sweep broke off, or found effects that no intent explains, or more than one.
    """
    logs.reader(log)
    swept = anyio.run(_sweep, log, tools)
    if json:
        render.print_json({"swept": swept})
    else:
        columns = ("tool", "instance", "complete", "seen", "orphans", "duplicates")
        render.table(columns, [_cells(one) for one in swept])
    sound = all(one.complete and not one.orphans and not one.duplicates for one in swept)
    return statuses.OK if sound else statuses.FAILED


async def _sweep(log: str, spec: str) -> list[Swept]:
    async with loaded_tools(spec) as tools:
        if not any(tool.capabilities.can_sweep for tool in tools):
            raise UsageError(f"{spec}: none of these tools declares a sweep")
        async with open_runtime(log, tools=tools, resume=False) as runtime:
            return await runtime.sweep()


def _cells(one: Swept) -> list[str]:
    return [
        one.tool,
        one.instance,
        "yes" if one.complete else "no",
        str(one.seen),
        " ".join(one.orphans),
        " ".join(one.duplicates),
    ]
