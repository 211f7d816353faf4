"""Binding: arguments of one call, from what the caller wrote to what is recorded, and back.

Rule: what the tool gets is what was recorded, decoded: the caller's objects are not kept, so nobody
can change a call after its intent. Secrets and volatile arguments are in no identity.
Does not know: who asks, keys, or attempts.
Must change together: core/codec.py, core/canonical.py.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from evsrc.core.canonical import canonical
from evsrc.core.codec import decode_value, encode_value
from evsrc.errors import CallerError, DivergenceError, LimitExceeded, UnusableValue
from evsrc.tools.definition import Definition

ARGUMENTS_BYTES_MAX = 256 * 1024
"""Asked, approved and sent may all stand in one record of 1 MiB, beside what `prepare` returned."""

TARGET_BYTES_MAX = 512
"""A target is a name: it stands in questions and is compared with every open call on it."""


class Bound(msgspec.Struct, frozen=True):
    """The arguments of one call, bound, converted and encoded."""

    arguments: dict[str, Any]
    """All parameters by name, defaults applied, as declared types: what `send` and `probe` get."""
    asked: bytes
    """The same as a msgpack map; of secrets the reference."""
    identity: bytes
    """Canonical form of the arguments that make the call what it is: without secret and volatile
    ones, and without those at their default, so a new optional parameter is no divergence."""
    target: str = ""
    """What a STATE tool acts on; empty otherwise."""
    secrets: frozenset[str] = frozenset()
    """Names of the arguments that are references to secrets."""


def bind(definition: Definition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
    """Bind a call's arguments to a tool's parameters.

    Raises:
        CallerError: an argument is missing, unknown or of the wrong type; names tool and parameter.
        UnusableValue: an argument would not survive recording with its type.
        NoStableForm: an argument has no canonical form.
        LimitExceeded: the arguments are larger than `ARGUMENTS_BYTES_MAX`, or the target's name is.
        DefinitionError: an annotation of the tool cannot be resolved or recorded.
    """
    encoded = _encode(definition, _by_name(definition, args, kwargs))
    asked = msgspec.msgpack.encode(encoded)
    if len(asked) > ARGUMENTS_BYTES_MAX:
        raise LimitExceeded(
            f"tool {definition.name!r}: arguments of {len(asked)} bytes; at most "
            f"{ARGUMENTS_BYTES_MAX}: pass a reference to large data"
        )
    arguments = {name: _decode(definition, name, bytes(raw)) for name, raw in encoded.items()}
    return Bound(
        arguments,
        asked,
        _identity(definition, arguments),
        _target(definition, arguments),
        definition.types.secrets,
    )


def unbind(definition: Definition, data: bytes) -> dict[str, Any]:
    """Recorded arguments (`Bound.asked`) as declared types, for a resend or probe after a restart.

    A parameter added since, with a default, gets its default.

    Raises:
        DivergenceError: the tool's parameters no longer fit what was recorded; names the parameter.
    """
    recorded = msgspec.msgpack.decode(data, type=dict[str, msgspec.Raw])
    parameters = definition.signature.parameters
    for name in recorded:
        if name not in parameters:
            raise _diverged(definition, name, "is recorded and not a parameter any more")
    arguments: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name in recorded:
            arguments[name] = _recorded(definition, name, bytes(recorded[name]))
        elif parameter.default is not parameter.empty:
            arguments[name] = parameter.default
        else:
            raise _diverged(definition, name, "is a required parameter that is not recorded")
    return arguments


def _by_name(
    definition: Definition, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        bound = definition.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CallerError(f"tool {definition.name!r}: {error}") from error
    bound.apply_defaults()
    return bound.arguments


def _encode(definition: Definition, arguments: dict[str, Any]) -> dict[str, msgspec.Raw]:
    annotations = definition.types.parameters
    encoded: dict[str, msgspec.Raw] = {}
    for name, value in arguments.items():
        annotation = annotations[name]
        try:
            encoded[name] = msgspec.Raw(encode_value(_convert(value, annotation), annotation))
        except msgspec.ValidationError as error:
            raise CallerError(f"tool {definition.name!r}, argument {name!r}: {error}") from error
        except UnusableValue as error:
            where = f"tool {definition.name!r}, argument {name!r}, {error.path}"
            raise UnusableValue(where, error.why) from error
    return encoded


def _convert(value: Any, annotation: Any) -> Any:
    # Strict: no number out of a string, no int out of a bool. Lossless spellings of one value (a
    # tuple for a list, 1 for 1.0, a dict for a Struct) come together here, before any comparison.
    return msgspec.convert(value, annotation, strict=True)


def _decode(definition: Definition, name: str, raw: bytes) -> Any:
    return decode_value(raw, definition.types.parameters[name])


def _recorded(definition: Definition, name: str, raw: bytes) -> Any:
    try:
        return _decode(definition, name, raw)
    except (msgspec.DecodeError, UnusableValue) as error:
        raise _diverged(definition, name, f"does not fit its recorded value: {error}") from error


def _diverged(definition: Definition, name: str, why: str) -> DivergenceError:
    return DivergenceError(
        f"tool {definition.name!r}: {name!r} {why}; nothing was sent. Bring back the code that "
        f"recorded the call, or give new parameters a default"
    )


def _identity(definition: Definition, arguments: Mapping[str, Any]) -> bytes:
    loose = definition.types.secrets.union(definition.options.volatile)
    return canonical(
        {
            name: value
            for name, value in arguments.items()
            if name not in loose and not _is_default(definition, name, value)
        }
    )


def _is_default(definition: Definition, name: str, value: Any) -> bool:
    parameter = definition.signature.parameters[name]
    if parameter.default is parameter.empty:
        return False
    # By canonical form: `==` would take True for 1, and 0.0 for -0.0.
    default = _convert(parameter.default, definition.types.parameters[name])
    return canonical(value) == canonical(default)


def _target(definition: Definition, arguments: Mapping[str, Any]) -> str:
    target = definition.options.target
    if target is None:
        return ""
    value: object = target(**{name: arguments[name] for name in definition.target_parameters})
    if not isinstance(value, str) or not value:
        raise CallerError(
            f"tool {definition.name!r}: target returned {value!r}; expected a string, not empty"
        )
    size = len(value.encode())
    if size > TARGET_BYTES_MAX:
        raise LimitExceeded(
            f"tool {definition.name!r}: target of {size} bytes; at most {TARGET_BYTES_MAX}"
        )
    return value
