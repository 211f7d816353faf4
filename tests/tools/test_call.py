"""What an adapter's function is handed, and that secrets stay where they belong."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsrc.errors import LimitExceeded, OperatorError
from evsrc.tools.call import REDACTED, Call, SecretRef, Secrets, env_secret

SECRET = "s3cr3t-marker-bytes"


def make_call(**values: object) -> Call:
    call = Call(key="a" * 64, marker="evsrc-abc")
    return msgspec.structs.replace(call, **values)


def test_secret_comes_from_the_resolver_once() -> None:
    """A secret is looked up by its name, and one call looks it up once."""
    asked: list[str] = []

    def resolve(name: str) -> str:
        asked.append(name)
        return SECRET

    call = make_call(secrets=Secrets(resolve))
    assert call.secret(SecretRef("token")) == SECRET
    assert call.secret(SecretRef("token")) == SECRET
    assert asked == ["token"]


def test_repr_of_a_call_holds_no_secret() -> None:
    """Neither the value nor the way to it is in the repr of anything a tool is handed (H21)."""
    call = make_call(secrets=Secrets(lambda name: SECRET))
    call.secret(SecretRef("token"))
    assert SECRET not in repr(call) + repr(call.secrets) + str(call)
    assert "lambda" not in repr(call)


def test_a_call_cannot_be_encoded() -> None:
    """A call never lands in a log by accident, since it leads to secrets."""
    with pytest.raises(TypeError):
        msgspec.msgpack.encode(make_call())


def test_missing_secret_names_the_reference() -> None:
    """A secret that is not there is reported by its name, for the operator to provide it."""
    with pytest.raises(OperatorError, match="EVSRC_TEST_NOT_SET"):
        make_call().secret(SecretRef("EVSRC_TEST_NOT_SET"))


def test_environment_is_the_default_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a resolver a name is an environment variable, and an empty one counts as missing."""
    monkeypatch.setenv("EVSRC_TEST_TOKEN", SECRET)
    assert make_call().secret(SecretRef("EVSRC_TEST_TOKEN")) == SECRET
    monkeypatch.setenv("EVSRC_TEST_TOKEN", "")
    with pytest.raises(LookupError, match="EVSRC_TEST_TOKEN"):
        env_secret("EVSRC_TEST_TOKEN")


@pytest.mark.parametrize("name", ["", "x" * 201, "é" * 101])
def test_reference_has_the_length_of_a_name(name: str) -> None:
    """A reference is refused when empty or too long, and its text is not repeated in the error."""
    with pytest.raises(LimitExceeded) as caught:
        SecretRef(name)
    assert not name or name not in str(caught.value)


def test_redact_takes_out_what_was_looked_up() -> None:
    """Values handed out so far vanish from a text, a longer one before its own part."""
    values = {"short": "abcd", "long": "abcdefgh", "tiny": "a"}
    call = make_call(secrets=Secrets(values.__getitem__))
    assert call.redact("abcd") == "abcd"
    for name in values:
        call.secret(SecretRef(name))
    assert call.redact("say abcdefgh, abcd, a") == f"say {REDACTED}, {REDACTED}, a"


@given(st.lists(st.text("abc", min_size=4, max_size=8), min_size=1), st.text("abc "))
def test_redacted_text_holds_no_value(values: list[str], text: str) -> None:
    """Whatever the text, no value of at least four characters remains in it."""
    secrets = Secrets(lambda name: values[int(name)])
    for number in range(len(values)):
        secrets.value(str(number))
    left = secrets.redact(text).replace(REDACTED, "|")
    assert not any(value in left for value in values)


def test_first_sent_at_is_a_lower_bound_in_utc() -> None:
    """The time for searches is never later than the recorded one."""
    call = make_call(first_sent_ns=1_700_000_000_999_999_999)
    assert call.first_sent_at == datetime.fromtimestamp(1_700_000_000, UTC)
