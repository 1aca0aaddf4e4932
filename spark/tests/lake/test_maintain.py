"""What is refused, how files are put together, and what is done again when another job was quicker."""

import pytest
from pyspark.errors import PySparkException

from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs import maintain
from streamtable_spark.jobs.formats import undisturbed
from streamtable_spark.jobs.running import ended


@pytest.mark.parametrize(
    ("folders", "groups"),
    [
        ([], []),
        ([{"a": 4}], []),
        ([{"a": 4, "b": 4}], [["a", "b"]]),
        ([{"a": 4}, {"b": 6}, {"c": 1}], [["a", "b"]]),
        ([{"a": 4}, {"b": 7}, {"c": 3}], [["b", "c"]]),
        ([{"a": 1}, {"big": 50}, {"b": 1}, {"c": 1, "d": 1}], [["b", "c", "d"]]),
        ([{"a": 1}, {"big": 10}, {"c": 1}, {"d": 1}], [["c", "d"]]),
    ],
)
def test_files_of_folders_side_by_side_are_put_together_as_far_as_they_fit(
    folders: list[dict[str, int]], groups: list[list[str]]
) -> None:
    assert maintain.together(folders, 10) == groups


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--lake", "/lake", "--keep", "0"], "--keep 0: at least 1 day"),
        (["--lake", "/lake", "--file-mb", "0"], "--file-mb 0"),
        (["--lake", "/lake/*"], "taken for a pattern"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(
    wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(maintain.work, wrong) == 2
    assert said in capsys.readouterr().err


def test_plain_tables_of_an_object_store_are_not_compacted() -> None:
    with pytest.raises(ConfigurationError, match="Delta tables"):
        maintain.check_renames("s3a://bucket/lake")


def test_what_others_disturb_is_tried_again_some_times_and_other_failures_are_not() -> None:
    waited: list[float] = []
    left = 4

    def disturbed() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise PySparkException("[DELTA_CONCURRENT_DELETE_READ] somebody was quicker")
        return "done"

    assert undisturbed(disturbed, waited.append) == "done"
    assert len(waited) == 4
    left = 5
    with pytest.raises(RetryLater, match="run this again"):
        undisturbed(disturbed, waited.append)

    def broken() -> None:
        raise PySparkException("[DIVIDE_BY_ZERO]")

    with pytest.raises(PySparkException, match="DIVIDE"):
        undisturbed(broken, waited.append)
    assert len(waited) == 8
