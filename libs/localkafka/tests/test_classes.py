import subprocess
from pathlib import Path

import pytest

from localkafka import classes
from localkafka.errors import BrokerFailed
from localkafka.fixtures import OwnBroker
from localkafka.jars import class_archive
from localkafka.java import find_java


def test_a_broker_maps_the_classes_that_were_kept_and_another_java_has_others(own_broker: OwnBroker) -> None:
    archive = class_archive(find_java())
    classes.make(archive)
    if not archive.exists():
        pytest.skip(f"{find_java()} cannot keep classes")
    assert str(archive) in Path(f"/proc/{own_broker().pid}/maps").read_text()
    assert class_archive(Path("/bin/sh")) != archive


@pytest.mark.broker
def test_java_does_without_classes_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "kafka.jsa").write_text("torn")
    command = [str(find_java()), f"-XX:SharedArchiveFile={tmp_path / 'kafka.jsa'}", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.broker
def test_where_no_broker_starts_it_is_said_and_the_rest_is_set_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(archive: Path) -> None:
        raise BrokerFailed("the broker ended with 1")

    monkeypatch.setattr(classes, "make", fail)
    classes.main()
    assert "no broker starts here: the broker ended with 1" in caplog.text
    assert capsys.readouterr().out == ""
