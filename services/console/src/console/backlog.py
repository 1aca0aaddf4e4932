"""The reports of processes from before the console was started, as far as the status topic still has them."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

import structlog

from console.clusters import LIMITS, Clusters
from console.history import StatusReport
from console.statuses import STATUS, STATUS_BYTES_MAX
from streamtable.errors import DeserializationError, RetryLater
from streamtable_admin.errors import NotFound
from streamtable_admin.records import TopicRecord, collect

log = structlog.get_logger()
RECORDS_MAX: Final = 20_000


def backlog(clusters: Clusters, topic: str) -> Iterator[StatusReport]:
    """Yield the last 20,000 records of the topic, fewer if it was compacted; records of one process in order.

    There are none if Kafka does not respond: the console works without them. They are decoded one by one, because decoded
    records take many times the memory.
    """
    try:
        with clusters.connected() as cluster:
            marks = cluster.admin.watermarks_known(cluster.partitions(topic))
            each = RECORDS_MAX // max(1, len(marks))
            starts = {place: max(mark.low, mark.high - each) for place, mark in marks.items()}
            ends = {place: mark.high for place, mark in marks.items()}
            found = collect(cluster, starts, ends, keep=each, limits=LIMITS)
    except (RetryLater, NotFound) as error:
        log.warning("the history before this start is not known", reason=str(error))
        return
    for record in chain.from_iterable(found.values()):
        report = _report(record)
        if report is not None:
            yield report


def _report(record: TopicRecord) -> StatusReport | None:
    """Return None for a record that cannot be decoded: any producer may write to the topic."""
    if len(record.value or b"") > STATUS_BYTES_MAX:
        return None
    try:
        status = None if record.value is None else STATUS.decode(record.value)
    except DeserializationError:
        return None  # the collector logs it while it is the latest of its key
    return StatusReport((record.key or b"").decode(errors="replace"), status, record.timestamp)
