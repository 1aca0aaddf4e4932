"""State folders, which hold user data: only their owner may read them."""

from pathlib import Path
from typing import Final

_OWNER_ONLY: Final = 0o700


def make_private(path: Path) -> None:
    """Create a folder, and its missing parents, with access for the owner alone. Existing ones are left as they are."""
    if not path.is_dir():
        make_private(path.parent)
        path.mkdir(mode=_OWNER_ONLY, exist_ok=True)
