"""A lake: a folder of tables, with their origin and the checkpoint of the ETL.

<folder>/origin.json        the name, the format, the topic ids, and the offsets that it lacks
<folder>/checkpoint/        the offsets that were read, see `checkpoint`
<folder>/bronze/            raw records of all topics
<folder>/silver/<topic>/    decoded records
<folder>/quarantine/        raw records that could not be decoded
<folder>/gold/<name>/       results
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pyspark.sql import SparkSession

from streamtable_spark.errors import ConfigurationError, OtherLake
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.formats import DeltaTables, LakeTables, ParquetTables
from streamtable_spark.jobs.writer_lock import WRITING

SCHEMES: Final = {"file", "hdfs", "s3a", "gs", "abfss"}
NO_RENAME: Final = ("s3a://", "gs://")
"""Stores that rename no file atomically."""
BRONZE: Final = "bronze"
QUARANTINE: Final = "quarantine"


@dataclass(frozen=True)
class Origin:
    """The origin of a lake. It never changes, except that topics and missing offsets are added.

    Attributes:
        lake: The unique name of the lake, given when it was created.
        format: The table format: delta or parquet.
        topics: The topic id of each topic when it was added, by name.
        missing: The offsets that were deleted before they were read: topic, partition, first offset, and the one after the last.
        tables: The name of each topic's tables. Lakes of earlier releases get it with their next run, as `unions`.
        unions: The names of the branches of each union in a topic's values; see `AvroCodec.unions`.
    """

    lake: str
    format: str
    topics: Mapping[str, str]
    missing: Sequence[Sequence[Any]] = field(default_factory=list)
    tables: Mapping[str, str] = field(default_factory=dict)
    unions: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)


class Lake:
    """A lake in a folder.

    Args:
        spark: The Spark session.
        folder: The folder of the lake; see `lake_folder`.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.spark, self.folder = spark, folder
        self._files, self._origin = Files(spark), f"{folder}/origin.json"

    @property
    def checkpoint(self) -> str:
        return f"{self.folder}/checkpoint"

    def origin(self) -> Origin | None:
        """Return the origin; None if there is no lake yet.

        Raises:
            OtherLake: The folder holds something that is not a lake.
        """
        if self._files.exists(self._origin):
            return self.known()
        # A run that was killed while it declared the lake leaves the temporary file of the origin.
        if set(self._files.names(self.folder)) - {"origin.json.new", WRITING}:
            raise OtherLake(f"{self.folder} is not empty and no lake: name an empty or a new folder")
        return None

    def known(self) -> Origin:
        """Return the origin of an existing lake.

        Raises:
            ConfigurationError: There is no lake in the folder.
            OtherLake: The origin is damaged.
        """
        if not self._files.exists(self._origin):
            raise ConfigurationError(
                f"there is no lake at {self.folder}: name the folder of one, or make it with `etl`"
            )
        try:
            return Origin(**json.loads(self._files.read(self._origin)))
        except (ValueError, TypeError) as error:
            raise OtherLake(
                f"{self._origin} is damaged ({error}): restore it, or make a new lake in another folder"
            ) from error

    def declare(self, origin: Origin) -> None:
        """Write the origin of the lake."""
        self._files.write(self._origin, json.dumps(asdict(origin), indent=1))

    def tables(self, origin: Origin) -> LakeTables:
        """Return the tables of the lake, in their format."""
        if origin.format == "delta":
            return DeltaTables(self.spark, self.folder, origin.lake)
        return ParquetTables(self.spark, self.folder)

    def names(self) -> list[str]:
        """Return the names of the tables that the lake may have: some may not exist yet."""
        folders = [
            f"{layer}/{name}"
            for layer in ("silver", "gold")
            for name in self._files.names(f"{self.folder}/{layer}")
            if not name.startswith("_")
        ]
        return [BRONZE, *folders, QUARANTINE]


def delta_tables(lake: Lake) -> DeltaTables:
    """Return the Delta tables of an existing lake.

    Raises:
        ConfigurationError: There is no lake, or it has no Delta tables.
    """
    tables = lake.tables(lake.known())
    if not isinstance(tables, DeltaTables):
        raise ConfigurationError(
            f"{lake.folder} has plain parquet tables, which cannot be changed in place: make a new lake with `etl`"
        )
    return tables


def lake_folder(text: str) -> str:
    """Return the folder that an argument names, without a slash at the end.

    Raises:
        ConfigurationError: Spark would not take the path as it is.
    """
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme not in SCHEMES:
        raise ConfigurationError(f"lake {text!r}: the scheme must be one of {', '.join(sorted(SCHEMES))}")
    path = rest.rstrip("/")
    if not path or path != path.strip() or not path.isprintable():
        raise ConfigurationError(f"lake {text!r}: a folder is needed, without spaces at its ends")
    if found := sorted(set(path) & set("*?[]{}\\`'\"")):
        raise ConfigurationError(
            f"lake {text!r}: {' '.join(found)} would be taken for a pattern or a quotation: rename it"
        )
    if ".." in path.split("/"):
        raise ConfigurationError(f"lake {text!r}: '..' depends on where the job runs: name the folder itself")
    return f"{scheme}{separator}{path}"
