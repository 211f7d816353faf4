"""Definition: what one `@tool` declares, checked as early as Python allows.

Rule: what can be told at decoration is refused at decoration; what needs resolved annotations
(forward references) is refused when `types` is first read. Nothing is assumed that is not declared.
Does not know: adapter objects (bound.py), or when a function is called.
Must change together: core/verdicts.py (Capabilities).
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec

from evsrc.core.verdicts import Capabilities, Effect
from evsrc.errors import DefinitionError
from evsrc.tools.call import Call, SecretRef

if TYPE_CHECKING:
    from inspect import Parameter, Signature

Fn: TypeAlias = Callable[..., Any]
Role: TypeAlias = Literal["probe", "sweep", "prepare", "undo"]

NAME_CHARS_MAX = 64
"""A tool's name is part of every key, question and command line that concerns it."""

ATTEMPTS_MAX = 1000
"""More intents than this for one call are a loop, not patience."""

SECONDS_MAX = 10 * 365 * 86400.0
"""Ten years: beyond it a duration was given in another unit."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `@tool(...)` was given besides the capabilities."""

    name: str | None = None
    secret: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    target: Fn | None = None
    at_once: int | None = None


class Handler(msgspec.Struct, frozen=True):
    """One function of the adapter, and whether it must run in a worker thread."""

    fn: Fn
    blocking: bool


class Types(msgspec.Struct, frozen=True):
    """Annotations after resolution: parameters without `self` and `call`, and the result."""

    parameters: Mapping[str, Any]
    returns: Any
    secrets: frozenset[str]


class Definition:
    """One declared tool, shared by all objects of its adapter. Filled by decorators, then read."""

    __slots__ = (
        "_types",
        "capabilities",
        "handlers",
        "method",
        "name",
        "options",
        "send",
        "signature",
        "target_parameters",
    )

    def __init__(self, fn: Fn, capabilities: Capabilities, options: Options) -> None:
        """Check and keep a declaration.

        Raises:
            DefinitionError: the function or an option cannot work; the message says what would.
        """
        if not hasattr(fn, "__qualname__") or isinstance(fn, type):
            raise DefinitionError(f"@tool goes on a function or method, not on {fn!r}")
        self.name = _checked_name(options.name if options.name is not None else fn.__name__)
        self.method = _is_method(fn)
        self.send = Handler(fn, blocking=not _is_async(fn))
        self.signature = _checked_signature(self.name, fn, self.method)
        self.options = options
        self.target_parameters = _target_parameters(self, capabilities.effect)
        self.capabilities = capabilities
        self.handlers: dict[Role, Handler] = {}
        self._types: Types | None = None
        check_capabilities(self.name, capabilities)
        _check_options(self)

    def add(self, role: Role, fn: Fn) -> None:
        """Register a probe, sweep, prepare or undo.

        Raises:
            DefinitionError: there is one already, or its parameters are not those of its tool.
        """
        if role in self.handlers:
            raise DefinitionError(f"tool {self.name!r} has a {role} already; give it one")
        _check_handler(self, role, fn)
        blocking = not (_is_async(fn) or _is_async_generator(fn))
        self.handlers[role] = Handler(fn, blocking)
        self.capabilities = msgspec.structs.replace(
            self.capabilities,
            can_probe="probe" in self.handlers,
            can_sweep="sweep" in self.handlers,
        )

    @property
    def types(self) -> Types:
        """Resolved annotations; resolved at first use, since they may name what is defined later.

        Raises:
            DefinitionError: an annotation cannot be resolved, or is one that cannot be recorded.
        """
        if self._types is None:
            self._types = _resolve(self)
        return self._types

    def missing(self) -> list[str]:
        """Names of the declarations whose absence makes evsrc ask a human where it could know."""
        caps = self.capabilities
        unset = [name for name in ("lag_s", "late_s") if getattr(caps, name) is None]
        window = ["window_s"] if caps.window_s is None else []
        probe = [] if caps.can_probe else ["probe"]
        history = [] if caps.history else ["history"]
        match caps.effect:
            case Effect.READ:
                return []
            case Effect.BLIND:
                return ["effect"]
            case Effect.KEYED:
                return [*window, *probe, *unset, *history]
            case Effect.NAMED:
                return probe
            case Effect.MARKED:
                return [*probe, *unset, *history]
            case Effect.STATE:
                safe = [name for name in ("resend_safe", "fence") if not getattr(caps, name)]
                return [*probe, *safe]


# ---- checks at decoration ----------------------------------------------------------------------


def _checked_name(name: str) -> str:
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"tool name {name!r}: expected 1 to {NAME_CHARS_MAX} characters of A-Z a-z 0-9 _ . -; "
            f"give name="
        )
    return name


def _is_method(fn: Fn) -> bool:
    # By where it stands, not by its annotations: those may be strings or aliases.
    owner = fn.__qualname__.rpartition(".")[0]
    return owner != "" and not owner.endswith("<locals>")


def _is_async(fn: Fn) -> bool:
    import inspect

    return inspect.iscoroutinefunction(inspect.unwrap(fn))


def _is_async_generator(fn: Fn) -> bool:
    import inspect

    return inspect.isasyncgenfunction(inspect.unwrap(fn))


def _checked_signature(name: str, fn: Fn, method: bool) -> "Signature":
    """The signature without `self` and `call`."""
    import inspect

    if inspect.isgeneratorfunction(fn) or _is_async_generator(fn):
        raise DefinitionError(f"tool {name!r} is a generator; a tool returns one value")
    signature = inspect.signature(fn)
    if signature.return_annotation is inspect.Signature.empty:
        raise DefinitionError(
            f"tool {name!r} has no return annotation: annotate; `-> Any` for plain data"
        )
    parameters = list(signature.parameters.values())
    leading = 2 if method else 1
    _check_call(name, parameters[leading - 1] if len(parameters) >= leading else None)
    rest = parameters[leading:]
    for parameter in rest:
        _check_parameter(name, parameter)
    return signature.replace(parameters=rest, return_annotation=inspect.Signature.empty)


def _check_call(name: str, parameter: "Parameter | None") -> None:
    annotation = None if parameter is None else parameter.annotation
    # A string may be any spelling of Call; it is compared once it can be resolved.
    if parameter is None or not (annotation is Call or isinstance(annotation, str)):
        found = "none" if parameter is None else repr(parameter.name)
        raise DefinitionError(
            f"tool {name!r}: the first parameter (after self) must be `call: Call`, found {found}"
        )


def _check_parameter(name: str, parameter: "Parameter") -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise DefinitionError(
            f"tool {name!r}: *{parameter.name} cannot be recorded by name; declare each parameter"
        )
    if parameter.annotation is parameter.empty:
        raise DefinitionError(
            f"tool {name!r}: parameter {parameter.name!r} has no annotation: "
            f"annotate; `Any` for plain data"
        )


def check_capabilities(name: str, caps: Capabilities) -> None:
    """Raises DefinitionError for a value of the wrong type, or no duration, count or price."""
    _check_effect(name, caps.effect)
    try:
        # Code that is not type-checked may pass anything; False for None would read as "no lag".
        msgspec.convert(msgspec.structs.asdict(caps), Capabilities)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"tool {name!r}: {error}") from error
    for field in ("timeout_s", "window_s", "lag_s", "late_s", "cost"):
        value: float | None = getattr(caps, field)
        if value is None:
            continue
        if not 0 <= value <= SECONDS_MAX:  # NaN is in no range
            raise DefinitionError(
                f"tool {name!r}: {field} must be 0 to {SECONDS_MAX:.0f}, found {value!r}"
            )
    if caps.timeout_s == 0:
        raise DefinitionError(f"tool {name!r}: timeout_s must be more than 0, or nothing is sent")
    if not 1 <= caps.attempts <= ATTEMPTS_MAX:
        raise DefinitionError(
            f"tool {name!r}: attempts must be 1 to {ATTEMPTS_MAX}, found {caps.attempts!r}"
        )


def _check_effect(name: str, effect: object) -> None:
    # Apart, since the conversion would take the string "marked" for Effect.MARKED.
    if not isinstance(effect, Effect):
        raise DefinitionError(f"tool {name!r}: effect must be an Effect, found {effect!r}")


def _check_options(definition: Definition) -> None:
    options = definition.options
    for field in ("secret", "volatile"):
        names: object = getattr(options, field)
        if not isinstance(names, tuple):
            raise DefinitionError(
                f"tool {definition.name!r}: {field} is a tuple of parameter names, found {names!r}"
            )
        _check_known(definition, field, getattr(options, field))
    if options.at_once is not None and options.at_once < 1:
        raise DefinitionError(
            f"tool {definition.name!r}: at_once must be at least 1, found {options.at_once!r}"
        )


def _check_known(definition: Definition, field: str, names: tuple[str, ...]) -> None:
    known = definition.signature.parameters
    unknown = [name for name in names if name not in known]
    if unknown:
        raise DefinitionError(
            f"tool {definition.name!r}: {field} names {', '.join(map(repr, unknown))}; "
            f"its parameters are {', '.join(known) or 'none'}"
        )


def _target_parameters(definition: Definition, effect: Effect) -> tuple[str, ...]:
    target = definition.options.target
    if (target is None) == (effect is Effect.STATE):
        raise DefinitionError(
            f"tool {definition.name!r}: target= is needed by Effect.STATE, and only there: "
            f"a function from the arguments that select the target to one canonical string"
        )
    if target is None:
        return ()
    import inspect

    names = tuple(inspect.signature(target).parameters)
    _check_known(definition, "target", names)
    loose = {*definition.options.secret, *definition.options.volatile}.intersection(names)
    if loose:
        raise DefinitionError(
            f"tool {definition.name!r}: {', '.join(sorted(loose))} selects the target, so it "
            f"cannot be secret or volatile: two targets would share one key"
        )
    return names


def _check_handler(definition: Definition, role: Role, fn: Fn) -> None:
    import inspect

    found = list(inspect.signature(fn).parameters)[1 if definition.method else 0 :]
    if role == "sweep":
        expected, fits = ["since"], len(found) == 1
    elif role == "undo":
        expected, fits = ["call", "result"], len(found) == 2
    else:
        # Names, not count: after a restart the recorded arguments are passed by name.
        expected = ["call", *definition.signature.parameters]
        fits = len(found) > 0 and sorted(found[1:]) == sorted(expected[1:])
    if not fits:
        raise DefinitionError(
            f"{role} of tool {definition.name!r}: expected the parameters "
            f"({', '.join(expected)}), found ({', '.join(found)})"
        )


# ---- checks at first use -----------------------------------------------------------------------


def _resolve(definition: Definition) -> Types:
    fn = definition.send.fn
    try:
        hints = get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"tool {definition.name!r}: an annotation cannot be resolved ({error}); "
            f"define the name at module level"
        ) from error
    import inspect

    first = list(inspect.signature(fn).parameters)[1 if definition.method else 0]
    if hints[first] is not Call:
        raise DefinitionError(
            f"tool {definition.name!r}: parameter {first!r} must be a Call, found {hints[first]!r}"
        )
    parameters = {name: hints[name] for name in definition.signature.parameters}
    for name, annotation in (*parameters.items(), ("return", hints["return"])):
        _check_recordable(definition, name, annotation)
    return Types(parameters, hints["return"], _secrets(definition, parameters))


def _check_recordable(definition: Definition, name: str, annotation: Any) -> None:
    try:
        msgspec.msgpack.Decoder(annotation)
    except TypeError as error:
        raise DefinitionError(
            f"tool {definition.name!r}: {name}: {annotation!r} cannot be recorded: {error}"
        ) from error


def _secrets(definition: Definition, parameters: Mapping[str, Any]) -> frozenset[str]:
    """Parameters that hold references: with a value instead, no restart could send again."""
    for name in definition.options.secret:
        if not _is_secret(parameters[name]):
            raise DefinitionError(
                f"tool {definition.name!r}: secret parameter {name!r} must be a SecretRef, so that "
                f"the log holds its name and never its value; found {parameters[name]!r}"
            )
    found = {name for name, annotation in parameters.items() if _is_secret(annotation)}
    chosen = found.intersection(definition.target_parameters)
    if chosen:
        raise DefinitionError(
            f"tool {definition.name!r}: {', '.join(sorted(chosen))} selects the target, so it "
            f"cannot be secret"
        )
    return frozenset(found)


def _is_secret(annotation: Any) -> bool:
    if annotation is SecretRef:
        return True
    members = get_args(annotation)
    return SecretRef in members and set(members) <= {SecretRef, type(None)}
