from collections import Counter
from itertools import islice

from contracts.records import Message
from messaging.load import messages
from servicekit.process.load import LoadOptions


def made(load: LoadOptions, spammers: int = 2) -> list[tuple[str, Message]]:
    return list(islice(messages(load, spammers, lambda: 5), 500))


def test_everything_but_the_time_follows_from_the_seed() -> None:
    assert made(LoadOptions(seed=1, skew=1.0)) == made(LoadOptions(seed=1, skew=1.0))
    identities = {message["id"] for _, message in made(LoadOptions(seed=1))}
    assert len(identities) == 500
    assert identities.isdisjoint(message["id"] for _, message in made(LoadOptions(seed=2)))


def test_messages_are_keyed_by_their_senders_and_spammers_write_a_fifth_of_them() -> None:
    records = made(LoadOptions(keys=7))
    assert all(key == message["sender"] for key, message in records)
    spam = Counter(key.startswith("spammer-") for key, _ in records)[True]
    assert 70 < spam < 130
    assert not [key for key, _ in made(LoadOptions(), spammers=0) if key.startswith("spammer-")]
