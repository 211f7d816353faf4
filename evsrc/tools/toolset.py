"""ToolSet: the tools that a runtime was given, found by name and instance.

Rule: one name and instance, one tool. A recorded call is resent to exactly the tool that it names.
Does not know: who looks a tool up.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from evsrc.errors import CallerError, DefinitionError
from evsrc.tools.bound import BoundTool
from evsrc.tools.tool import Tool


class ToolSet:
    """Tools by (name, instance), each checked when it is added."""

    __slots__ = ("_tools",)

    def __init__(self, tools: Iterable[Tool[..., Any]] = ()) -> None:
        """Raises DefinitionError as `add`."""
        self._tools: dict[tuple[str, str], BoundTool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool[..., Any]) -> BoundTool:
        """Add one tool and resolve its annotations.

        Raises:
            DefinitionError: it is not a Tool, its name and instance are taken, or an annotation
                cannot be resolved or recorded.
        """
        # A plain function, or a MethodTool read from the class, comes from unchecked code.
        bound: object = getattr(tool, "bound", None)
        if not isinstance(bound, BoundTool):
            raise DefinitionError(
                f"expected a tool, found {tool!r}: decorate it with @tool; a method is read from "
                f"its adapter object, not from the class"
            )
        place = (bound.name, bound.instance)
        if place in self._tools:
            raise DefinitionError(
                f"tool {bound.name!r} with instance {bound.instance!r} was given twice; "
                f"give one of them name=, or its adapter object another `instance`"
            )
        bound.check()
        self._tools[place] = bound
        return bound

    def find(self, name: str, instance: str = "") -> BoundTool | None:
        """The tool, or None if it was not given."""
        return self._tools.get((name, instance))

    def get(self, name: str, instance: str = "") -> BoundTool:
        """The tool.

        Raises:
            CallerError: it was not given; names those that were.
        """
        bound = self._tools.get((name, instance))
        if bound is None:
            known = ", ".join(f"{n}@{i}" if i else n for n, i in sorted(self._tools)) or "none"
            raise CallerError(
                f"tool {name!r} with instance {instance!r} was not given to the runtime "
                f"(tools=...); given: {known}"
            )
        return bound

    def __iter__(self) -> Iterator[BoundTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
