"""The lakes that the fault tests write to: Parquet files in an S3 server, and a table of Iceberg on the disk."""

from collections.abc import Callable, Mapping
from typing import Any

from obstore.store import S3Store
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from streamtable import Avro
from streamtable_sinks import SinkTarget
from streamtable_sinks.iceberg import Iceberg
from streamtable_sinks.parquet import Parquet

TABLE = "lake.seen"
_FIELDS = [{"name": "key", "type": "string"}, {"name": "value", "type": "long"}]
_ROW: Avro[Any] = Avro({"type": "record", "name": "Seen", "fields": _FIELDS})


def lake_of(store: str, columns: Callable[[Any, Any], Mapping[str, Any]]) -> SinkTarget:
    """Return the target of `s3:` and the URL of a server, or of `iceberg:` and a folder."""
    kind, _, where = store.partition(":")
    if kind == "s3":
        return Parquet(bucket_at(where), columns=columns, schema=_ROW)
    return Iceberg(catalog_in(where), TABLE, columns=columns, schema=_ROW, create=True)


def bucket_at(url: str) -> S3Store:
    """Return the bucket of an S3 server."""
    return S3Store(
        "lake",
        endpoint=url,
        region="us-east-1",
        access_key_id="any",
        secret_access_key="any",
        client_options={"allow_http": True},
    )


def catalog_in(folder: str) -> Catalog:
    """Return the catalog of a folder."""
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
