"""The streams, and the five groups that work on them.

`messages` and `blocks` are keyed by the sender. So the row that says who has blocked a sender is in the partition of
the sender's messages, and the filter joins it without asking anybody. What the filter lets through is keyed by the
recipient, because that is whose feed it goes to: the partition changes once, on the way through the filter.
"""

from datetime import timedelta
from typing import Final

from contracts.records import (
    BLOCK,
    BLOCKED,
    FEED,
    MESSAGE,
    MESSAGE_COUNTS,
    TRAFFIC,
    TRANSLATION,
    Block,
    Blocked,
    Feed,
    Message,
    MessageCounts,
    Traffic,
    Translation,
)
from messaging import domain
from streamtable import (
    Avro,
    Context,
    Group,
    Input,
    Join,
    Lookup,
    Loop,
    Once,
    OnError,
    Output,
    Persist,
    Stream,
    String,
)

MESSAGES: Final[Stream[str, Message]] = Stream("messages", key=String(), value=Avro(MESSAGE))
"""What users write, keyed by the sender."""

MESSAGES_FILTERED: Final[Stream[str, Message]] = Stream(
    "messages-filtered", key=String(), value=Avro(MESSAGE)
)
"""What goes into feeds, keyed by the recipient."""

BLOCKS: Final[Stream[str, Block]] = Stream("blocks", key=String(), value=Avro(BLOCK))
"""Blocks, and those that are taken back, keyed by the sender whom they are about."""

TRANSLATIONS: Final[Stream[str, Translation]] = Stream("translations", key=String(), value=Avro(TRANSLATION))
"""What replaces words, keyed by the folded word."""

DETECTOR_LOOP: Final[Stream[str, Traffic]] = Stream("detector-loop", key=String(), value=Avro(TRAFFIC))
"""What to add to the counts of a user: a message is read at its sender's key, and counts for its recipient too."""


def keep_block(ctx: Context[str, Blocked], block: Block) -> None:
    """Keep who blocks the sender."""
    row = domain.after_block(ctx.value, block)
    if row is None:
        ctx.delete()
    else:
        ctx.set(row)


BLOCKER: Final = Group(
    "blocker", Input(BLOCKS, keep_block, on_error=OnError.DEAD_LETTER), Persist(Avro(BLOCKED))
)


def keep_translation(ctx: Context[str, str], translation: Translation) -> None:
    """Keep what replaces the word."""
    if translation["replacement"] is None:
        ctx.delete()
    else:
        ctx.set(translation["replacement"])


TRANSLATOR: Final = Group(
    "translator", Input(TRANSLATIONS, keep_translation, on_error=OnError.DEAD_LETTER), Persist(Avro("string"))
)


def let_through(ctx: Context[str, None], message: Message) -> None:
    """Drop what the recipient does not want, replace words in the rest, and send it to the recipient's key."""
    if domain.is_blocked(message, ctx.join(BLOCKER.table)):
        return
    text = domain.translated(message["text"], lambda word: ctx.lookup(TRANSLATOR.table, word))
    filtered: Message = {**message, "text": text}
    ctx.emit(MESSAGES_FILTERED, message["recipient"], filtered)


FILTER: Final = Group(
    "filter",
    Input(MESSAGES, let_through, on_error=OnError.DEAD_LETTER),
    Join(BLOCKER.table),
    Lookup(TRANSLATOR.table),  # any word can be in any message, so each process has a copy of the whole table
    Output(MESSAGES_FILTERED),
)


def collect(ctx: Context[str, Feed], message: Message) -> None:
    """Put the message into the recipient's feed."""
    feed = domain.with_message(ctx.value, message)
    if feed is not None:
        ctx.set(feed)


def collector(name: str) -> Group[str, Feed]:
    """The group of that name; a second version of it, beside the first, has a table of its own."""
    return Group(name, Input(MESSAGES_FILTERED, collect, on_error=OnError.DEAD_LETTER), Persist(Avro(FEED)))


COLLECTOR: Final = collector("collector")


def count_both(ctx: Context[str, MessageCounts], message: Message) -> None:
    """Have a message counted for both sides.

    For the sender by the loop too, though the row is at hand: else, in a backlog, what users send would be counted long
    before what they receive, and more of them would look like spammers for a while.
    """
    sender, recipient = message["sender"], message["recipient"]
    if sender != recipient:  # or a spammer would only have to write to themselves
        ctx.loopback(DETECTOR_LOOP, sender, Traffic(sent=1, received=0))
        ctx.loopback(DETECTOR_LOOP, recipient, Traffic(sent=0, received=1))


def count(ctx: Context[str, MessageCounts], traffic: Traffic) -> None:
    """Count, and emit a block when a user has become a spammer, or the end of it when that was wrong."""
    old, new = ctx.value, domain.counted(ctx.value, traffic)
    ctx.set(new)
    if new["spammer"] != (old is not None and old["spammer"]):
        ctx.emit(BLOCKS, ctx.key, Block(by=None, blocked=new["spammer"]))


DETECTOR: Final = Group(
    "detector",
    Input(
        MESSAGES,
        count_both,
        once=Once(by="id", within=timedelta(hours=24)),  # feeds know their messages' ids
        on_error=OnError.DEAD_LETTER,
    ),
    Loop(DETECTOR_LOOP, count, on_error=OnError.DEAD_LETTER),
    Output(BLOCKS),
    Persist(Avro(MESSAGE_COUNTS)),
)

GROUPS: Final = {group.name: group for group in (FILTER, COLLECTOR, BLOCKER, TRANSLATOR, DETECTOR)}
