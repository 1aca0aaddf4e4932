"""The domain logic of the roles, without any input or output: feeds, blocks, word replacement, spam detection."""

import re
from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import Final

from contracts.records import Block, Blocked, Feed, Message, MessageCounts, Traffic, Verdict

FEED_MESSAGES: Final = 50
BLOCKERS_MAX: Final = 500
SPAM_SENT_MIN: Final = 20
SPAM_RATIO: Final = 5
TEXT_CHARACTERS_MAX: Final = 1000
WORD_CHARACTERS_MAX: Final = 64
_WORDS: Final = re.compile(r"\w+")
_PHRASES: Final = (
    "see you at lunch",
    "how is the weather?",
    "did you see this?",
    "the build is green",
    "thanks 🎉",
)
_OFFERS: Final = ("buy one, get two!", "you have won a prize", "free coins for you")


def with_message(feed: Feed | None, message: Message) -> Feed | None:
    """Return the feed with one more message, without the oldest if there are too many. None: it has that message already."""
    messages = feed["messages"] if feed else []
    if any(each["id"] == message["id"] for each in messages):
        return None
    return Feed(messages=[*messages, message][-FEED_MESSAGES:])


def is_blocked(message: Message, blocked: Blocked | None) -> bool:
    """Return whether a message must be dropped; `blocked` is the row of its sender."""
    if blocked is None:
        return False
    return blocked["everybody"] or message["recipient"] in blocked["by"] or _too_many(blocked["by"])


def after_block(blocked: Blocked | None, block: Block) -> Blocked | None:
    """Return the sender's row after a block or its end. None: no user blocks them any more.

    To limit the size of a row, a sender whom more than `BLOCKERS_MAX` users have blocked is blocked for all from then on, since
    the row does not say who else has: neither users who take their blocks back nor the detector end that.
    """
    everybody, by = (blocked["everybody"], set(blocked["by"])) if blocked else (False, set())
    who = block["by"]
    if who is None:
        everybody = block["blocked"]
    elif block["blocked"] and not _too_many(by):
        by.add(who)
    elif not _too_many(by):
        by.discard(who)
    return Blocked(everybody=everybody, by=sorted(by)) if everybody or by else None


def _too_many(by: Collection[str]) -> bool:
    return len(by) > BLOCKERS_MAX


def folded(word: str) -> str:
    """Return the case-folded word, the key of its replacement: 'Straße' and 'STRASSE' are the same.

    Raises:
        ValueError: It is not one word of letters, digits and underscores; the message does not quote it.
    """
    if len(word) > WORD_CHARACTERS_MAX or not _WORDS.fullmatch(word):
        raise ValueError(f"must be one word of 1 to {WORD_CHARACTERS_MAX} letters, digits and underscores")
    return word.casefold()


def translated(text: str, replacement: Callable[[str], str | None]) -> str:
    """Return the text with words replaced, cut to the maximum length; replacements are not replaced again.

    Args:
        text: The text of a message.
        replacement: Returns the replacement of a folded word; None: the word stays.
    """

    def replaced(found: re.Match[str]) -> str:
        new = replacement(found[0].casefold())
        return found[0] if new is None else new

    made = _WORDS.sub(replaced, text)
    return made if len(made) <= TEXT_CHARACTERS_MAX else f"{made[: TEXT_CHARACTERS_MAX - 1]}…"


def both_sides(message: Message) -> Iterator[tuple[str, Traffic]]:
    """Yield the additions to the counts of the sender and the recipient; none if they are the same user."""
    sender, recipient = message["sender"], message["recipient"]
    if sender != recipient:  # else a spammer could avoid detection by writing to themselves
        yield sender, Traffic(sent=1, received=0)
        yield recipient, Traffic(sent=0, received=1)


def no_messages() -> MessageCounts:
    """Return the counts of a user at the beginning of a session."""
    return MessageCounts(sent=0, received=0, spammer=False)


def counted(counts: MessageCounts, traffic: Traffic) -> MessageCounts:
    """Return the counts of a user after an addition, and whether they are a spammer's; the order of additions has no effect."""
    sent, received = counts["sent"] + traffic["sent"], counts["received"] + traffic["received"]
    return MessageCounts(sent=sent, received=received, spammer=is_spammer(sent, received))


def is_spammer(sent: int, received: int) -> bool:
    """Return whether a user writes to others who do not write back: at least 20 messages, and more than 5 for each one received."""
    return sent >= SPAM_SENT_MIN and sent > SPAM_RATIO * received


def verdicts(user: str, end_ms: int, counts: MessageCounts, *, closed: bool) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdict on the user of a session; none if the user has sent too few messages to be a spammer in it.

    Args:
        user: The user of the session.
        end_ms: The time of its last message.
        counts: The counts of the session; `sent` never decreases.
        closed: Whether the session has closed, which ends a block that it caused.
    """
    if counts["sent"] >= SPAM_SENT_MIN:
        yield user, Verdict(session_end=end_ms, spammer=counts["spammer"] and not closed, closed=closed)


def after_verdict(last: Verdict | None, verdict: Verdict) -> Verdict | None:
    """Return the verdict on a user's latest session after one more. None: that session has closed.

    The verdict on an earlier session, which has closed late or received a late message, changes nothing.
    """
    if last is not None and verdict["session_end"] < last["session_end"]:
        return last
    return None if verdict["closed"] else verdict


def is_blocking(verdict: Verdict | None) -> bool:
    """Return whether a user is blocked after this verdict; None: there is none."""
    return verdict is not None and verdict["spammer"]


def conversations(
    user_of: Callable[[], str], spammers: int, spam_share: float, seed: int
) -> Iterator[tuple[str, str, str]]:
    """Yield sender, recipient and text of generated messages without end, the same ones for the same arguments.

    Args:
        user_of: Chooses a user.
        spammers: The number of further senders `spammer-1`, ..., who write to any user and receive no messages.
        spam_share: The share of their messages in all messages, 0 to 1.
        seed: The seed of the random choices.
    """
    random = Random(seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    while True:
        if spammers and random.random() < spam_share:
            yield f"spammer-{random.randint(1, spammers)}", user_of(), random.choice(_OFFERS)
        else:
            yield user_of(), user_of(), random.choice(_PHRASES)
