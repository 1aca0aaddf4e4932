"""Closed minutes as Parquet files, where CLICK_COUNT_LAKE says where: `click-count sinks`. Needs the extra `lake`."""

from typing import Any, Final

from click_count.settings import ClickSettings
from click_count.windows import CLICK_MINUTES
from servicekit.process.runtime import Runtime
from servicekit.process.serving import serve_groups
from streamtable import Avro
from streamtable.errors import ConfigurationError
from streamtable.flow import Windowed
from streamtable_sinks import Sink
from streamtable_sinks.parquet import Parquet

MINUTES_OUT: Final = "click-minutes-out"
ROW: Final = Avro(
    {
        "type": "record",
        "name": "ClickMinute",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "minute", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "clicks", "type": "long"},
        ],
    }
)
SECONDS: Final = 10.0
"""The seconds until a file is complete: few users make many small files, which `streamtable sink compact` merges."""


def minutes_out(where: str) -> Sink:
    """Return the sink of the clicks of each user and closed minute.

    Args:
        where: A folder, or the URL of one in an object store.
    """
    return Sink(MINUTES_OUT, CLICK_MINUTES, Parquet(where, columns=_row, schema=ROW), max_wait=SECONDS)


def _row(key: Windowed[str], clicks: int) -> dict[str, Any]:
    return {"user": key.key, "minute": key.start_ms, "clicks": clicks}


def serve_sinks(runtime: Runtime[ClickSettings]) -> int:
    """Write until stopped."""
    if runtime.service.lake is None:
        raise ConfigurationError("set CLICK_COUNT_LAKE to a folder, or to a URL such as s3://bucket/folder")
    return serve_groups(runtime, [minutes_out(runtime.service.lake)])


def declared() -> Sink:
    """Return the sink as the manifest declares it: its group and topics are the same for every folder."""
    return minutes_out("memory:///")
