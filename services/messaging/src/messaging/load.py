"""The load generator: messages with a few spammers among the senders, the same for the same seed."""

from collections.abc import Callable, Iterator
from typing import Final

from contracts.records import Message
from messaging.domain import conversations
from servicekit.process.load import LoadOptions, id_choice, key_choice

SPAM_SHARE: Final = 0.2
"""The share of the spammers' messages in all messages."""


def messages(load: LoadOptions, spammers: int, now_ms: Callable[[], int]) -> Iterator[tuple[str, Message]]:
    """Yield the messages of a load with their senders, without end. Everything but their times follows from the seed."""
    user_of, id_of = key_choice(load.keys, load.skew, load.seed), id_choice(load.seed)
    for sender, recipient, text in conversations(user_of, spammers, SPAM_SHARE, load.seed):
        yield (sender, Message(id=str(id_of()), sender=sender, recipient=recipient, text=text, at=now_ms()))
