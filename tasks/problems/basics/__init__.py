"""The built-in set `basics`: small tasks in plain English, as a first programming course sets them.

The tasks lie in `train/*.toml` and `evaluation/*.toml`, as tables [family.task]; a family is in one split as a whole.
Each task becomes two problems: a program that reads standard input, and a function.
"""

from tasks.problems.basics.load import problems, tasks
from tasks.problems.basics.task import Task

__all__ = ["Task", "problems", "tasks"]
