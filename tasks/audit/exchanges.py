"""Changes of a whole test that keep most of what it has: lines or columns exchanged, all letters moved alike."""

from __future__ import annotations

import random
import string

from tasks.audit.layout import Document, Layout, Line

CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)


def exchanged(layout: Layout, document: Document, rng: random.Random) -> Document:
    """The document with two lines of the same number of tokens exchanged, or two columns in all of these lines.

    What lines or columns hold stays, and so does much of what makes a grid right. Unchanged without two such lines.
    """
    lines = [part.roles for part in layout.parts if isinstance(part, Line)]
    first = rng.choice(lines) if lines else ()
    alike = [roles for roles in lines if len(roles) == len(first)]
    changed = list(document)
    if len(alike) < 2:
        return changed
    if rng.random() < 0.5 or len(first) < 2:
        pairs = list(zip(*rng.sample(alike, 2), strict=True))
    else:
        one, other = rng.sample(range(len(first)), 2)
        pairs = [(roles[one], roles[other]) for roles in alike]
    for a, b in pairs:
        changed[a], changed[b] = document[b], document[a]
    return changed


def shifted(text: str, rng: random.Random) -> str:
    """The text with every letter moved by one number of places, round its class: `xyz` by 2 is `zab`."""
    places = rng.randint(1, 25)
    for letters in CLASSES:
        moved = places % len(letters)
        text = text.translate(str.maketrans(letters, letters[moved:] + letters[:moved]))
    return text
