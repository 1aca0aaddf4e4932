"""The inner loops in C of the package `streamtable_native`, where it is installed and chosen."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Protocol

import structlog
from confluent_kafka import Consumer, Producer

from streamtable.base.settings import NativeChoice
from streamtable.base.types import QueuedRecord
from streamtable.errors import ConfigurationError
from streamtable.kafka.fetch import ClientRecords, Records

log = structlog.get_logger()


class NativeLoops(Protocol):
    """The loaded package."""

    def records(self, consumer: Consumer) -> Records:
        """Return the records of a consumer that has no assignment yet."""

    def produce_rows(
        self, producer: Producer, topic: str, partition: int, rows: Sequence[tuple[bytes, bytes | None]]
    ) -> list[int]:
        """Queue rows as records of one partition. Returns the indexes of those that the client has refused."""

    def produce_records(self, producer: Producer, records: Sequence[QueuedRecord]) -> int:
        """Queue records in their order. Returns the index of the first one that was not queued."""


def chosen(choice: NativeChoice) -> NativeLoops | None:
    """Return the package as the setting chooses; None: Python does the same work.

    Raises:
        ConfigurationError: It is required and cannot be loaded.
    """
    found = None if choice == "off" else _loaded()
    if choice == "required" and isinstance(found, str):
        raise ConfigurationError(f"STREAMTABLE_NATIVE=required: {found}")
    return None if isinstance(found, str) else found


def records_of(consumer: Consumer, native: NativeLoops | None) -> Records:
    """Return the records of a consumer."""
    return ClientRecords(consumer) if native is None else native.records(consumer)


@cache
def _loaded() -> NativeLoops | str:
    """Return the package, or the reason why it cannot be used. Logs which, once in a process."""
    try:
        loaded: NativeLoops = import_module("streamtable_native").load()
    except ImportError as error:
        missing = error.name == "streamtable_native"
        reason = f"{error}: pip install 'streamtable[native]'" if missing else str(error)
        log.info("inner loops run in Python", reason=reason)
        return reason
    log.info("inner loops run in C")
    return loaded
