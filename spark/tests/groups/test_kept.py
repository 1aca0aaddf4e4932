from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamtable_spark.errors import InputLost
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.etl import STAGES as ETL_STAGES
from streamtable_spark.jobs.etl import Etl, Settings
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.rebuild import STAGES, Wanted, rebuild
from streamtable_spark.jobs.running import Source
from streamtable_spark.jobs.topics import topics_of
from streamtable_spark.transforms.tables import TABLES

pytestmark = pytest.mark.timeout(600)


def test_what_retention_has_removed_comes_from_the_lake_and_what_the_lake_lacks_from_kafka(
    spark: SparkSession, stage: Any
) -> None:
    def rebuilt(**more: Any) -> None:
        source = Source("click-count", TABLES["click-count"], {})
        progress = Progress(STAGES, StringIO(), lambda: 0.0)
        with Cluster(stage.servers) as cluster:
            wanted = Wanted(source, "v2", stage.folder / "v2.json", **more)
            rebuild(lambda: spark, cluster, wanted, progress, now=lambda: datetime(2026, 3, 1, tzinfo=UTC))

    lake = str(stage.folder / "lake")
    etl = Settings(stage.servers, lake, topics_of(["user-clicks"]), format="parquet")
    stage.clicks(100)
    stage.clicks(20, committed=False)
    with Cluster(stage.servers) as cluster:  # the broker shows the end of a transaction a moment after it
        cluster.wait_stable("user-clicks", cluster.ends({"user-clicks": 3})["user-clicks"], 60)
    Etl(spark, etl, Progress(ETL_STAGES, StringIO(), lambda: 0.0)).run("lake")
    stage.delete_records("user-clicks")
    stage.clicks(50)
    stage.group("v2")
    with pytest.raises(InputLost, match=r"user-clicks\[0\] begins at offset \d+: what was before is gone"):
        rebuilt()
    rebuilt(lake=lake)
    assert stage.table("v2") == stage.truth
    stage.delete_records("user-clicks")
    with pytest.raises(InputLost, match="and the lake has it up to"):
        rebuilt(lake=lake, replace=True)
