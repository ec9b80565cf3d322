"""The base of every error that `tasks` and `flows` raise for people."""

from __future__ import annotations


class CodedError(Exception):
    """States what is wrong, with which one, and the command that repairs it.

    `code`: a stable name of the fault, for programs and tests; the name of the class where none is given. The wording
    of a message may change, its code may not.
    """

    def __init__(self, *message: object, code: str = "") -> None:
        super().__init__(*message)
        self.code = code or type(self).__name__
