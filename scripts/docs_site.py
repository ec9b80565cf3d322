"""A hook of MkDocs: the pages of the repository's root join the site, with links that fit there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_config(config: Any) -> Any:
    """The decisions join the navigation, in their order."""
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{path.name}" for path in decisions]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add README, CONTRIBUTING and CHANGELOG."""
    for name, place in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=at_home(text)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links from docs/ to the pages of the root, and none to other files outside docs/."""
    up = "../" * page.file.src_uri.count("/")
    for name, place in PAGES.items():
        markdown = markdown.replace(f"]({up}../{name}", f"]({up}{place}")
    return re.sub(rf"\[([^]]+)\]\({re.escape(up)}\.\./[^)]+\)", r"\1", markdown)


def at_home(text: str) -> str:
    """A page of the root with links relative to docs/."""
    for name, place in PAGES.items():
        text = text.replace(f"]({name}", f"]({place}")
    return text.replace("](docs/", "](")
