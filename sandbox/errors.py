"""Errors of the sandbox.

SandboxError
├── SandboxUnavailable   no confinement can be had here; says which wall is missing and what to do
├── RunnerLost           a runner died, hung or answered nonsense; the judge replaces it and retries
└── InvalidSuite         a suite cannot be judged as written; says why
"""


class SandboxError(Exception):
    """Anything the sandbox raises.

    `code`: a stable name of the fault, for programs and tests; the name of the class where none is given.
    """

    def __init__(self, *message: object, code: str = "") -> None:
        super().__init__(*message)
        self.code = code or type(self).__name__


class SandboxUnavailable(SandboxError):
    """The machine does not give the walls the sandbox insists on."""


class RunnerLost(SandboxError):
    """A runner broke its protocol, died or went silent; no verdict follows from that."""


class InvalidSuite(SandboxError):
    """The suite cannot be judged: an unknown checker, an assert that cannot be separated, no tests."""
