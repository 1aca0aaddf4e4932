"""What a user's status means, without any input or output: which of two updates counts, and what counts as a change."""

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
    """Whether an update counts more than the one that the row comes from.

    The later one by its own time does; of two of the same time that with the greater id, by code points; and should
    an id be used twice, that with the greater text. So all orders of the same updates come to the same status,
    and a repeated update is never later than itself.
    """
    if row is None:
        return True
    return (update["at"], update["id"], update["status"]) > (row["at"], row["id"], row["status"])


def row_of(update: UserStatusUpdate, clicks: int | None) -> UserStatus:
    """The row that a kept update makes; `clicks` None: none were counted yet."""
    return UserStatus(status=update["status"], at=update["at"], id=update["id"], clicks=clicks or 0)


def change_of(old: UserStatus | None, new: UserStatus) -> UserStatusChange | None:
    """Return the change that a new row makes. None: the user said the same again, later, which is no change."""
    before = None if old is None else old["status"]
    if before == new["status"]:
        return None
    return UserStatusChange(id=new["id"], old=before, new=new["status"], clicks=new["clicks"], at=new["at"])


def made_up_statuses(seed: int) -> Callable[[], str]:
    """Make a function that invents statuses for a load, the same ones for the same seed."""
    random = Random(seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    return lambda: random.choice(_MADE_UP)


def joined(
    statuses: Iterator[tuple[str, UserStatus]], clicks: Iterator[tuple[str, int]]
) -> Iterator[tuple[str, UserStatus | None, int | None]]:
    """Users of either table with what both know of them, in the order of their ids' UTF-8 bytes, in which they come."""
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
