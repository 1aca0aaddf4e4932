from itertools import islice

from contracts.records import UserStatusUpdate
from servicekit.process.load import LoadOptions
from user_status.load import updates


def made(load: LoadOptions) -> list[tuple[str, UserStatusUpdate]]:
    return list(islice(updates(load, lambda: 5), 200))


def test_everything_but_the_time_follows_from_the_seed() -> None:
    assert made(LoadOptions(seed=1, skew=1.0)) == made(LoadOptions(seed=1, skew=1.0))
    identities = {update["id"] for _, update in made(LoadOptions(seed=1))}
    assert len(identities) == 200
    assert identities.isdisjoint(update["id"] for _, update in made(LoadOptions(seed=2)))


def test_updates_are_of_the_users_of_the_load() -> None:
    records = made(LoadOptions(keys=7))
    assert {user for user, _ in records} == {f"user-{n}" for n in range(1, 8)}
    assert all(update["user_id"] == user and update["at"] == 5 for user, update in records)
