import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from streamtable.app import App
from streamtable.base.topics import Stream, Table
from streamtable.base.types import Guarantee
from streamtable.codec import Avro
from streamtable.codec.plain import Long, String
from streamtable.errors import ConfigurationError, GraphError, NotReady, RetryLater
from streamtable.graph.group import Group, Input, Persist
from streamtable.kafka import Kafka
from streamtable_supervisor import signals

GROUP: Group[str, int] = Group(
    "g", Input(Stream("in", String(), String()), lambda ctx, event: ctx.set(1)), Persist(Long())
)
UNREACHABLE = "127.0.0.1:1"

TWICE = """
import os, signal, sys, time
from streamtable_supervisor.signals import stop_on_signals
with stop_on_signals(lambda: print("stopping", flush=True)):
    print("ready", flush=True)
    time.sleep(60)
    time.sleep(60)
"""


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_stops_in_order_and_handlers_are_put_back(first: signal.Signals) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    calls: list[str] = []
    with signals.stop_on_signals(lambda: calls.append("stop")):
        os.kill(os.getpid(), first)
        assert calls == ["stop"]
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(second: signal.Signals) -> None:
    child = subprocess.Popen([sys.executable, "-c", TWICE], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.stdout.readline() == "stopping\n"
    child.send_signal(second)
    child.communicate(timeout=120)
    assert child.returncode == -second


def test_elsewhere_than_in_the_main_thread_signals_are_left_alone() -> None:
    seen: list[Any] = []

    def work() -> None:
        with signals.stop_on_signals(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_making_an_app_and_a_processor_connects_to_nothing_and_makes_no_folder(tmp_path: Path) -> None:
    processor = App(UNREACHABLE, tmp_path / "state").processor(GROUP)
    assert not (tmp_path / "state").exists()
    assert not processor.ready


def test_a_view_is_followed_from_the_start_until_it_or_the_app_is_closed(tmp_path: Path) -> None:
    with App(Kafka(UNREACHABLE, admin_timeout=0.2), tmp_path) as made:
        view = made.view(GROUP.table)
        assert made.view(GROUP.table) is view
        with pytest.raises(NotReady, match=r"Kafka (has not answered yet|does not answer)"):
            view.get("alice")
        view.close()
        again = made.view(GROUP.table)
        assert again is not view
    for closed in (view, again):
        with pytest.raises(NotReady, match="closed"):
            closed.get("alice")
    assert "views-view" not in [thread.name for thread in threading.enumerate()]


def test_a_table_has_one_view_and_another_of_its_name_is_refused(tmp_path: Path) -> None:
    with App(Kafka(UNREACHABLE, admin_timeout=0.2), tmp_path) as made:
        made.view(GROUP.table)
        with pytest.raises(ConfigurationError, match="viewed here already as"):
            made.view(Table(GROUP.table.name, String(), String()))


def test_a_group_or_a_name_in_the_place_of_its_table_or_stream_is_refused(tmp_path: Path) -> None:
    group: Any = Group("g", Input(Stream("s", String(), Long()), lambda ctx, event: None), Persist(Long()))
    with App("127.0.0.1:1", tmp_path) as app:
        with pytest.raises(GraphError, match=r"view\(\) takes a Table, .* Group: give its \.table"):
            app.view(group)
        with pytest.raises(GraphError, match=r"tail\(\) takes a Stream, not a value of type Table"):
            app.tail(group.table)
        with pytest.raises(GraphError, match=r"emitter\(\) takes a Stream, not a value of type str"):
            app.emitter("s")  # type: ignore[arg-type]


def test_settings_reach_the_processor_and_the_cluster(tmp_path: Path) -> None:
    made = App.from_env(
        {
            "STREAMTABLE_BOOTSTRAP_SERVERS": UNREACHABLE,
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
    kafka: Any = made.kafka
    assert (kafka.bootstrap_servers, kafka.group_protocol, kafka.static_membership) == (
        UNREACHABLE,
        "classic",
        True,
    )
    assert dict(kafka.options) == {"linger.ms": "9"}
    processor: Any = made.processor(GROUP)
    given = processor.settings
    assert (given.instance_id, given.guarantee, given.commit_interval) == (
        "i-7",
        Guarantee.AT_LEAST_ONCE,
        0.5,
    )
    assert (given.start_timeout, given.state_retention, given.standby) == (3.0, 77.0, True)


@pytest.mark.parametrize(("text", "option"), [("none", False), ("1", 1), ("3", 3), ("all", True)])
def test_the_setting_of_standby_copies_is_a_number_of_losses_or_all(
    tmp_path: Path, text: str, option: object
) -> None:
    app = App.from_env({"STREAMTABLE_STATE_DIR": str(tmp_path), "STREAMTABLE_STANDBY": text})
    processor: Any = app.processor(GROUP)
    assert (processor.settings.standby, type(processor.settings.standby)) == (option, type(option))


def test_a_broker_that_is_not_there_is_waited_for_only_as_long_as_the_settings_say(tmp_path: Path) -> None:
    kafka = Kafka(UNREACHABLE, admin_timeout=0.2)
    with pytest.raises(RetryLater, match=UNREACHABLE):
        App(kafka, tmp_path).run(GROUP, start_timeout=0.1)


def test_a_run_leaves_pythons_garbage_collection_as_it_was(tmp_path: Path) -> None:
    before = gc.get_threshold()
    with pytest.raises(RetryLater):
        App(Kafka(UNREACHABLE, admin_timeout=0.2), tmp_path).run(GROUP, start_timeout=0.1)
    assert gc.get_threshold() == before


def test_what_reads_large_batches_of_avro_is_loaded_while_the_group_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = threading.Event()
    monkeypatch.setattr(Avro, "warm_up", staticmethod(loaded.set))
    group: Group[str, Any] = Group("g", Input(Stream("in", String(), Avro("long")), lambda ctx, event: None))
    with pytest.raises(RetryLater):
        App(Kafka(UNREACHABLE, admin_timeout=0.2), tmp_path).run(group, start_timeout=0.1)
    assert loaded.wait(60)


def test_the_wrapper_of_handlers_is_the_processors(
    tmp_path: Path,
) -> None:
    def around(handler: Any) -> Any:
        return handler

    kafka = Kafka(UNREACHABLE, admin_timeout=0.2)
    processor: Any = App(kafka, tmp_path).processor(GROUP, around=around)
    assert processor.settings.around is around
    processor.close()
