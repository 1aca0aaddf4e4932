"""What the roles decide, without any input or output: feeds, blocks, replaced words, who is a spammer."""

import re
from collections.abc import Callable, Iterator
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
    """The feed with one message more, without the oldest if there are too many. None: it has that message already."""
    messages = feed["messages"] if feed else []
    if any(each["id"] == message["id"] for each in messages):
        return None
    return Feed(messages=[*messages, message][-FEED_MESSAGES:])


def is_blocked(message: Message, blocked: Blocked | None) -> bool:
    """Whether a message is to be dropped; `blocked` is the row of its sender."""
    return blocked is not None and (blocked["everybody"] or message["recipient"] in blocked["by"])


def after_block(blocked: Blocked | None, block: Block) -> Blocked | None:
    """Return the sender's row after a block or its end. None: no user blocks them any more.

    A row must stay small: a sender whom more than `BLOCKERS_MAX` users have blocked is blocked for everybody.
    """
    everybody, by = (blocked["everybody"], set(blocked["by"])) if blocked else (False, set())
    who = block["by"]
    if who is None:
        everybody = block["blocked"]
    elif not block["blocked"]:
        by.discard(who)
    elif len(by | {who}) > BLOCKERS_MAX:
        everybody = True
    else:
        by.add(who)
    return Blocked(everybody=everybody, by=sorted(by)) if everybody or by else None


def folded(word: str) -> str:
    """A word as the key of its replacement: 'Straße' and 'STRASSE' are one.

    Raises:
        ValueError: it is not one word of letters, digits and underscores; the message does not quote it.
    """
    if len(word) > WORD_CHARACTERS_MAX or not _WORDS.fullmatch(word):
        raise ValueError(f"must be one word of 1 to {WORD_CHARACTERS_MAX} letters, digits and underscores")
    return word.casefold()


def translated(text: str, replacement: Callable[[str], str | None]) -> str:
    """The text with words replaced, cut to what a text may be; what replaces a word is not looked at again.

    Args:
        text: of a message.
        replacement: of a folded word; None: it stays.
    """

    def replaced(found: re.Match[str]) -> str:
        new = replacement(found[0].casefold())
        return found[0] if new is None else new

    made = _WORDS.sub(replaced, text)
    return made if len(made) <= TEXT_CHARACTERS_MAX else f"{made[: TEXT_CHARACTERS_MAX - 1]}…"


def both_sides(message: Message) -> Iterator[tuple[str, Traffic]]:
    """What a message adds to the counts of its sender and its recipient; nothing if they are the same user."""
    sender, recipient = message["sender"], message["recipient"]
    if sender != recipient:  # or a spammer would only have to write to themselves
        yield sender, Traffic(sent=1, received=0)
        yield recipient, Traffic(sent=0, received=1)


def no_messages() -> MessageCounts:
    """The counts of a user at the beginning of a session."""
    return MessageCounts(sent=0, received=0, spammer=False)


def counted(counts: MessageCounts, traffic: Traffic) -> MessageCounts:
    """The counts of a user with what is to be added, and what they say of the user: the same in whatever order."""
    sent, received = counts["sent"] + traffic["sent"], counts["received"] + traffic["received"]
    return MessageCounts(sent=sent, received=received, spammer=is_spammer(sent, received))


def is_spammer(sent: int, received: int) -> bool:
    """Return whether a user writes to others who do not write back: 20 messages or more, over 5 for each one received."""
    return sent >= SPAM_SENT_MIN and sent > SPAM_RATIO * received


def verdicts(user: str, end_ms: int, counts: MessageCounts, *, closed: bool) -> Iterator[tuple[str, Verdict]]:
    """The verdict on the user of a session; none if the user has sent too few messages to have been a spammer in it.

    Args:
        user: whose session it is.
        end_ms: the time of its last message.
        counts: of the session, in which `sent` never falls.
        closed: the session has closed, so the user is not blocked for it any more.
    """
    if counts["sent"] >= SPAM_SENT_MIN:
        yield user, Verdict(session_end=end_ms, spammer=counts["spammer"] and not closed, closed=closed)


def after_verdict(last: Verdict | None, verdict: Verdict) -> Verdict | None:
    """Return the verdict on a user's latest session after one more. None: that session has closed.

    The verdict on an earlier session, which has closed late or got a late message, changes nothing.
    """
    if last is not None and verdict["session_end"] < last["session_end"]:
        return last
    return None if verdict["closed"] else verdict


def is_blocking(verdict: Verdict | None) -> bool:
    """Whether a user is blocked after this verdict; None: there is none."""
    return verdict is not None and verdict["spammer"]


def conversations(
    user_of: Callable[[], str], spammers: int, spam_share: float, seed: int
) -> Iterator[tuple[str, str, str]]:
    """Sender, recipient and text of made-up messages without end, the same ones for the same arguments.

    Args:
        user_of: chooses a user.
        spammers: how many write besides the users, to any of them, and are never written to: `spammer-1`, ...
        spam_share: of all messages, from 0 to 1.
        seed: of the random choices.
    """
    random = Random(seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    while True:
        if spammers and random.random() < spam_share:
            yield f"spammer-{random.randint(1, spammers)}", user_of(), random.choice(_OFFERS)
        else:
            yield user_of(), user_of(), random.choice(_PHRASES)
