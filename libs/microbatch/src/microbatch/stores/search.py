"""Finds rows by their fields, and of each the committed version.

A store is written before Kafka's commit, so what it finds may never be committed. Both versions of a row are found by,
and who counts is decided by ledgers that are read *after* the rows: one of the two versions counts by then, and a row
is a hit only if that one has the fields. So an answer never shows what is not committed, nor hides what is; it lacks
what was written since the store's last refresh.
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
_SPARE = 2  # rows requested for each hit to return: some rows are no hits
Ledgers = Callable[[], Mapping[int, Ledger]]


class Hit(NamedTuple):
    """A row whose committed version has the fields.

    Attributes:
        key: The key of the row.
        value: The value of the version that counts.
        score: the higher, the better it fits.
    """

    key: bytes
    value: bytes
    score: float


def search(
    driver: Driver, fields: Query, ledgers: Ledgers, *, limit: int = 20, timeout: float = 2.0
) -> list[Hit]:
    """Return rows whose committed version has all of these fields, the best first.

    Where many of the best rows are being rewritten at the moment, there may be fewer than `limit` although there are
    more.

    Args:
        driver: The Elasticsearch driver; not shared with another thread.
        fields: The fields by name. Texts are searched for all of their words, all else must be equal. A field
            that the index does not have finds nothing.
        ledgers: Returns the current ledgers by partition; it is called after the rows were found. `ledgers_from` makes one.
        limit: The maximal number of hits, 1 to 100.
        timeout: seconds for the search; an answer that is not whole by then is an error.

    Raises:
        RetryLater: the store did not answer in time.
        ConfigurationError: the store cannot search.
        SerializationError: a text is longer than 1,000 characters.
        StateLost: neither version of a row counts.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise ConfigurationError(f"a search has a limit of 1 to {LIMIT_MAX}, not {limit}")
    if not fields:
        raise ConfigurationError("a search names a field at least")
    for name, value in fields.items():
        if isinstance(value, str) and len(value) > _CHARACTERS_MAX:
            raise SerializationError(
                f"a search for {name} has {len(value)} characters, {_CHARACTERS_MAX} are allowed: {value[:40]!r}..."
            )
    if not isinstance(driver, ElasticsearchDriver):
        raise ConfigurationError(
            "only Elasticsearch can search: name one as the store, elasticsearch+https://..."
        )
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
        committed = committed_states()  # before the rows: a row that is missing from one is in the other
        rows = store.get_many([ledger_key(partition) for partition in committed])
        return {
            partition: Ledger.seen(committed_state, rows.get(ledger_key(partition)))
            for partition, committed_state in committed.items()
        }

    return ledgers
