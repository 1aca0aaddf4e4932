"""A folder of tables: Delta, or plain Parquet. Writing a batch a second time changes nothing.

    <folder>/origin.json        which cluster and topics it is made from
    <folder>/checkpoint/        how far Kafka was read
    <folder>/bronze/            raw records of all topics
    <folder>/silver/<topic>/    decoded records
    <folder>/quarantine/        what could not be decoded
    <folder>/gold/<name>/       results

Delta notes in each commit which batch it was, in one step with the data; Parquet keeps each batch in a folder of its own,
which a repetition replaces as a whole.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from streamtable_spark.errors import ConfigurationError, OtherLake

SCHEMES: Final = {"file", "hdfs", "s3a", "gs", "abfss"}
NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
BRONZE: Final = "bronze"
QUARANTINE: Final = "quarantine"


class Tables(Protocol):
    """The tables of a lake in one format; a table's name is its folder's below the lake's."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> DataFrame: ...

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        """Add the rows of a batch, unless they are there already. They have the columns `day` and `batch`."""
        ...

    def overwrite(self, name: str, rows: DataFrame) -> None: ...


class DeltaTables:
    """Delta: what is read is one version, also while somebody writes; earlier versions can be read too.

    Args:
        spark: the session.
        folder: of the lake.
        writer: under which Delta notes the numbers of batches: another for each run of numbers.
    """

    def __init__(self, spark: SparkSession, folder: str, writer: str) -> None:
        self._spark, self._folder, self._writer = spark, folder, writer

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def exists(self, name: str) -> bool:
        return Files(self._spark).exists(f"{self.path(name)}/_delta_log")

    def read(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(self.path(name))

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        (
            rows.write.format("delta")
            .mode("append")
            .partitionBy("day")
            .option("mergeSchema", "true")
            .option("txnAppId", self._writer)
            .option("txnVersion", batch)
            .save(self.path(name))
        )

    def overwrite(self, name: str, rows: DataFrame) -> None:
        """Replace a table as a whole."""
        rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.path(name))

    def replace(self, name: str, rows: DataFrame, where: str) -> None:
        """Put these rows in the place of those that fulfil a condition, all at once; without a table, make it."""
        writer = rows.write.format("delta").mode("overwrite").partitionBy("day")
        if self.exists(name):
            writer = writer.option("replaceWhere", where)
        writer.option("mergeSchema", "true").save(self.path(name))

    def upsert(self, name: str, rows: DataFrame, keys: Sequence[str]) -> None:
        """Put rows in the place of those with the same keys, and add those with new ones; a key may be null."""
        if not self.exists(name):
            rows.write.format("delta").mode("errorifexists").save(self.path(name))
            return
        rows.createOrReplaceTempView("changed_rows")
        same = " AND ".join(f"old.`{key}` <=> new.`{key}`" for key in keys)
        self._spark.sql(
            f"MERGE INTO delta.`{self.path(name)}` old USING changed_rows new ON {same} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()


class ParquetTables:
    """Plain Parquet: any tool reads it, without what Delta gives: whole versions, earlier ones, changes in place."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark, self._folder = spark, folder

    def exists(self, name: str) -> bool:
        return Files(self._spark).exists(f"{self._folder}/{name}")

    def read(self, name: str) -> DataFrame:
        return self._spark.read.parquet(f"{self._folder}/{name}")

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        rows.drop("batch").write.mode("overwrite").parquet(f"{self._folder}/{name}/batch={batch}")

    def overwrite(self, name: str, rows: DataFrame) -> None:
        """Replace a table as a whole."""
        rows.write.mode("overwrite").parquet(f"{self._folder}/{name}")


@dataclass(frozen=True)
class Origin:
    """What a lake is made from; it never changes, but for topics that are added.

    Attributes:
        lake: a name of its own, made with it.
        format: delta or parquet.
        topics: the id that the cluster gave each topic when it was made, by name.
    """

    lake: str
    format: str
    topics: Mapping[str, str]


class Lake:
    """The folder.

    Args:
        spark: the session.
        folder: see `lake_folder`.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.spark, self.folder = spark, folder
        self._files = Files(spark)

    @property
    def checkpoint(self) -> str:
        return f"{self.folder}/checkpoint"

    def origin(self) -> Origin | None:
        """None: there is no lake yet.

        Raises:
            OtherLake: what is there is none.
        """
        path = f"{self.folder}/origin.json"
        if not self._files.exists(path):
            if self._files.exists(self.folder) and self._files.names(self.folder):
                raise OtherLake(f"{self.folder} is not empty and no lake: name an empty or a new folder")
            return None
        try:
            return Origin(**json.loads(self._files.read(path)))
        except (ValueError, TypeError) as error:
            raise OtherLake(
                f"{path} is damaged ({error}): restore it, or make a new lake in another folder"
            ) from error

    def declare(self, origin: Origin) -> None:
        """Write down what the lake is made from."""
        self._files.write(f"{self.folder}/origin.json", json.dumps(asdict(origin), indent=1))

    def tables(self, origin: Origin) -> DeltaTables | ParquetTables:
        """Its tables, in their format."""
        if origin.format == "delta":
            return DeltaTables(self.spark, self.folder, origin.lake)
        return ParquetTables(self.spark, self.folder)


def lake_folder(text: str) -> str:
    """The folder that an argument names, without a slash at the end.

    Raises:
        ConfigurationError: it is no folder that Spark would take as it stands.
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


class Files:
    """Small files, wherever Spark's tables may lie."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm  # noqa: SLF001 - Hadoop's file systems: Spark has no interface to them for Python
        self._settings = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same

    def exists(self, path: str) -> bool:
        at, system = self._at(path)
        return bool(system.exists(at))

    def names(self, path: str) -> list[str]:
        """What a folder holds; nothing if there is none."""
        at, system = self._at(path)
        return sorted(each.getPath().getName() for each in system.listStatus(at)) if system.exists(at) else []

    def read(self, path: str) -> str:
        at, system = self._at(path)
        opened = system.open(at)
        try:
            return bytes(opened.readAllBytes()).decode()
        finally:
            opened.close()

    def write(self, path: str, text: str) -> None:
        """Replace a file, whole or not at all."""
        at, system = self._at(path)
        beside = self._java.org.apache.hadoop.fs.Path(f"{path}.new")
        made = system.create(beside, True)
        try:
            made.write(bytearray(text.encode()))
        finally:
            made.close()
        system.delete(at, False)
        if not system.rename(beside, at):
            raise OtherLake(f"{path} cannot be written: look at who else writes there")

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._java.org.apache.hadoop.fs.Path(path)
        return at, at.getFileSystem(self._settings)
