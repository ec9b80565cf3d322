"""The embedded task: generated stdin/stdout problems in plain English, and programs for them, right and wrong.

A problem is a composition: a source of values, some filters and maps, a reduction. An operation may have one fixed
other operation that it is confused with; a wrong program is a right program for the confused composition. There are
two vocabularies: the small one, in which every second operation is confused and a problem has at most one filter and
one map, and the wide one, with more of everything and as many steps as one asks for.
"""

from tasks.problems.miniature.generate import generate
from tasks.problems.miniature.writer import corpus, write

__all__ = ["corpus", "generate", "write"]
