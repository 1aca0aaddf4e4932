"""The load generator: statuses of generated users, the same for the same seed."""

from collections.abc import Callable, Iterator

from contracts.records import UserStatusUpdate
from servicekit.process.load import LoadOptions, id_choice, key_choice
from user_status.domain import made_up_statuses


def updates(load: LoadOptions, now_ms: Callable[[], int]) -> Iterator[tuple[str, UserStatusUpdate]]:
    """Yield the updates of a load with their users, without end. Everything but their times follows from the seed."""
    user_of, id_of = key_choice(load.keys, load.skew, load.seed), id_choice(load.seed)
    status_of = made_up_statuses(load.seed)
    while True:
        user = user_of()
        yield user, UserStatusUpdate(id=str(id_of()), user_id=user, status=status_of(), at=now_ms())
