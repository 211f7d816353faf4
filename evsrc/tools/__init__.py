"""What an adapter author needs, and nothing of the machinery: `@tool`, Call, secrets, binding.

Rule: imports core and errors only.
"""

from evsrc.tools.binding import Bound
from evsrc.tools.bound import BoundTool
from evsrc.tools.call import Call, SecretRef, SecretResolver, Secrets, SweepEnd, env_secret
from evsrc.tools.tool import MethodTool, Tool, tool
from evsrc.tools.toolset import ToolSet

__all__ = [
    "Bound",
    "BoundTool",
    "Call",
    "MethodTool",
    "SecretRef",
    "SecretResolver",
    "Secrets",
    "SweepEnd",
    "Tool",
    "ToolSet",
    "env_secret",
    "tool",
]
