"""The two stages as micro-batches, which connect Kafka, the central store and the domain logic."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar, cast

from contracts.event_time import MAX_AHEAD_SECONDS
from contracts.records import REACH_STATE, TWEETED, Follow, ReachFact, ReachState, Tweet, Tweeted
from microbatch import Batch, MicroBatch, Record, Rows, Send
from streamtable import Avro, Json, OnError
from tweet_reach import topics
from tweet_reach.domain.authors import AuthorRows, fold_authors
from tweet_reach.domain.pieces import Piece
from tweet_reach.domain.reaches import ReachRows, fold_reaches
from tweet_reach.domain.rules import fault_of_fact, fault_of_follow, fault_of_tweet

if TYPE_CHECKING:
    from streamtable.base.ports import Codec

V = TypeVar("V")


def _words(row: Tweeted) -> dict[str, str]:
    return {} if row["url"] is None else {"text": f"{row['text']} {row['url']}"}


TWEETED_ROWS: Final[Rows[Tweeted]] = Rows("tweeted", value=Avro(TWEETED), fields=_words)
PIECES: Final[Rows[Piece]] = Rows("pieces", value=cast("Codec[Piece]", Json()))
STATES: Final[Rows[ReachState]] = Rows("urls", value=Avro(REACH_STATE))

COST_MAX: Final = 400_000
FACT_BYTES_MAX: Final = 2 << 20
"""It limits a batch of facts to about 150,000 followers, each maybe in another row."""


def authors_stage(
    group: str = "tweet-reach",
    max_wait: float = 5.0,
    cost_max: int = COST_MAX,
    max_ahead_seconds: float = MAX_AHEAD_SECONDS,
) -> MicroBatch:
    """The first stage: `<group>-authors`, from tweets and followers to facts.

    Args:
        group: The prefix of the names of groups and topics.
        max_wait: The seconds after a batch's first record when the batch is complete.
        cost_max: The maximum cost of a batch; see `fold_authors`.
        max_ahead_seconds: How far an event's time may be ahead of its record's timestamp; others become dead
            letters.
    """
    facts, work = topics.facts(group), topics.work(group)

    def tweet_fault(one: Record[str, Tweet]) -> str | None:
        return fault_of_tweet(one.key, one.value, one.timestamp_ms, max_ahead_seconds)

    def follow_fault(one: Record[str, Follow]) -> str | None:
        return fault_of_follow(one.key, one.value, one.timestamp_ms, max_ahead_seconds)

    def process(batch: Batch, send: Send) -> None:
        rows = AuthorRows(batch.rows(TWEETED_ROWS), batch.rows(PIECES))
        output = fold_authors(
            [one.value for one in _sound(batch, batch.of(topics.TWEETS), tweet_fault)],
            [one.value for one in _sound(batch, batch.of(topics.FOLLOWS), follow_fault)],
            [(one.key, one.value) for one in batch.of(work)],
            rows,
            cost_max=cost_max,
        )
        for url, fact in output.facts:
            send(facts, url, fact)
        for author, task in output.tasks:
            send(work, author, task)

    return MicroBatch(
        f"{group}-authors",
        inputs=[topics.TWEETS, topics.FOLLOWS, work],
        process=process,
        outputs=[facts, work],
        rows=[TWEETED_ROWS, PIECES],
        max_records=10_000,
        max_wait=max_wait,
        on_error=OnError.DEAD_LETTER,
    )


def urls_stage(group: str = "tweet-reach", max_wait: float = 5.0) -> MicroBatch:
    """The second stage: `<group>-urls`, from facts to the table.

    Args:
        group: The prefix of the names of groups and topics.
        max_wait: The seconds after a batch's first record when the batch is complete.
    """
    facts, rebuilds, changes = topics.facts(group), topics.rebuilds(group), topics.changes(group)

    def fact_fault(one: Record[str, ReachFact]) -> str | None:
        return fault_of_fact(one.key, one.value)

    def process(batch: Batch, send: Send) -> None:
        reached = fold_reaches(
            [(one.key, one.value) for one in _sound(batch, batch.of(facts), fact_fault)],
            [(one.key, one.value) for one in batch.of(rebuilds)],
            ReachRows(batch.rows(STATES), batch.rows(PIECES)),
        )
        for url, row in reached.rows.items():
            send(changes, url, row)
        for url, rebuild in reached.rebuilds:
            send(rebuilds, url, rebuild)

    return MicroBatch(
        f"{group}-urls",
        inputs=[facts, rebuilds],
        process=process,
        outputs=[changes, rebuilds],
        rows=[STATES, PIECES],
        max_records=10_000,
        max_bytes=FACT_BYTES_MAX,
        max_wait=max_wait,
        on_error=OnError.DEAD_LETTER,
    )


def _sound(
    batch: Batch, records: Iterable[Record[str, V]], fault_of: Callable[[Record[str, V]], str | None]
) -> list[Record[str, V]]:
    """Return the valid records; the others go to the dead letters."""
    kept = []
    for record in records:
        fault = fault_of(record)
        if fault is None:
            kept.append(record)
        else:
            batch.reject(record, fault)
    return kept
