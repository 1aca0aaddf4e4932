"""Folders of state, which hold the rows of users: only their owner may look into them."""

from pathlib import Path
from typing import Final

_OWNER_ONLY: Final = 0o700


def make_private(path: Path) -> None:
    """Make a folder, and those above it that are not there, for its owner alone. Those that are there stay as they are."""
    if not path.is_dir():
        make_private(path.parent)
        path.mkdir(mode=_OWNER_ONLY, exist_ok=True)
