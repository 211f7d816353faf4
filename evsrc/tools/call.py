"""Call: what the runtime hands to an adapter's functions, and how secrets reach them.

Rule: a secret's value stands in no field, no repr and nothing that can be encoded. Only the
reference (`SecretRef`) is an argument; the value is looked up when the adapter asks for it.
Does not know: when a call is made or repeated, or what becomes of its answer.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from evsrc.errors import LimitExceeded, OperatorError

SECRET_NAME_BYTES_MAX = 200
"""As long as any name in a vault; what is longer is a secret put there by mistake."""

REDACTED = "[redacted]"

REDACT_CHARS_MIN = 4
"""Shorter values are not searched for in texts: they would tear holes into ordinary words."""

SecretResolver: TypeAlias = Callable[[str], str]
"""Name -> value. Raises LookupError, naming where it looked, if there is none."""


class SecretRef(msgspec.Struct, frozen=True):
    """A secret by its name. The name is logged, the value never is.

    Raises:
        LimitExceeded: the name is empty or longer than `SECRET_NAME_BYTES_MAX` in UTF-8.
    """

    name: str

    def __post_init__(self) -> None:
        # The name is not repeated: if it is too long, it may well be the secret itself.
        size = len(self.name.encode("utf-8", "surrogatepass"))
        if not 1 <= size <= SECRET_NAME_BYTES_MAX:
            raise LimitExceeded(
                f"SecretRef.name: expected 1 to {SECRET_NAME_BYTES_MAX} bytes, found {size}; "
                f"give the secret's name, not its value"
            )


def env_secret(name: str) -> str:
    """The default resolver: the environment variable of that name.

    Raises:
        LookupError: there is no such variable, or it is empty.
    """
    import os  # only a call that uses a secret pays for it

    value = os.environ.get(name, "")
    if not value:
        raise LookupError(f"the environment variable {name} is not set")
    return value


class Secrets:
    """Looks secrets up once per call, and remembers which values must not appear in texts."""

    __slots__ = ("_resolve", "_values")

    def __init__(self, resolve: SecretResolver = env_secret) -> None:
        self._resolve = resolve
        self._values: dict[str, str] = {}

    def value(self, name: str) -> str:
        """The secret's value. Raises LookupError as the resolver does."""
        if name not in self._values:
            self._values[name] = self._resolve(name)
        return self._values[name]

    def redact(self, text: str) -> str:
        """`text` without the values handed out so far."""
        # Longest first: a value that contains another one must go as a whole.
        for value in sorted(self._values.values(), key=len, reverse=True):
            if len(value) >= REDACT_CHARS_MIN:
                text = text.replace(value, REDACTED)
        return text

    def __repr__(self) -> str:
        return "Secrets(...)"


class Call(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One attempt of one call, as its tool sees it: first parameter of send, probe, prepare, undo.

    It cannot be encoded, on purpose: it holds the way to the secrets.
    """

    key: str
    """Idempotency key: 64 characters of lower-case hex, the same on every attempt."""
    marker: str
    """Short name of the key, of one fixed length, `[a-z0-9-]`: store it where the tool shows it."""
    attempt: int = 1
    run_id: str = ""
    call_id: str = ""
    scope: tuple[str, ...] = ()
    label: str = ""
    instance: str = ""
    prepared: Any = None
    """What `prepare` returned, as plain data; None in `prepare` itself and where there is none."""
    first_sent_ns: int = 0
    """When the first attempt was recorded, in nanoseconds since the epoch; 0: not yet.

    By the owner's clock: no attempt left earlier, but the tool's own clock may differ."""
    secrets: Secrets = msgspec.field(default_factory=Secrets)

    @property
    def first_sent_at(self) -> datetime:
        """`first_sent_ns` in UTC, rounded down to the second: a lower bound for searches."""
        return datetime.fromtimestamp(self.first_sent_ns // 1_000_000_000, UTC)

    def secret(self, ref: SecretRef) -> str:
        """The value of a secret. Ask for it before the first byte leaves, and do not keep it.

        Raises:
            OperatorError: the secret cannot be found. Out of `send` this counts as unknown, as any
                other error does; for a `SecretRef` among the arguments it cannot occur there, since
                those are looked up before `send` is entered.
        """
        try:
            return self.secrets.value(ref.name)
        except LookupError as error:
            raise OperatorError(f"secret {ref.name!r}: {error}; provide it and resume") from error

    def redact(self, text: str) -> str:
        """`text` with every secret that this call has looked up replaced by `[redacted]`.

        The runtime passes error texts of tools through this before it records them. It finds the
        exact value only: one that the tool echoes encoded (base64, percent-escapes), cut or in
        another case is not recognised, nor one shorter than `REDACT_CHARS_MIN`.
        """
        return self.secrets.redact(text)


class SweepEnd(msgspec.Struct, frozen=True):
    """The last item of a sweep. A sweep that ends without one counts as not complete."""

    complete: bool
    """Was everything since the asked time listed: no page limit hit, nothing filtered out?"""
    evidence: str = ""
