"""Loads the extension for the installed Kafka client, or says why it cannot be used."""

from collections.abc import Sequence
from types import ModuleType

import confluent_kafka
from confluent_kafka import Consumer, Producer, cimpl

from streamtable.base.types import QueuedRecord
from streamtable_native.records import NativeRecords

KNOWN = ("2.16",)
"""The versions of confluent-kafka whose objects were looked at: the extension reads the client's handle from their head."""


class NativeUnavailable(ImportError):
    """The extension cannot be used with what is installed; the text says why."""


class Native:
    """The loaded extension. `load` makes it."""

    def __init__(self, extension: ModuleType) -> None:
        self._extension = extension

    def records(self, consumer: Consumer) -> NativeRecords:
        """Return the queue of a consumer that has no assignment yet; it implements `streamtable.kafka.fetch.Records`."""
        return NativeRecords(consumer, self._extension.Queue(consumer))

    def produce_rows(
        self, producer: Producer, topic: str, partition: int, rows: Sequence[tuple[bytes, bytes | None]]
    ) -> list[int]:
        """Queue rows as records of one partition, without delivery reports and headers.

        Returns:
            The indexes of the rows that the client has refused, mostly because its queue is full. The client's own method
            says why when they are sent again.
        """
        return list(self._extension.produce_rows(producer, topic, partition, rows))

    def produce_records(self, producer: Producer, records: Sequence[QueuedRecord]) -> int:
        """Queue records in their order, without delivery reports.

        Args:
            producer: The client.
            records: The records, each with topic, key, value, headers, timestamp and partition.

        Returns:
            The index of the first record that was not queued, because the client's queue is full or the record is nothing
            that the client takes; the number of records if all were. The client's own method says why when it is sent again.
        """
        return int(self._extension.produce_records(producer, records))


def load(client_version: str | None = None) -> Native:
    """Return the extension, bound to the loaded Kafka client.

    Args:
        client_version: The version of confluent-kafka; None: the installed one.

    Raises:
        NativeUnavailable: It was installed without the extension, or the client's version is not a known one.
    """
    version = client_version or str(confluent_kafka.__version__)
    if not version.startswith(tuple(f"{known}." for known in KNOWN)):
        raise NativeUnavailable(
            f"confluent-kafka {version} is not one of the known versions ({', '.join(KNOWN)}): "
            "upgrade streamtable-native, or install a known version"
        )
    try:
        from streamtable_native import _native  # noqa: PLC0415 - it is missing where no compiler was
    except ImportError as error:
        raise NativeUnavailable(
            f"streamtable-native was installed without an extension for this machine, which takes a C compiler ({error})"
        ) from error
    try:
        _native.load(cimpl.__file__)
    except OSError as error:
        raise NativeUnavailable(str(error)) from error
    return Native(_native)
