import hashlib
from pathlib import Path

import pytest

from localkafka.cache import PINS
from localkafka.errors import SetupError
from localkafka.jars import KAFKA_3_VERSION, KAFKA_VERSION, ROOTS, kafka_jars, read_pins, verify

ONE, OTHER = "org/one/1/one-1.jar", "org/other/2/other-2.jar"


def repository(folder: Path, content: dict[str, bytes]) -> dict[str, str]:
    """Write files and return their pins."""
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(data)
    return {path: hashlib.sha256(data).hexdigest() for path, data in content.items()}


def test_a_folder_that_matches_its_pins_passes(tmp_path: Path) -> None:
    verify(tmp_path, repository(tmp_path, {ONE: b"1", OTHER: b"2"}), "jars-1")


def test_a_changed_jar_is_refused_by_name(tmp_path: Path) -> None:
    pins = repository(tmp_path, {ONE: b"1", OTHER: b"2"})
    (tmp_path / OTHER).write_bytes(b"3")
    with pytest.raises(SetupError, match=f"1 jars are not .* {OTHER}"):
        verify(tmp_path, pins, "jars-1")


def test_missing_and_added_jars_are_refused(tmp_path: Path) -> None:
    pins = repository(tmp_path, {ONE: b"1"})
    with pytest.raises(SetupError, match=OTHER):
        verify(tmp_path, {**pins, OTHER: "0" * 64}, "jars-1")
    with pytest.raises(SetupError, match=ONE):
        verify(tmp_path, {}, "jars-1")


@pytest.mark.parametrize("kafka", [KAFKA_VERSION, KAFKA_3_VERSION])
def test_the_pins_hold_every_root_and_no_name_twice(kafka: str) -> None:
    pins = read_pins((PINS / f"kafka-{kafka}.sha256").read_text())
    for group, artifact, version in ROOTS[kafka]:
        assert f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar" in pins
    assert len({Path(path).name for path in pins}) == len(pins)
    assert all(len(digest) == 64 for digest in pins.values())


def test_a_version_without_pins_is_refused() -> None:
    with pytest.raises(SetupError, match=r"Kafka 2\.8\.0 has no pins"):
        kafka_jars("2.8.0")


@pytest.mark.broker
def test_the_folder_holds_the_pinned_jars_and_nothing_else() -> None:
    pins = read_pins((PINS / f"kafka-{KAFKA_VERSION}.sha256").read_text())
    assert {path.name for path in kafka_jars().iterdir()} == {Path(path).name for path in pins}
