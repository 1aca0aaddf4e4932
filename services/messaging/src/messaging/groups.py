"""The streams, the four groups that work on them, and the flow that finds spammers.

`messages` and `blocks` are keyed by the sender. So the row with the blocks of a sender is in the partition of the
sender's messages, and the filter joins it locally. The output of the filter is keyed by the recipient, who is the key of
the feeds: messages are repartitioned once, by the filter.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from contracts.records import (
    BLOCK,
    BLOCKED,
    FEED,
    MESSAGE,
    MESSAGE_COUNTS,
    TRAFFIC,
    TRANSLATION,
    VERDICT,
    Block,
    Blocked,
    Feed,
    Message,
    MessageCounts,
    Translation,
    Verdict,
)
from messaging import domain
from streamtable import (
    Avro,
    Context,
    Group,
    Input,
    Join,
    Lookup,
    Once,
    OnError,
    Output,
    Persist,
    State,
    Stream,
    String,
)
from streamtable.flow import Flow, Session, Windowed

MESSAGES: Final[Stream[str, Message]] = Stream("messages", key=String(), value=Avro(MESSAGE))
"""The messages of users, keyed by the sender."""

MESSAGES_FILTERED: Final[Stream[str, Message]] = Stream(
    "messages-filtered", key=String(), value=Avro(MESSAGE)
)
"""The filtered messages for the feeds, keyed by the recipient."""

BLOCKS: Final[Stream[str, Block]] = Stream("blocks", key=String(), value=Avro(BLOCK))
"""Blocks and their removals, keyed by the blocked sender."""

TRANSLATIONS: Final[Stream[str, Translation]] = Stream("translations", key=String(), value=Avro(TRANSLATION))
"""The replacements of words, keyed by the case-folded word."""


def keep_block(ctx: Context[str, Blocked], block: Block) -> None:
    """Update the row with the blocks of the sender."""
    row = domain.after_block(ctx.value, block)
    if row is None:
        ctx.delete()
    else:
        ctx.set(row)


BLOCKER: Final = Group(
    "blocker", Input(BLOCKS, keep_block, on_error=OnError.DEAD_LETTER), Persist(Avro(BLOCKED))
)


def keep_translation(ctx: Context[str, str], translation: Translation) -> None:
    """Update the replacement of the word."""
    if translation["replacement"] is None:
        ctx.delete()
    else:
        ctx.set(translation["replacement"])


TRANSLATOR: Final = Group(
    "translator", Input(TRANSLATIONS, keep_translation, on_error=OnError.DEAD_LETTER), Persist(Avro("string"))
)


def let_through(ctx: Context[str, None], message: Message) -> None:
    """Drop blocked messages, replace words in the others, and send them keyed by the recipient."""
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
    """Add the message to the recipient's feed."""
    feed = domain.with_message(ctx.value, message)
    if feed is not None:
        ctx.set(feed)


def collector(name: str) -> Group[str, Feed]:
    """Return the group of this name; a second version of it has a table of its own."""
    return Group(name, Input(MESSAGES_FILTERED, collect, on_error=OnError.DEAD_LETTER), Persist(Avro(FEED)))


COLLECTOR: Final = collector("collector")


SESSIONS: Final = Session(timedelta(minutes=5), grace=timedelta(minutes=1))
"""Sessions by event time: a session of a user ends after five minutes without a message from or to the user."""
LAST_VERDICT: Final[State[str, Verdict]] = State("last", key=String(), value=Avro(VERDICT))
"""The last verdict on a user's latest session, until it closes."""


def give_verdict(ctx: Context[str, None], verdict: Verdict) -> None:
    """Emit a block when a user becomes a spammer, and its removal when the user no longer is one."""
    table = ctx.table(LAST_VERDICT)
    old = table.get(ctx.key)
    new = domain.after_verdict(old, verdict)
    if new is None:
        table.delete(ctx.key)
    else:
        table.put(ctx.key, new)
    spammer = domain.is_blocking(new)
    if spammer != domain.is_blocking(old):
        ctx.emit(BLOCKS, ctx.key, Block(by=None, blocked=spammer))


def detector(name: str) -> Flow:
    """Return the flow of that name: it counts the messages that users send and receive in a session, and blocks spammers.

    A message counts for its sender through a topic too, although it is keyed by the sender already: otherwise, in a backlog,
    sent messages would be counted long before received ones, and more users would look like spammers for a while.
    """
    flow = Flow(name, on_error=OnError.DEAD_LETTER)
    # As the feeds, which recognise a repeat among the messages to one recipient: the id is chosen by the sender.
    once: Once[Message] = Once(
        by=lambda message: f"{message['id']} {message['recipient']}", within=timedelta(hours=24)
    )
    messages = flow.stream(MESSAGES, time=lambda message: message["at"], once=once)
    sessions = (
        messages.flat_map(lambda _, message: domain.both_sides(message))
        .repartition("by-user", key=String(), value=Avro(TRAFFIC))
        .group_by_key()
        .window(SESSIONS)
        .aggregate("sessions", domain.no_messages, domain.counted, domain.counted, value=Avro(MESSAGE_COUNTS))
    )
    # Merged before they are written: the end of a session must not overtake its earlier verdicts.
    verdicts = (
        sessions.changes().flat_map(_verdict_on_open).merge(sessions.final().flat_map(_verdict_on_closed))
    )
    verdicts.repartition("verdicts", key=String(), value=Avro(VERDICT)).process(
        give_verdict, LAST_VERDICT, Output(BLOCKS)
    )
    return flow


def _verdict_on_open(session: Windowed[str], counts: MessageCounts | None) -> Iterator[tuple[str, Verdict]]:
    if counts is not None:  # None: it was merged into a longer session
        yield from domain.verdicts(session.key, session.end_ms, counts, closed=False)


def _verdict_on_closed(session: Windowed[str], counts: MessageCounts) -> Iterator[tuple[str, Verdict]]:
    yield from domain.verdicts(session.key, session.end_ms, counts, closed=True)


DETECTOR: Final = detector("detector")

_ALL: Final[tuple[Group[str, Any], ...]] = (FILTER, COLLECTOR, BLOCKER, TRANSLATOR, *DETECTOR.groups)
GROUPS: Final = {group.name: group for group in _ALL}
