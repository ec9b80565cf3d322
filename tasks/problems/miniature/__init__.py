"""The embedded task: generated stdin/stdout problems in plain English, and programs for them, right and wrong.

A problem is a composition: a source of values, perhaps a filter, perhaps a map, a reduction. Every second operation has
one fixed other operation that it is confused with; a wrong program is a right program for the confused composition.
"""

from tasks.problems.miniature.generate import generate
from tasks.problems.miniature.writer import corpus, write

__all__ = ["corpus", "generate", "write"]
