import subprocess
from pathlib import Path

import pytest

from localkafka.classes import make
from localkafka.fixtures import OwnBroker
from localkafka.jars import class_archive
from localkafka.java import find_java


def test_a_broker_maps_the_classes_that_were_kept_and_another_java_has_others(own_broker: OwnBroker) -> None:
    archive = class_archive(find_java())
    make(archive)
    if not archive.exists():
        pytest.skip(f"{find_java()} cannot keep classes")
    assert str(archive) in Path(f"/proc/{own_broker().pid}/maps").read_text()
    assert class_archive(Path("/bin/sh")) != archive


@pytest.mark.broker
def test_java_does_without_classes_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "kafka.jsa").write_text("torn")
    command = [str(find_java()), f"-XX:SharedArchiveFile={tmp_path / 'kafka.jsa'}", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
