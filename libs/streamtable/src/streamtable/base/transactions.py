"""Commands of Kafka's tools for a hanging transaction, about which the client library has no calls."""

from streamtable.base.types import TopicPartition

RUNBOOK = "docs/operate/runbooks.md#streamtabletransactionhangs"
"""The section of the runbooks that says when an abort is safe."""


def commands(servers: str, place: TopicPartition, offset: int) -> tuple[str, str]:
    """Return the command that shows the open transactions of a partition, and the one that aborts the first of them.

    Args:
        servers: The bootstrap servers.
        place: The partition that waits; a negative number if it is not known.
        offset: Its last stable offset, where the transaction begins; negative if it is not known.
    """
    tool = f"kafka-transactions.sh --bootstrap-server {servers}"
    partition = str(place.partition) if place.partition >= 0 else "PARTITION"
    at = f"--topic {place.topic} --partition {partition}"
    start = str(offset) if offset >= 0 else "CurrentTransactionStartOffset"
    return f"{tool} describe-producers {at}", f"{tool} abort {at} --start-offset {start}"
