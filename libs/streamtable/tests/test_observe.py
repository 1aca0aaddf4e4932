import io
import json
import logging
import os
import pty
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from streamtable.base.settings import Address
from streamtable.observe import (
    Metrics,
    SilentProgress,
    configure_logging,
    log_as_set,
    metrics_page,
    progress_on,
    serve_metrics,
)
from streamtable.terminal_progress import TerminalProgress

made_before_it_was_configured = structlog.get_logger()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def terminal() -> Iterator[tuple[io.TextIOWrapper, int]]:
    """A real terminal: text written to the first can be read from the second."""
    leader, follower = pty.openpty()
    stream = os.fdopen(follower, "w")
    yield stream, leader
    stream.close()
    os.close(leader)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_program_that_configures_nothing_gets_its_log_on_standard_error() -> None:
    program = "from streamtable import Kafka; import structlog; Kafka('127.0.0.1:1').producer().close(0); "
    shown = subprocess.run(
        [sys.executable, "-c", program + "structlog.get_logger().info('told')"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "told" in shown.stderr
    assert shown.stdout == ""


PROGRAM = """
import sys, structlog
from streamtable import Settings, Kafka
Kafka("127.0.0.1:9092")  # as programs have it at the top
def handler(secret):
    raise ValueError("no")
try:
    handler("hunter" + "2")
except ValueError as error:
    structlog.get_logger().warning("failed", exc_info=error)
Kafka.from_settings(Settings.from_environment({"STREAMTABLE_LOG_FORMAT": "json", "STREAMTABLE_LOG_LEVEL": "warning"}))
structlog.get_logger().info("quiet")
structlog.get_logger().warning("loud")
"""


def test_by_default_tracebacks_have_no_local_variables_and_settings_that_are_read_take_effect() -> None:
    shown = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    *console, line = shown.stderr.splitlines()
    assert "ValueError: no" in console
    assert "hunter2" not in shown.stderr
    assert (json.loads(line)["event"], json.loads(line)["level"]) == ("loud", "warning")


def test_a_program_that_configures_its_log_is_left_alone_by_settings() -> None:
    stream = io.StringIO()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(stream))
    log_as_set("json", "error")
    structlog.get_logger().info("mine")
    assert "mine" in stream.getvalue()


def test_every_json_line_has_time_level_event_and_what_was_bound() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream)
    made_before_it_was_configured.bind(group="click-count").info(
        "committed", records=3, raw=b"\xff", text="a\nb"
    )
    (line,) = lines(stream)
    assert line["event"] == "committed"
    assert line["level"] == "info"
    assert abs(datetime.now(UTC) - datetime.fromisoformat(line["time"])) < timedelta(minutes=1)
    assert (line["group"], line["records"], line["text"]) == ("click-count", 3, "a\nb")


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    configure_logging("json", "warning", stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet")
    structlog.get_logger().warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_lines_of_the_standard_library_look_like_ours() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream)
    logging.getLogger("uvicorn").error("refused %s", "a request")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("refused a request", "error", "uvicorn")
    assert "time" in line


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_is_written_without_local_variables(log_format: Any) -> None:
    stream = io.StringIO()
    configure_logging(log_format, "info", stream)
    password = "hunter" + "2"
    try:
        raise ValueError(len(password))
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed too")
    text = stream.getvalue()
    assert text.count("ValueError: 7") == 2
    assert password not in text


def test_a_terminal_gets_console_lines_and_a_file_json(terminal: tuple[io.TextIOWrapper, int]) -> None:
    stream, leader = terminal
    configure_logging(None, "info", stream)
    structlog.get_logger().info("hello")
    stream.flush()
    assert b"hello" in (shown := os.read(leader, 10_000))
    assert not shown.startswith(b"{")
    file = io.StringIO()
    configure_logging(None, "info", file)
    structlog.get_logger().info("hello")
    assert lines(file)[0]["event"] == "hello"


def test_metrics_appear_on_the_page_with_their_labels_and_not_in_the_global_registry() -> None:
    registry = CollectorRegistry()
    metrics = Metrics.register(registry)
    metrics.records_in.labels("click-count", "user-clicks", 3).inc(500)
    metrics.commit_seconds.labels("click-count").observe(0.02)
    metrics.rebalances.labels("click-count", "assigned").inc()
    page = metrics_page(registry).decode()
    assert (
        'streamtable_records_in_total{group="click-count",partition="3",topic="user-clicks"} 500.0'
        in page.splitlines()
    )
    assert 'streamtable_commit_seconds_bucket{group="click-count",le="0.025"} 1.0' in page
    assert 'streamtable_rebalances_total{event="assigned",group="click-count"} 1.0' in page
    assert not any(metric.name.startswith("streamtable") for metric in REGISTRY.collect())


def test_two_processes_worth_of_metrics_do_not_disturb_each_other() -> None:
    first, second = CollectorRegistry(), CollectorRegistry()
    Metrics.register(first).aborts.labels("g", "the broker is away").inc()
    Metrics.register(second)
    assert (
        first.get_sample_value("streamtable_aborts_total", {"group": "g", "reason": "the broker is away"})
        == 1
    )
    assert (
        second.get_sample_value("streamtable_aborts_total", {"group": "g", "reason": "the broker is away"})
        is None
    )


def test_a_partition_that_left_has_no_lag_any_more_but_its_counts_stay() -> None:
    registry = CollectorRegistry()
    metrics = Metrics.register(registry)
    labels = {"group": "g", "topic": "t", "partition": "1"}
    metrics.lag.labels(**labels).set(7)
    metrics.records_in.labels(**labels).inc()
    metrics.forget("g", "t", 1)
    metrics.forget("g", "t", 1)
    assert registry.get_sample_value("streamtable_lag_records", labels) is None
    assert registry.get_sample_value("streamtable_records_in_total", labels) == 1


def test_the_page_is_served_on_a_free_port_until_the_block_ends() -> None:
    registry = CollectorRegistry()
    Metrics.register(registry).aborts.labels("g", "the broker is away").inc()
    with (
        serve_metrics(registry, Address("127.0.0.1", 0)) as address,
        urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response,
    ):
        assert b'streamtable_aborts_total{group="g",reason="the broker is away"} 1.0' in response.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=5)


def test_the_page_is_served_under_the_names_of_the_server_only() -> None:
    registry = CollectorRegistry()
    with serve_metrics(registry, Address("127.0.0.1", 0), ["metrics.example.org"]) as address:

        def status(host: str) -> int:
            request = urllib.request.Request(f"http://{address}/metrics", headers={"Host": host})
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return int(response.status)
            except urllib.error.HTTPError as error:
                return error.code

        own = [f"127.0.0.1:{address.port}", "localhost", "metrics.example.org"]
        assert [status(host) for host in own] == [200, 200, 200]
        assert [status(host) for host in ("attacker.example", "0.0.0.0", "a@127.0.0.1")] == [421, 421, 421]


def test_progress_is_shown_in_a_terminal_and_gone_when_its_tasks_ended(
    terminal: tuple[io.TextIOWrapper, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream, leader = terminal
    progress = progress_on(stream)
    assert isinstance(progress, TerminalProgress)
    with closing(progress):
        progress.update("click-count-table[3]", 10, 100)
        progress.update("click-count-table[4]", 0, 50)
        progress.update("click-count-table[3]", 60, 110)
        progress.end("click-count-table[3]")
        progress.end("click-count-table[3]")
    stream.write("after")
    stream.flush()
    shown = b""
    while b"after" not in shown:  # a terminal returns its text in pieces
        shown += os.read(leader, 100_000)
    assert b"click-count-table[4]" in shown
    assert shown.endswith(b"after")


def test_progress_is_silent_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = progress_on(stream)
    assert isinstance(progress, SilentProgress)
    progress.update("t", 1, 2)
    progress.end("t")
    progress.close()
    assert stream.getvalue() == ""


LOGGING_PROGRAM = """
import logging, sys, threading, structlog
from prometheus_client import CollectorRegistry
from streamtable.observe import Metrics, configure_logging, log_to_stderr_by_default
from streamtable.terminal_progress import TerminalProgress
registry = CollectorRegistry()
lost = Metrics.register(registry).log_lost.inc
CONFIGURE
structlog.get_logger().warning("one")
structlog.get_logger().bind(group="g").error("two", exc_info=ValueError("no"))
logging.getLogger("library").error("three")
progress = TerminalProgress(sys.stderr)
progress.update("loading", 1, 2)
progress.close()
sys.stdout.write(f"{registry.get_sample_value('streamtable_log_writes_lost_total'):g}")
sys.stdout.flush()
"""


@pytest.mark.parametrize("log", ["/dev/full", "closed pipe", "closed terminal"])
@pytest.mark.parametrize(
    "configure",
    [
        "log_to_stderr_by_default()",
        "configure_logging('json', 'info', sys.stderr, lost)",
        "configure_logging('console', 'info', sys.stderr, lost)",
    ],
)
def test_a_log_line_that_cannot_be_written_is_lost_and_counted_and_never_reaches_the_code_that_logs(
    log: str, configure: str
) -> None:
    if log == "/dev/full":
        stream = os.open(log, os.O_WRONLY)
    else:
        other, stream = os.pipe() if log == "closed pipe" else pty.openpty()
        os.close(other)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", LOGGING_PROGRAM.replace("CONFIGURE", configure)],
            stdout=subprocess.PIPE, stderr=stream, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(stream)
    assert ended.stdout, "the program has ended before its last line"
    assert ("lost" in configure) == (int(ended.stdout) >= 3)
