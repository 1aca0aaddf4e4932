"""The reports of processes within the console's memory limit: any producer may write to the status topic."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from contracts.records import PROCESS_STATUS, ProcessStatus
from streamtable import Avro
from streamtable.errors import DeserializationError

STATUS: Final = Avro(PROCESS_STATUS)
PROCESSES_MAX: Final = 1000
STATUS_BYTES_MAX: Final = 256 << 10
"""The maximum size of a report; one with a thousand partitions takes half of it. Any producer may write larger ones."""
STATUSES_BYTES_MAX: Final = 4 << 20
ENTRIES_MAX: Final = 25_000
"""The maximum number of entries in the lists of all reports together. Decoded they take twenty times their bytes, and there are
three generations of them: the previous reports, the present ones, and the snapshot as JSON. It is enough for a thousand
processes with 25 entries each.
"""
_LISTS: Final = ("partitions", "inputs", "flows", "copies", "event_times", "due", "emits")


def entries_of(status: ProcessStatus | None) -> int:
    """Return the number of entries in its lists."""
    return 0 if status is None else sum(len(status[name]) for name in _LISTS)


def statuses_that_fit(
    rows: Iterable[tuple[bytes, bytes]], warn: Callable[[bytes, str, str], None]
) -> Iterator[tuple[str, ProcessStatus]]:
    """Yield the statuses that can be decoded, up to the memory limit.

    A bad record must not hide others, and neither must a large one.

    Args:
        rows: Keys and values of the topic.
        warn: Called for each skipped report, with its key, the text and the reason.
    """
    number, bytes_left, entries_left = 0, STATUSES_BYTES_MAX, ENTRIES_MAX
    for key, value in rows:
        if len(value) > STATUS_BYTES_MAX:
            warn(key, "a status cannot be read", f"{len(value)} bytes are too many")
            continue
        if number >= PROCESSES_MAX or bytes_left < len(value):
            warn(b"", "more processes report than are shown", f"{number} are shown")
            return
        try:
            status = STATUS.decode(value)
        except DeserializationError as error:
            warn(key, "a status cannot be read", str(error))
            continue
        if (entries := entries_of(status)) > entries_left:
            reason = f"with its {entries} entries there are more than {ENTRIES_MAX} of all"
            warn(key, "a status is not shown", reason)
            continue
        number += 1
        bytes_left -= len(value)
        entries_left -= entries
        yield key.decode(errors="replace"), status
