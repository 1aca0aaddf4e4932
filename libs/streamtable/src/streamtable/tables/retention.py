"""Removes local state that is no longer used."""

from collections.abc import Callable

import structlog

from streamtable.base.ports import Stores
from streamtable.errors import StoreInUse

log = structlog.get_logger()


def remove_old_state(
    stores: Stores, kept: Callable[[str, int], bool], retention_seconds: float, now: float
) -> None:
    """Remove the local state of partitions that other processes have had for long; it can be loaded again.

    Args:
        stores: The stores of the process.
        kept: Whether the state of this table and partition is in use.
        retention_seconds: The seconds that unused state is kept.
        now: Seconds since 1970.
    """
    for (table, partition), used_at in stores.present().items():
        age = now - used_at
        if not kept(table, partition) and age > retention_seconds:
            try:
                stores.destroy(table, partition)
            except StoreInUse:
                continue  # another process on this machine works on it
            log.info(
                "removed the state of a revoked partition",
                table=table,
                partition=partition,
                age_seconds=round(age),
            )
