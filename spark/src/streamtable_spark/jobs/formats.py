"""The tables of a lake: Delta, or plain Parquet. Writing a batch a second time changes nothing.

Delta records the number of the batch in the commit of its data; Parquet keeps each batch in a folder of its own,
which a repetition replaces as a whole.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # Spark's bridge to Java ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import RetryLater
from streamtable_spark.jobs.files import Files

T = TypeVar("T")

Reached = Callable[[str], None]
"""Called with the name of each step that is done, for tests."""

BOUNDED: Final = "batch"
"""The column whose bounds Delta records for each file. Bounds of other columns, which Parquet records as well, speed up no query,
and each costs a part of writing."""
OPTIMIZE: Final = "spark.databricks.delta.optimize"
TRIES: Final = 5
PAUSE_S: Final = 0.5
# Parts of the errors that a job gets when another one has changed its tables meanwhile.
DISTURBED: Final = (
    "DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "FILE_NOT_EXIST", "PATH_NOT_FOUND", "FileNotFoundException",
)  # fmt: skip


class _Folder:
    """A folder of tables: a table's name is its folder's below this one."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark, self._folder, self._files = spark, folder, Files(spark)

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"


class DeltaTables(_Folder):
    """Delta tables: a read sees one version, also while another job writes; earlier versions can be read too.

    Args:
        spark: The Spark session.
        folder: The folder of the lake.
        writer: The id under which Delta records batch numbers (`txnAppId`); another one for each sequence of numbers.
    """

    def __init__(self, spark: SparkSession, folder: str, writer: str) -> None:
        super().__init__(spark, folder)
        self._writer = writer

    def exists(self, name: str) -> bool:
        return self._files.exists(f"{self.path(name)}/_delta_log")

    def read(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(self.path(name))

    def before(self, name: str, batch: int) -> DataFrame:  # noqa: ARG002 - see below
        """Return the rows of earlier batches, when `batch` is the next one to be added."""
        # A batch that is there already is not added again, even with other rows: so no condition on the batch is needed, which
        # would make another program of each read.
        return self.read(name)

    def last_batch(self, name: str) -> int:
        """Return the greatest number of a batch in a table; -1 if it is empty."""
        # Delta answers that from the bounds in its log, without reading any row.
        return _last(self.read(name))

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        """Add the rows of a batch, unless they are there already. They have the columns `day` and `batch`."""
        (
            rows.write.format("delta")
            .mode("append")
            .partitionBy("day")
            .option("delta.dataSkippingStatsColumns", BOUNDED)
            .option("mergeSchema", "true")
            .option("txnAppId", self._writer)
            .option("txnVersion", batch)
            .save(self.path(name))
        )

    def widen(self, name: str) -> None:
        """Let a table take wider numbers than it has: the next rows change the type of such a column."""
        self._set_properties(name, {"delta.enableTypeWidening": "true"})

    def overwrite(self, name: str, rows: DataFrame) -> None:
        rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.path(name))

    def replace(self, name: str, rows: DataFrame, where: str) -> None:
        """Replace the rows that fulfil a condition with these, atomically; create the table if there is none."""
        writer = rows.write.format("delta").mode("overwrite").partitionBy("day")
        if self.exists(name):
            writer = writer.option("replaceWhere", where)
        writer.option("mergeSchema", "true").save(self.path(name))

    def upsert(self, name: str, rows: DataFrame, keys: Sequence[str], replaced: DataFrame) -> None:
        """Put rows in the place of others of the table, by their keys, of which each may be null; delete those without a new row."""
        same = " AND ".join(f"old.`{key}` <=> new.`{key}`" for key in keys)
        gone = (
            replaced.alias("old")
            .join(rows.alias("new"), fn.expr(same), "left_anti")
            .withColumn("_gone", fn.lit(True))
        )
        rows.withColumn("_gone", fn.lit(False)).unionByName(gone).createOrReplaceTempView("changed_rows")
        self._spark.sql(
            f"MERGE INTO delta.`{self.path(name)}` old USING changed_rows new ON {same} WHEN MATCHED AND new._gone THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def sizes(self, name: str) -> dict[str, int]:
        """Return the size in bytes of each file of the table's current version, by its path in the table's folder."""
        files = self.read(name).select("_metadata.file_path", "_metadata.file_size").distinct()
        return {self._in_folder(name, row["file_path"]): row["file_size"] for row in files.collect()}

    def compact(self, name: str, size: int) -> tuple[int, int]:
        """Merge files smaller than `size` bytes, day by day. Returns the numbers of merged and of new files."""
        with self._set(f"{OPTIMIZE}.minFileSize", str(size)), self._set(f"{OPTIMIZE}.maxFileSize", str(size)):
            row = self._spark.sql(f"OPTIMIZE delta.`{self.path(name)}`").first()
        assert row is not None
        return int(row["metrics"]["numFilesRemoved"]), int(row["metrics"]["numFilesAdded"])

    def expired(self, name: str, days: int) -> list[str]:
        """Return the files that no version of the last `days` days needs, by their paths in the table's folder."""
        rows = self._vacuum(name, f"RETAIN {days * 24} HOURS DRY RUN").collect()
        return sorted(self._in_folder(name, row["path"]) for row in rows)

    def expire(self, name: str, days: int) -> None:
        """Delete these files."""
        self._vacuum(name, f"RETAIN {days * 24} HOURS")

    def keep(self, name: str, days: int) -> None:
        """Set how many days versions are kept: otherwise Delta forgets the files of earlier versions."""
        required = {
            f"delta.{what}Duration": f"interval {days} days"
            for what in ("deletedFileRetention", "logRetention")
        }
        self._set_properties(name, required)

    def _set_properties(self, name: str, required: dict[str, str]) -> None:
        rows = self._spark.sql(f"SHOW TBLPROPERTIES delta.`{self.path(name)}`").collect()
        if not required.items() <= {row["key"]: row["value"] for row in rows}.items():
            said = ", ".join(f"'{key}' = '{value}'" for key, value in required.items())
            self._spark.sql(f"ALTER TABLE delta.`{self.path(name)}` SET TBLPROPERTIES ({said})")

    def _in_folder(self, name: str, uri: str) -> str:
        """Return the path, in a table's folder, of a file that Spark names by a URI."""
        return unquote(uri).rpartition(f"{self.path(name)}/")[2]

    def _vacuum(self, name: str, how: str) -> DataFrame:
        tasks = str(self._spark.sparkContext.defaultParallelism)
        with (
            # Else Delta uses the table's properties, and refuses a shorter retention: the job's arguments set a safe one.
            self._set("spark.databricks.delta.vacuum.retentionWindowIgnore.enabled", "false"),
            self._set("spark.databricks.delta.retentionDurationCheck.enabled", "false"),
            # The number of tasks that list files: for Spark the default of 10,000 is a maximum, but Delta starts that many.
            self._set("spark.sql.sources.parallelPartitionDiscovery.parallelism", tasks),
        ):
            return self._spark.sql(f"VACUUM delta.`{self.path(name)}` {how}")

    @contextmanager
    def _set(self, setting: str, value: str) -> Iterator[None]:
        self._spark.conf.set(setting, value)
        try:
            yield
        finally:
            self._spark.conf.unset(setting)


class ParquetTables(_Folder):
    """Plain Parquet: any tool reads it. It lacks Delta's atomic versions, time travel, changes in place and compaction.

    A table has a folder for each batch, `batch=7`, which a repetition of the batch overwrites.
    """

    def exists(self, name: str) -> bool:
        # Only the last batch may be half written.
        folders = [f"{self.path(name)}/batch={batch}" for batch in self._batches(name)]
        return any(self._files.exists(f"{folder}/_SUCCESS") for folder in folders or [self.path(name)])

    def read(self, name: str) -> DataFrame:
        return self._spark.read.option("mergeSchema", "true").parquet(self.path(name))

    def before(self, name: str, batch: int) -> DataFrame:
        return self.read(name).where(fn.col("batch") < batch)

    def last_batch(self, name: str) -> int:
        batches = self._batches(name)
        return batches[-1] if batches else _last(self.read(name))

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        rows.drop("batch").write.mode("overwrite").parquet(f"{self.path(name)}/batch={batch}")

    def overwrite(self, name: str, rows: DataFrame) -> None:
        above, _, last = self.path(name).rpartition("/")
        rows.write.mode("overwrite").parquet(f"{above}/_{last}")
        self._files.delete(self.path(name))
        self._files.move(f"{above}/_{last}", self.path(name))

    def _batches(self, name: str) -> list[int]:
        """Return the numbers of the batches that have a folder, in ascending order."""
        names = self._files.names(self.path(name))
        return sorted(int(each.removeprefix("batch=")) for each in names if each.startswith("batch="))


LakeTables = DeltaTables | ParquetTables


def _last(table: DataFrame) -> int:
    row = table.agg(fn.max("batch").alias("batch")).first()
    return -1 if row is None or row["batch"] is None else int(row["batch"])


def undisturbed(work: Callable[[], T], wait: Callable[[float], None] = time.sleep) -> T:
    """Run idempotent work, and retry it when another job has changed the same tables meanwhile.

    Args:
        work: The function to run.
        wait: Waits for a number of seconds before the next try.

    Raises:
        RetryLater: All tries failed that way.
    """
    for left in reversed(range(TRIES)):
        try:
            return work()
        except (PySparkException, Py4JError) as error:
            if not any(word in str(error) for word in DISTURBED):
                raise
            if not left:
                said = str(error).partition("\n")[0][:300]
                raise RetryLater(
                    f"another job changes the same tables all the time, or a file of theirs was deleted by hand ({said}): run this again"
                ) from error
            wait(PAUSE_S)
    raise AssertionError("the last try returns or raises")
