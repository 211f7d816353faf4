"""Escaping: text that somebody else wrote, made safe for a terminal.

Alerts are written by attackers, and their text ends in run ids, item keys, results and errors. On a
terminal a control character is a command: it moves the cursor, recolours, retitles, or (bidi overrides)
makes a line read as something else.

Rule: the one way to the terminal. Every character that does not show itself is replaced by its escape.
Does not know: what is shown, or where.
"""

from rich.text import Text

SHOWN_CHARS_MAX = 2000
"""Longest text shown of one field: more is for `export`, not for eyes."""


def safe(value: object, limit: int = SHOWN_CHARS_MAX) -> str:
    """The text on one line, of characters that show themselves; cut, with "...", after `limit`.

    Escaped as in Python: C0 and C1 controls (newline and ESC among them), DEL, bidi overrides and all
    other invisible format characters, separators but the space, private use, lone surrogates.
    """
    text = str(value)
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join([c if c.isprintable() else _escaped(c) for c in cut])
    return cut if len(text) <= limit else cut + "..."


def shown(value: object, style: str = "", limit: int = SHOWN_CHARS_MAX) -> Text:
    """`safe` for rich: a Text, in which square brackets are brackets and no markup."""
    return Text(safe(value, limit), style=style)


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
