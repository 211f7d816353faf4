"""The outputs of a completed flow, from its recorded state: decoded, fan-outs as lists in item order.

Rule: what a completed run gives is what its log holds, whether or not this process computed it.
Does not know: how the run was executed.
"""

from typing import Any

from evsrc.core.codec import decode_value
from evsrc.core.state import RunState
from evsrc.runtime.flow import BuiltFlow


def outputs_of(built: BuiltFlow, state: RunState) -> dict[str, Any]:
    """Output of every node by name. A node that the code gained since the run ended is left out."""
    values: dict[str, Any] = {}
    for wave in built.graph.waves:
        for name in wave:
            node = built.nodes[name]
            key = node.declared.item_key
            if node.is_each and key is not None:
                found = [
                    _output(state, name, key(item), node.returns)
                    for item in values.get(node.declared.source, [])
                ]
                values[name] = [value for ok, value in found if ok]
                continue
            ok, value = _output(state, name, "", node.returns)
            if ok:
                values[name] = value
    return values


def _output(state: RunState, name: str, item: str, returns: Any) -> tuple[bool, Any]:
    node = state.nodes.get((name, item))
    if node is None or node.output is None:
        return False, None
    return True, decode_value(node.output.output, returns)
