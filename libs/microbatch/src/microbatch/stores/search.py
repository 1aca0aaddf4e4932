"""Finds rows by the fields of their committed version.

A store is written before Kafka's commit, so a version that it finds may never be committed. Both versions of a row are
indexed, and ledgers that are read *after* the rows decide which of them is committed; a row is a hit only if that
version has the fields. So a search neither shows uncommitted nor hides committed versions; it misses only writes since
the store's last refresh.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from microbatch.stores.elasticsearch import ElasticsearchDriver, Query
from microbatch.stores.port import Driver
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import CommittedState, Ledger, VersionedCell, ledger_key
from streamtable.errors import ConfigurationError, SerializationError

LIMIT_MAX = 100
_CHARACTERS_MAX = 1_000
_SPARE = 2  # rows requested per hit to return, as some rows are not hits
Ledgers = Callable[[], Mapping[int, Ledger]]


class Hit(NamedTuple):
    """A row whose committed version has the fields.

    Attributes:
        key: The key of the row.
        value: The value of the committed version.
        score: The relevance; higher is better.
    """

    key: bytes
    value: bytes
    score: float


def search(
    driver: Driver, fields: Query, ledgers: Ledgers, *, limit: int = 20, timeout: float = 2.0
) -> list[Hit]:
    """Return rows whose committed version has all of these fields, the best first.

    While many of the best rows are being rewritten, the result may have fewer than `limit` rows although more match.

    Args:
        driver: The Elasticsearch driver; not shared with another thread.
        fields: The values by field. A text field must contain all the words; other fields must be equal. A field that
            the index does not have matches nothing.
        ledgers: Returns the current ledgers by partition; it is called after the rows were found. `ledgers_from` makes one.
        limit: The maximal number of hits, 1 to 100.
        timeout: The seconds for the search; an answer that is incomplete by then is an error.

    Raises:
        RetryLater: The store did not answer in time.
        ConfigurationError: The store cannot search.
        SerializationError: A text is longer than 1,000 characters.
        StateLost: Neither version of a row is committed.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise ConfigurationError(f"a search has a limit of 1 to {LIMIT_MAX}, not {limit}")
    if not fields:
        raise ConfigurationError("a search needs at least one field")
    for name, value in fields.items():
        if isinstance(value, str) and len(value) > _CHARACTERS_MAX:
            raise SerializationError(
                f"a search for {name} has {len(value)} characters, {_CHARACTERS_MAX} are allowed: {value[:40]!r}..."
            )
    if not isinstance(driver, ElasticsearchDriver):
        raise ConfigurationError("only Elasticsearch can search: give a store elasticsearch+https://...")
    found = driver.find(fields, limit * _SPARE, timeout)
    if not found:
        return []
    known = ledgers()
    hits = []
    for key, row, score, versions in found:
        cell = VersionedCell.decode(row)
        version = known[cell.partition].counting(cell)
        which = "now" if version is cell.current else "before"
        if version.value is not None and which in versions:
            hits.append(Hit(key, version.value, score))
    return hits[:limit]


def ledgers_from(store: RemoteStore, committed_states: Callable[[], Mapping[int, CommittedState]]) -> Ledgers:
    """Return the ledgers as seen by a reader that does not own the partitions.

    Args:
        store: The store that holds the ledgers' rows.
        committed_states: Returns the committed states in the group's stable committed offsets, by partition.
    """

    def ledgers() -> dict[int, Ledger]:
        committed = committed_states()  # before the rows: a commit missing here is in a row
        rows = store.get_many([ledger_key(partition) for partition in committed])
        return {each: Ledger.seen(state, rows.get(ledger_key(each))) for each, state in committed.items()}

    return ledgers
