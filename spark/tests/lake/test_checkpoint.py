from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamtable_spark.errors import InputLost, OtherLake
from streamtable_spark.jobs.checkpoint import check_kept, read_so_far
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.positions import Place, Span

READ = {"clicks": {0: 100, 1: 50}}


def test_deleted_records_that_were_not_read_are_reported_with_their_numbers() -> None:
    with pytest.raises(InputLost, match=r"^130 offsets .* clicks\[0\] offsets 100 to 229 \(130\)"):
        check_kept(READ, {"clicks": {0: 230, 1: 50}}, {"clicks": {0: 300, 1: 60}}, allow=False)


def test_deleted_records_that_were_read_are_no_loss() -> None:
    check_kept(READ, {"clicks": {0: 100, 1: 7}}, {"clicks": {0: 100, 1: 50}}, allow=False)


def test_going_on_without_them_must_be_asked_for_and_says_which_they_are() -> None:
    gone = check_kept(READ, {"clicks": {0: 230, 1: 50}}, {"clicks": {0: 300, 1: 60}}, allow=True)
    assert gone == {Place("clicks", 0): Span(100, 230)}


def test_a_topic_that_ends_before_what_was_read_is_another_topic_whatever_is_allowed() -> None:
    with pytest.raises(InputLost, match=r"clicks\[0\] ends at offset 10, and 100 records"):
        check_kept(READ, {"clicks": {0: 0, 1: 0}}, {"clicks": {0: 10, 1: 50}}, allow=True)


def checkpoint(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def test_the_next_batch_begins_where_the_last_finished_one_ended(spark: SparkSession, tmp_path: Path) -> None:
    folder = checkpoint(
        tmp_path,
        {
            "sources/0/0": 'v1\n{"clicks":{"0":0}}',
            "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"clicks":{"0":10}}',
            "offsets/1": 'v1\n{"batchWatermarkMs":0}\n{"clicks":{"0":25}}',
            "offsets/2": 'v1\n{"batchWatermarkMs":0}\n{"clicks":{"0":90}}',
            "commits/0": "v1\n{}",
            "commits/1": "v1\n{}",
        },
    )
    assert read_so_far(Files(spark), folder) == {"clicks": {0: 25}}


def test_before_the_first_batch_is_finished_nothing_was_read(spark: SparkSession, tmp_path: Path) -> None:
    assert read_so_far(Files(spark), str(tmp_path)) is None
    folder = checkpoint(tmp_path, {"sources/0/0": 'v1\n{"clicks":{"0":7}}'})
    assert read_so_far(Files(spark), folder) == {"clicks": {0: 7}}


@pytest.mark.parametrize("text", ["", "v1\n{", 'v1\n{}\n["x"]', None])
def test_a_damaged_checkpoint_is_said_to_be_damaged(
    spark: SparkSession, tmp_path: Path, text: str | None
) -> None:
    files = {"commits/0": "v1\n{}"} | ({} if text is None else {"offsets/0": text})
    with pytest.raises(OtherLake, match="offsets/0 is damaged"):
        read_so_far(Files(spark), checkpoint(tmp_path, files))
