import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from streamtable import app
from streamtable.codec import Avro
from streamtable.codec.plain import Long, String
from streamtable.errors import NotReady, RetryLater
from streamtable.graph import Group, Input, Persist
from streamtable.kafka import Kafka
from streamtable.settings import Settings
from streamtable.tables.position import Guarantee
from streamtable.topics import Stream

GROUP: Group[str, int] = Group(
    "g", Input(Stream("in", String(), String()), lambda ctx, event: ctx.set(1)), Persist(Long())
)
NOBODY = "127.0.0.1:1"

TWICE = """
import os, signal, sys, time
from streamtable.app import stop_on_signals
with stop_on_signals(lambda: print("stopping", flush=True)):
    print("ready", flush=True)
    time.sleep(60)
    time.sleep(60)
"""


def test_the_first_signal_stops_in_order_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    calls: list[str] = []
    with app.stop_on_signals(lambda: calls.append("stop")):
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == ["stop"]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(second: signal.Signals) -> None:
    child = subprocess.Popen([sys.executable, "-c", TWICE], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.stdout.readline() == "stopping\n"
    child.send_signal(second)
    child.communicate(timeout=20)
    assert child.returncode == -second


def test_elsewhere_than_in_the_main_thread_signals_are_left_alone() -> None:
    seen: list[Any] = []

    def work() -> None:
        with app.stop_on_signals(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_building_a_processor_or_a_view_connects_to_nothing_and_makes_no_folder(tmp_path: Path) -> None:
    kafka = Kafka(NOBODY)
    processor = app.Processor(GROUP, kafka, state_dir=tmp_path / "state")
    view = app.View(GROUP.table, kafka, state_dir=tmp_path / "state")
    with pytest.raises(NotReady, match=r"not started: .* call start\(\)"):
        view.get("alice")
    assert not (tmp_path / "state").exists()
    assert not processor.ready


def test_settings_reach_the_processor_and_the_cluster(tmp_path: Path) -> None:
    settings = Settings.from_environment(
        {
            "STREAMTABLE_BOOTSTRAP_SERVERS": NOBODY,
            "STREAMTABLE_STATE_DIR": str(tmp_path),
            "STREAMTABLE_INSTANCE_ID": "i-7",
            "STREAMTABLE_GUARANTEE": "at_least_once",
            "STREAMTABLE_COMMIT_INTERVAL": "0.5",
            "STREAMTABLE_START_TIMEOUT": "3",
            "STREAMTABLE_STATE_RETENTION": "77",
            "STREAMTABLE_STANDBY": "all",
            "STREAMTABLE_GROUP_PROTOCOL": "classic",
            "STREAMTABLE_STATIC_MEMBERSHIP": "true",
            "STREAMTABLE_KAFKA_LINGER_MS": "9",
        }
    )
    kafka = app.kafka_from(settings)
    assert (kafka.bootstrap_servers, kafka.group_protocol, kafka.static_membership) == (
        NOBODY,
        "classic",
        True,
    )
    assert dict(kafka.options) == {"linger.ms": "9"}
    made = app.Processor.from_settings(GROUP, settings).settings
    assert (made.instance_id, made.guarantee, made.commit_interval) == ("i-7", Guarantee.AT_LEAST_ONCE, 0.5)
    assert (made.start_timeout, made.state_retention, made.standby) == (3.0, 77.0, True)


def test_a_broker_that_is_not_there_is_waited_for_only_as_long_as_the_settings_say(tmp_path: Path) -> None:
    kafka = Kafka(NOBODY, admin_timeout=0.2)
    with pytest.raises(RetryLater, match=NOBODY):
        app.Processor(GROUP, kafka, state_dir=tmp_path, start_timeout=0.1).run()


def test_a_run_leaves_pythons_garbage_collection_as_it_was(tmp_path: Path) -> None:
    before = gc.get_threshold()
    with pytest.raises(RetryLater):
        app.Processor(GROUP, Kafka(NOBODY, admin_timeout=0.2), state_dir=tmp_path, start_timeout=0.1).run()
    assert gc.get_threshold() == before


def test_what_reads_large_batches_of_avro_is_loaded_while_the_group_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = threading.Event()
    monkeypatch.setattr(app, "warm_up", loaded.set)
    group: Group[str, Any] = Group("g", Input(Stream("in", String(), Avro("long")), lambda ctx, event: None))
    with pytest.raises(RetryLater):
        app.Processor(group, Kafka(NOBODY, admin_timeout=0.2), state_dir=tmp_path, start_timeout=0.1).run()
    assert loaded.wait(10)


def test_what_goes_around_handlers_and_how_long_deferred_work_may_take_are_the_processors(
    tmp_path: Path,
) -> None:
    def around(handler: Any) -> Any:
        return handler

    kafka = Kafka(NOBODY, admin_timeout=0.2)
    processor = app.Processor(GROUP, kafka, state_dir=tmp_path, around=around, defer_timeout=3.0)
    assert (processor.settings.around, processor.settings.defer_timeout) == (around, 3.0)
    processor.close()
