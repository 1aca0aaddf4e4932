"""Processes of one host have different instance ids, and a process that is started again has its former one."""

import gc
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from streamtable import App, Count, Group, Input, Long, Persist, Settings, Stream, String
from streamtable.base.instance_id import instance_id
from streamtable.errors import ConfigurationError

HOST = socket.gethostname()
OTHER_PROCESS = """
import sys, time
from streamtable.base.instance_id import instance_id
held = instance_id(sys.argv[1], None, {})
print(held.name, flush=True)
time.sleep(60)
"""


@pytest.fixture
def group() -> Group[str, int]:
    clicks: Stream[str, str] = Stream("clicks", String(), String())
    return Group(f"g-{uuid4()}", Input(clicks, aggregate=Count()), Persist(Long()))


def id_of(processor: Any) -> str:
    name: str = processor.settings.instance_id
    return name


def test_each_process_of_a_host_has_its_own_and_a_killed_one_gives_its_own_to_the_next(
    group: Group[str, int],
) -> None:
    command = [sys.executable, "-c", OTHER_PROCESS, group.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == f"{HOST}\n"
        mine = instance_id(group.name, None, {})
        assert mine.name == f"{HOST}-2"
        other.kill()
    again = instance_id(group.name, None, {})
    assert again.name == HOST
    mine.release()
    mine.release()
    assert instance_id(group.name, None, {}).name == f"{HOST}-2"


def test_processors_of_one_group_differ_and_those_of_other_groups_are_not_counted(
    group: Group[str, int], tmp_path: Path
) -> None:
    app = App("127.0.0.1:1", tmp_path)
    one, two = app.processor(group), App("127.0.0.1:1", tmp_path / "b").processor(group)
    other = app.processor(Group(f"{group.name}-other", *group.inputs, Persist(Long())))
    assert [id_of(each) for each in (one, two, other)] == [HOST, f"{HOST}-2", HOST]
    two.close()  # type: ignore[attr-defined] # as `run` does in the end
    assert id_of(app.processor(group)) == f"{HOST}-2"
    del one
    gc.collect()
    assert id_of(app.processor(group)) == HOST


def test_the_environment_names_it_also_for_an_app_that_is_made_without_settings(
    group: Group[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMTABLE_INSTANCE_ID", "pod-3")
    app = App("127.0.0.1:1", tmp_path)
    assert [id_of(app.processor(group)), id_of(app.processor(group))] == ["pod-3", "pod-3"]
    assert id_of(app.processor(group, instance_id="mine")) == "mine"
    monkeypatch.setenv("STREAMTABLE_INSTANCE_ID", "pod 3")
    with pytest.raises(ConfigurationError, match="instance_id='pod 3'"):
        app.processor(group)


def test_an_app_with_the_settings_of_the_environment_numbers_processes_unless_they_are_named(
    group: Group[str, int], tmp_path: Path
) -> None:
    apps = [App.from_env({"STREAMTABLE_STATE_DIR": str(tmp_path)}) for _ in range(2)]
    processors = [app.processor(group) for app in apps]
    assert [id_of(each) for each in processors] == [HOST, f"{HOST}-2"]
    named = App.from_settings(Settings(instance_id="a", state_dir=tmp_path))
    assert id_of(named.processor(group)) == "a"
