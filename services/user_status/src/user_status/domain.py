"""The domain logic of user statuses, without any input or output: the order of updates, and the detection of changes."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from contracts.records import UserStatus, UserStatusChange, UserStatusUpdate

STATUS_CHARACTERS_MAX: Final = 280
_MADE_UP: Final = (
    "at work",
    "at lunch",
    "on holiday",
    "back soon",
    "do not disturb",
    "listening to music 🎵",
)


def is_later(update: UserStatusUpdate, row: UserStatus | None) -> bool:
    """Return whether an update is later than the one that set the row.

    Updates are ordered by their event time, then by id, by code points, then by text, in case an id is used twice. So
    all orders of the same updates lead to the same status, and a repeated update is never later than itself.
    """
    if row is None:
        return True
    return (update["at"], update["id"], update["status"]) > (row["at"], row["id"], row["status"])


def row_of(update: UserStatusUpdate, clicks: int | None) -> UserStatus:
    """Return the row that an update sets; `clicks` None: none were counted yet."""
    return UserStatus(status=update["status"], at=update["at"], id=update["id"], clicks=clicks or 0)


def change_of(old: UserStatus | None, new: UserStatus) -> UserStatusChange | None:
    """Return the change that a new row makes. None: the status is the same, only later, which is no change."""
    before = None if old is None else old["status"]
    if before == new["status"]:
        return None
    return UserStatusChange(id=new["id"], old=before, new=new["status"], clicks=new["clicks"], at=new["at"])


def made_up_statuses(seed: int) -> Callable[[], str]:
    """Return a function that generates statuses for a load, the same ones for the same seed."""
    random = Random(seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    return lambda: random.choice(_MADE_UP)


def joined(
    statuses: Iterator[tuple[str, UserStatus]], clicks: Iterator[tuple[str, int]]
) -> Iterator[tuple[str, UserStatus | None, int | None]]:
    """Yield the users of either table with their rows in both; input and output are in the order of the ids' UTF-8 bytes."""
    status, count = next(statuses, None), next(clicks, None)
    while status is not None or count is not None:
        if count is None or (status is not None and status[0].encode() < count[0].encode()):
            assert status is not None
            yield status[0], status[1], None
            status = next(statuses, None)
        elif status is None or count[0] != status[0]:
            yield count[0], None, count[1]
            count = next(clicks, None)
        else:
            yield status[0], status[1], count[1]
            status, count = next(statuses, None), next(clicks, None)
