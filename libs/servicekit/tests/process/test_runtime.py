from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from localkafka.waiting import wait_until
from servicekit.http.app import build_app
from servicekit.http.metrics import HttpMetrics
from servicekit.process.edge_settings import EdgeSettings
from servicekit.process.runtime import Program, Reachable, Runtime, wait_for_topic, wait_to_stop
from servicekit.process.service_settings import ServiceSettings
from servicekit.process.signals import StopSignals
from servicekit.status.publisher import StatusBoard
from streamtable.base.ports import TopicInfo
from streamtable.base.settings import Address, Settings
from streamtable.errors import AuthorizationError, ConfigurationError, RetryLater, TopicMismatch


class SilentCluster:
    """A cluster that does not answer until the test allows it, and then has one topic."""

    def __init__(self) -> None:
        self.answers = False
        self.asked = self.silent_answers = 0

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        self.asked += 1
        if self.asked > self.silent_answers > 0:
            self.answers = True
        if not self.answers:
            raise RetryLater("no answer")
        there = {"there": TopicInfo("there", 1, "id", False, 0, 0)}
        return {name: there[name] for name in names if name in there}


@pytest.fixture
def cluster() -> SilentCluster:
    return SilentCluster()


def test_the_wait_for_a_topic_lasts_until_the_broker_responds(cluster: SilentCluster) -> None:
    cluster.silent_answers = 3
    with StopSignals() as signals:
        wait_for_topic(cluster, "there", 30, signals)
    assert cluster.asked == 4


def test_a_missing_topic_is_an_error(cluster: SilentCluster) -> None:
    cluster.answers = True
    with StopSignals() as signals, pytest.raises(TopicMismatch, match="no topic 'missing'"):
        wait_for_topic(cluster, "missing", 30, signals)


def test_no_response_within_the_timeout_is_an_error(cluster: SilentCluster) -> None:
    with StopSignals() as signals, pytest.raises(RetryLater):
        wait_for_topic(cluster, "there", 0.1, signals)


def test_a_stop_signal_ends_the_wait_and_is_not_lost(cluster: SilentCluster) -> None:
    with StopSignals() as signals:
        signals.ask("test")
        wait_for_topic(cluster, "there", 30, signals)
        assert signals.wait(0) == "test"


def test_reachability_is_cached(cluster: SilentCluster) -> None:
    seldom = Reachable(cluster, "there", seconds=600)
    assert not seldom()
    often = Reachable(cluster, "there", seconds=0.1)
    assert not often()
    cluster.answers = True
    assert not seldom()
    assert cluster.asked == 2
    wait_until(often)


@dataclass(frozen=True)
class RefusingKafka:
    """A cluster that responds and has no visible topic."""

    admin_timeout: float = 1.0

    def cluster(self) -> Any:
        return self

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        (name,) = names
        raise AuthorizationError(
            user="me", operation="DESCRIBE", resource="topic", name=name, reason="refused"
        )

    def close(self) -> None: ...


def test_a_broker_that_hides_the_topic_is_reachable_and_the_topic_is_missing() -> None:
    refusing: Any = RefusingKafka()
    assert Program("service", ServiceSettings, "there")._silence(refusing) is None
    assert not Reachable(refusing, "there")()


def test_an_error_of_a_check_ends_the_wait() -> None:
    def check() -> None:
        raise RetryLater("the view has stopped")

    with StopSignals() as signals, pytest.raises(RetryLater, match="the view has stopped"):
        wait_to_stop(signals, check)


def test_services_and_instances_in_one_state_folder_have_separate_views(tmp_path: Path) -> None:
    nothing = cast("Any", None)

    def folder(service: str, instance: str) -> Path:
        settings = Settings(state_dir=tmp_path, instance_id=instance)
        return Runtime(
            service, settings, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
        ).views_dir

    folders = {folder(service, instance) for service in ("click-count", "user-status") for instance in "ab"}
    assert len(folders) == 4
    assert all(path.is_relative_to(tmp_path) for path in folders)


def runtime_with(**settings: str) -> Runtime[ServiceSettings]:
    edge = EdgeSettings.from_environment({f"SERVICEKIT_{name}": text for name, text in settings.items()})
    nothing: Any = None
    parts: Any = (nothing, nothing, edge, *[nothing] * 6)
    return Runtime("test", *parts)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "machine", "fd00::7"])
def test_an_address_that_other_machines_reach_needs_authentication_or_an_explicit_setting(host: str) -> None:
    address = Address(host, 8080)
    with pytest.raises(
        ConfigurationError, match=r"STREAMTABLE_HTTP_ADDRESS=.*SERVICEKIT_ALLOW_UNAUTHENTICATED=true"
    ):
        runtime_with().require_callers("STREAMTABLE_HTTP_ADDRESS", address)
    runtime_with().require_callers("STREAMTABLE_GRPC_ADDRESS", address, certificates=True)
    runtime_with(API_KEYS=f"me:read:{'0' * 64}").require_callers("STREAMTABLE_HTTP_ADDRESS", address)
    with capture_logs() as logged:
        runtime_with(ALLOW_UNAUTHENTICATED="true").require_callers("STREAMTABLE_HTTP_ADDRESS", address)
    assert [(each["event"], each["log_level"]) for each in logged] == [
        ("callers are not authenticated", "warning")
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.9"])
def test_a_loopback_address_needs_no_authentication(host: str) -> None:
    runtime_with().require_callers("STREAMTABLE_HTTP_ADDRESS", Address(host, 0))


def test_a_server_reports_that_it_is_starting_until_its_application_is_ready() -> None:
    ready = False
    board = StatusBoard("test", "one")
    runtime = replace(runtime_with(), http=HttpMetrics.register(CollectorRegistry()), status=board)
    app = build_app("test query", "1", ready=lambda: ready, metrics=lambda: b"")
    runtime.http_server(app, Address("127.0.0.1", 0))
    assert (board.role, board.state()) == ("query", "starting")
    ready = True
    assert board.state() == "ready"
