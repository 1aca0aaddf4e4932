"""The load generator: clicks of generated users, the same for the same seed."""

from collections.abc import Callable, Iterator

from contracts.records import UserClick
from servicekit.process.load import LoadOptions, id_choice, key_choice


def clicks(load: LoadOptions, now_ms: Callable[[], int]) -> Iterator[tuple[str, UserClick]]:
    """Yield the clicks of a load with their users, without end. Everything but their times follows from the seed."""
    user_of, id_of = key_choice(load.keys, load.skew, load.seed), id_choice(load.seed)
    while True:
        user = user_of()
        yield (user, UserClick(id=str(id_of()), user_id=user, url=f"https://example.org/{user}", at=now_ms()))
