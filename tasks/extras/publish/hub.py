"""Pushes published folders to the Hugging Face hub, through its own client (extra `hub`).

Errors
------
NotPushed
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.errors import CodedError
from tasks.extras.publish.parts import Part


class NotPushed(CodedError):
    """The hub did not take a folder; the message says why, and what to do."""


def require_token() -> None:
    """Raise NotPushed unless a token is set; asked before anything is written."""
    from huggingface_hub import get_token

    if not get_token():
        raise NotPushed("a push needs a token of the hub: `hf auth login`, or set HF_TOKEN; --dry-run needs none")


def push(part: Part, folder: Path, *, private: bool, say: Callable[[str], None], endpoint: str | None = None) -> None:
    """Make the part's repository if there is none, and put the folder into it as one commit. Raises NotPushed.

    `endpoint`: address of the hub, its client's own where none is given.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    transport: Any = HfHubHTTPError.__bases__[0]
    kind = "dataset" if part.name == "trajectories" else "model"
    api = HfApi(endpoint)
    try:
        made = api.create_repo(part.repository, repo_type=kind, private=private, exist_ok=True)
        commit = api.upload_folder(
            folder_path=folder,
            repo_id=made.repo_id,
            repo_type=kind,
            commit_message=f"Publish the {part.name} of a run of spo-pipeline",
        )
    except (HFValidationError, OSError, ValueError, transport) as error:
        raise NotPushed(
            f"{part.repository} was not pushed ({type(error).__name__}: {str(error).splitlines()[0]}); check the name, "
            f"the token's rights and the network, then publish again: what is there already is not sent twice"
        ) from error
    say(f"{part.name}: {commit.commit_url}")
