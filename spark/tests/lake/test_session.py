from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.positions import Span
from streamtable_spark.session import PACKAGE, Local, cache_name, check_java, jar_names, jars_folder

POM = Path(__file__).parents[2] / "pom.xml"


@pytest.mark.parametrize("memory", ["1", "", "1G", "0g", "1.5g", "-1g", "1 g"])
def test_memory_without_a_unit_is_refused(memory: str) -> None:
    with pytest.raises(ConfigurationError, match="512m"):
        Local(memory=memory)


@pytest.mark.parametrize("wrong", [{"cores": 0}, {"partitions": 0}])
def test_at_least_one_core_and_one_partition_are_needed(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=rf"^0 \w* ?{next(iter(wrong))}: at least 1 is needed$"):
        Local(**wrong)  # type: ignore[arg-type]  # one of two numbers


def test_jars_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka-clients-.*make setup"):
        jars_folder({"SPARK_CONNECTOR_JARS": str(tmp_path)})


def test_the_pins_are_the_jars_of_the_maven_file() -> None:
    pinned = (PACKAGE / "jars.sha256").read_text()
    text = POM.read_text()
    for name in jar_names(pinned):
        artifact, _, version = name.removesuffix(".jar").rpartition("-")
        assert f"<artifactId>{artifact}</artifactId>" in text
        assert f"<version>{version}</version>" in text
    assert text.count("<dependency>") == len(jar_names(pinned))


def test_other_pins_have_another_folder() -> None:
    assert cache_name("a") != cache_name("b")


def test_the_error_of_a_machine_without_java_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="openjdk-17"):
        check_java()


def test_the_session_counts_days_in_utc_and_listens_on_this_machine_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_a_topic_is_read_in_batch_without_an_object_for_each_record(spark: SparkSession) -> None:
    records = read(spark, "127.0.0.1:1", {"clicks": {0: Span(0, 5)}})
    assert "RelationV2" in str(records._jdf.queryExecution().optimizedPlan()), (
        "else each becomes a Row and back"
    )
