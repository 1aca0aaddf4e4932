import subprocess
from pathlib import Path

import pytest

from localkafka import classes
from localkafka.errors import BrokerFailed
from localkafka.fixtures import OwnBroker
from localkafka.jars import class_archive
from localkafka.java import find_java


def test_a_broker_maps_the_class_archive_and_each_java_has_its_own(own_broker: OwnBroker) -> None:
    archive = class_archive(find_java())
    classes.make(archive)
    if not archive.exists():
        pytest.skip(f"{find_java()} cannot write a class archive")
    assert str(archive) in Path(f"/proc/{own_broker().pid}/maps").read_text()
    assert class_archive(Path("/bin/sh")) != archive


@pytest.mark.broker
def test_java_ignores_a_class_archive_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "kafka.jsa").write_text("torn")
    command = [str(find_java()), f"-XX:SharedArchiveFile={tmp_path / 'kafka.jsa'}", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.broker
def test_a_broker_that_does_not_start_is_a_warning_and_set_up_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(archive: Path) -> None:
        raise BrokerFailed("the broker ended with 1")

    monkeypatch.setattr(classes, "make", fail)
    classes.main()
    assert "no broker starts on this machine: the broker ended with 1" in caplog.text
    assert capsys.readouterr().out == ""
