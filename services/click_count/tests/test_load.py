from itertools import islice

from click_count.load import clicks
from contracts.records import UserClick
from servicekit.process.load import LoadOptions


def made(load: LoadOptions) -> list[tuple[str, UserClick]]:
    return list(islice(clicks(load, lambda: 5), 200))


def test_everything_but_the_time_follows_from_the_seed() -> None:
    assert made(LoadOptions(seed=1, skew=1.0)) == made(LoadOptions(seed=1, skew=1.0))
    identities = {click["id"] for _, click in made(LoadOptions(seed=1))}
    assert len(identities) == 200
    assert identities.isdisjoint(click["id"] for _, click in made(LoadOptions(seed=2)))


def test_clicks_are_of_the_users_of_the_load() -> None:
    records = made(LoadOptions(keys=7))
    assert {user for user, _ in records} == {f"user-{n}" for n in range(1, 8)}
    assert all(click["user_id"] == user and click["at"] == 5 for user, click in records)
