"""`streamtable capacity` as a user runs it; test_estimate.py tests the model."""

import json
import re
from pathlib import Path

import pytest
from libs.streamtable_cli.tests.bench import Cli

from streamtable_cli.capacity import read_measured, size

LOAD = ("--records", "100000", "--keys", "10000000")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "operate" / "capacity.md"


def test_the_resources_for_a_load_are_estimated_without_kafka(nowhere: Cli) -> None:
    ran = nowhere("capacity", *LOAD, "--standby").good()
    for what in ("processes", "Kafka's disk", "recovery, standby", "what breaks first", "partitions"):
        assert what in ran.out
    assert "Based on measurements on" in ran.err


def test_an_exceeded_limit_is_exit_code_1(nowhere: Cli) -> None:
    ran = nowhere("capacity", "--records", "10000000", "--keys", "1000000000")
    assert ran.code == 1
    broken = ran.out.partition("what breaks first")[2].splitlines()[1]
    assert int(re.search(r"(\d+)%", broken)[1]) > 100  # type: ignore[index]  # else it fails here


def test_the_json_output_has_the_load_the_measurements_and_all_numbers(nowhere: Cli) -> None:
    found = nowhere("capacity", *LOAD, "--standby", "--json").good().json
    assert found["load"]["records_s"] == 100_000
    assert found["measured"]["restore_rows_s"] == read_measured().restore_rows_s
    assert found["estimate"]["processes"] >= 2
    assert found["estimate"]["limits"][0]["used"] < 1


def test_measurements_of_another_machine_change_the_estimate(nowhere: Cli, tmp_path: Path) -> None:
    known = nowhere("capacity", *LOAD, "--json").json
    slow = known["measured"] | {"record_us": known["measured"]["record_us"] * 100, "where": "an old one"}
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(slow))
    ran = nowhere("capacity", *LOAD, "--json", "--measured", str(file))
    assert ran.json["estimate"]["processes"] > known["estimate"]["processes"]
    assert ran.json["measured"]["where"] == "an old one"


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (None, 1, "cannot be read"),
        ("{", 2, "does not have"),
        ("{}", 2, "does not have"),
        ("[1]", 2, "does not have"),
    ],
)
def test_an_invalid_file_of_measurements_is_named(
    content: str | None, code: int, said: str, nowhere: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "measured.json"
    if content is not None:
        file.write_text(content)
    ran = nowhere("capacity", *LOAD, "--measured", str(file))
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert str(file) in ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--records", "-5", "--keys", "1"), "--records -5: "),
        (("--records", "nan", "--keys", "1"), "--records nan: "),
        (("--records", "1", "--keys", "0"), "--keys 0: "),
        ((*LOAD, "--active-keys", "10000001"), "--active-keys 10000001: "),
        ((*LOAD, "--commit-ms", "-2"), "--commit-ms -2: "),
        ((*LOAD, "--retention-hours", "0"), "--retention-hours 0: "),
        ((*LOAD, "--network-mb", "inf"), "--network-mb inf: "),
        ((*LOAD, "--recovery-seconds", "0"), "--recovery-seconds 0: "),
        ((*LOAD, "--lag-seconds", "-1"), "--lag-seconds -1: "),
        (("--records", "1"), "--keys"),
    ],
)
def test_an_invalid_number_is_named(options: tuple[str, ...], said: str, nowhere: Cli) -> None:
    ran = nowhere("capacity", *options)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_the_commands_on_the_docs_page_print_the_tables_of_the_page(nowhere: Cli) -> None:
    text = PAGE.read_text().replace(" \\\n", " ")
    commands = re.findall(r"^\$ streamtable (capacity .*)$", text, re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        ran = nowhere(*command.split())
        table = ran.out.partition("what breaks first")[0]
        processes, rows = (
            re.search(rf"^{row} +([\d,]+)", table, re.MULTILINE) for row in ("processes", "changelog")
        )
        assert processes is not None
        assert rows is not None
        assert f"| processes | {processes[1]} |" in text
        assert f"| changelog | {rows[1]} rows/s |" in text


@pytest.mark.parametrize(
    ("gigabytes", "text"),
    [(0.0, "0.0 MB"), (0.0123, "12.3 MB"), (1.0, "1.0 GB"), (999.0, "999.0 GB"), (1234.0, "1.2 TB")],
)
def test_sizes_are_shown_in_the_unit_that_fits(gigabytes: float, text: str) -> None:
    assert size(gigabytes) == text
