"""Text that somebody else wrote, on a terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from evsrc.cli.escape import SHOWN_CHARS_MAX, safe, shown

ANYTHING = st.text(st.characters())
SURROGATES = st.text(st.characters(categories=["Cs", "Cc", "Cf", "Zl", "Zp", "Lu"]))


@given(ANYTHING | SURROGATES)
def test_only_characters_that_show_themselves_come_out(text: str) -> None:
    """Whatever went in: one printable line that can be written as UTF-8."""
    out = safe(text)

    assert out.isprintable()
    assert out.encode().decode() == out


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=200))
def test_readable_text_is_left_alone(text: str) -> None:
    """Letters of every script, digits, punctuation and symbols are what they were."""
    assert safe(text) == text


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\r\nb\tc", "a\\x0d\\x0ab\\x09c"),
        ("\x9b2J\x7f", "\\x9b2J\\x7f"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\u2028\u200b\ufeff", "\\u2028\\u200b\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("Zo\u00eb \u65e5\u672c", "Zo\u00eb \u65e5\u672c"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, out: str) -> None:
    """Each family of controls has its escape; other scripts have none."""
    assert safe(text) == out


def test_long_text_is_cut() -> None:
    """One field cannot fill the screen."""
    assert safe("x" * (SHOWN_CHARS_MAX + 1)) == "x" * SHOWN_CHARS_MAX + "..."
    assert safe("x" * SHOWN_CHARS_MAX) == "x" * SHOWN_CHARS_MAX


@given(st.sampled_from(["[bold]x[/bold]", "[link=http://x]y[/link]", ":bomb:", "[/]", "\\[red]"]))
def test_markup_is_text(text: str) -> None:
    """Rich interprets nothing: neither styles nor links nor emoji, also on a console that would."""
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=200).print(shown(text))

    assert out.getvalue() == text + "\n"
