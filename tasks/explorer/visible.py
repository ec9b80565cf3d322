"""Text that strangers wrote, made harmless and fully visible.

Programs are hostile text: they may hold tags, characters that turn the direction of writing, controls that a terminal
or browser would obey, and lines of a megabyte. Everything is escaped; what cannot be seen is shown as its name.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from markupsafe import Markup, escape

LONGEST_LINE = 400
"""Characters of a line that are shown before it is cut."""
MOST_LINES = 400
"""Lines of a text that are shown before it is cut."""
_PLAIN = frozenset("\n\t")


def visible(text: str) -> Markup:
    """The text with every character seen: controls, direction marks and the like stand as `U+202E` in a frame."""
    if text.isascii() and text.isprintable():
        return escape(text)
    return Markup("").join(_shown(letter) for letter in text)


def hidden(letter: str) -> bool:
    """Whether a reader would not see the character, or it changes how others are shown."""
    if letter in _PLAIN or (" " <= letter <= "~"):
        return False
    return (
        unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
        or letter in "\u00a0\u3164\u115f\u1160"
    )


@lru_cache(maxsize=4096)
def _shown(letter: str) -> Markup:
    if not hidden(letter):
        return escape(letter)
    name = unicodedata.name(letter, "control character")
    return Markup('<span class="hidden" title="{}">U+{}</span>').format(name.lower(), f"{ord(letter):04X}")


def cut(text: str, *, whole: bool) -> tuple[str, int]:
    """The text without the ends of long lines and without its last lines, and how many characters are left out."""
    if whole:
        return text, 0
    lines = text.split("\n")
    shown = "\n".join(line[:LONGEST_LINE] for line in lines[:MOST_LINES])
    return shown, len(text) - len(shown)


def plain(text: str) -> str:
    """The text for places that take no markup, such as a tooltip: hidden characters by their number."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"<U+{ord(letter):04X}>" if hidden(letter) else letter for letter in text)
