"""The compose file has the documented settings."""

import re
from pathlib import Path
from typing import Any

import pytest
from infra.scenarios.compose import deployed
from infra.scenarios.manifest import Program, load_all
from tests.stack.stack import load_yaml, rendered

from localkafka.connect import PLUGINS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = load_yaml(TEXT)["services"]
DEFAULT = {name: service for name, service in SERVICES.items() if "profiles" not in service}
OURS = {name: service for name, service in SERVICES.items() if service.get("pull_policy") == "never"}
OVER: dict[str, dict[str, Any]] = load_yaml((ROOT / "infra/secure/compose.yml").read_text())["services"]
PAGE = (ROOT / "docs/how-to/run-the-stack.md").read_text()
PROGRAMS = deployed(load_all(ROOT))
LISTING = ("click-count", "inventory", "user-status")
"""The scenarios whose queries serve rows in pages."""
UNITS = {"m": 1, "g": 1024}


def megabytes(service: dict[str, Any]) -> int:
    limit = service["deploy"]["resources"]["limits"]["memory"]
    return int(limit[:-1]) * UNITS[limit[-1]]


def test_the_default_profile_takes_at_most_three_gigabytes() -> None:
    assert sum(map(megabytes, DEFAULT.values())) <= 3 * 1024


def test_the_default_profile_has_three_scenarios_and_the_console() -> None:
    scenarios = ("click-count", "user-status", "tweet-reach")
    roles = ("emitter", "processor", "view", "query")
    assert DEFAULT.keys() == {"kafka", "topics", "console"} | {
        f"{s}-{role}" for s in scenarios for role in roles
    }


def host_port(service: dict[str, Any]) -> str:
    """Return the port published on this machine: a number, a range, or empty for any free port."""
    (port,) = service["ports"]
    address, published, _ = port.split(":")
    assert address == "127.0.0.1"
    return str(published)


@pytest.mark.parametrize(
    "store", ["", "embedded:", "elasticsearch+http://elasticsearch:9200/reach?fields=text:text"]
)
def test_the_query_of_tweet_reach_is_given_the_store_of_its_processor(store: str) -> None:
    services = rendered(TEXT, STACK_REACH_STORE=store)
    environments = [services[f"tweet-reach-{role}"]["environment"] for role in ("processor", "query")]
    assert [each["STREAMTABLE_STORE"] for each in environments] == [store or "embedded:"] * 2
    assert environments[1]["STREAMTABLE_HTTP_ADDRESS"] == "0.0.0.0:8080"


@pytest.mark.parametrize(
    "program",
    [each for each in PROGRAMS if each.kind in ("view", "query") and not each.single],
    ids=lambda program: program.service,
)
def test_a_view_or_query_can_be_scaled_to_two(program: Program) -> None:
    name, variable = program.service, program.port_variable
    assert host_port(rendered(TEXT)[name]).isdecimal()  # one copy is where the pages say
    assert host_port(rendered(TEXT, **{variable: ""})[name]) == ""
    assert host_port(rendered(TEXT, **{variable: "9001-9002"})[name]) == "9001-9002"
    scaled = SERVICES[name]
    assert not {"container_name", "hostname", "volumes"} & scaled.keys()
    assert "STREAMTABLE_INSTANCE_ID" not in scaled["environment"]


@pytest.mark.parametrize(
    "program",
    [each for each in PROGRAMS if each.kind == "query" and each.scenario in LISTING],
    ids=lambda program: program.service,
)
def test_copies_of_a_query_that_lists_rows_can_be_given_the_same_secret_for_cursors(program: Program) -> None:
    environment = SERVICES[program.service]["environment"]
    assert environment[program.variable("CURSOR_SECRET")] is None  # as where `docker compose` is called


@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.answers], ids=lambda program: program.service
)
def test_each_replica_of_a_processor_that_answers_queries_does_so_at_a_name_of_its_own(
    program: Program,
) -> None:
    service = SERVICES[program.service]
    environment = service["environment"]
    _, _, port = environment["STREAMTABLE_GRPC_ADDRESS"].rpartition(":")
    assert environment[program.variable("QUERY_ADDRESS")] == f":{port}"  # the name of its container
    assert not {"container_name", "hostname", "ports"} & service.keys()


def test_a_query_that_asks_the_processors_has_no_copy_and_takes_no_more_memory_than_one_that_has() -> None:
    asking, copying = SERVICES["click-count-instances"], SERVICES["click-count-query"]
    assert asking["command"] == ["query", "--over", "instances"]
    assert "volumes" not in asking
    assert megabytes(asking) <= megabytes(copying)


def test_the_stack_and_the_rights_over_it_have_every_program_of_the_manifests() -> None:
    assert SERVICES.keys() & OVER.keys() >= {each.service for each in PROGRAMS}


def test_tweet_reach_needs_no_other_store_unless_one_is_configured() -> None:
    processor = SERVICES["tweet-reach-processor"]
    assert processor["volumes"] == ["tweet-reach-processor:/var/lib/streamtable"]
    assert processor["depends_on"]["redis"] == {"condition": "service_healthy", "required": False}


def test_what_breaks_the_way_to_kafka_can_reach_one_process_only() -> None:
    chaotic = {name: service for name, service in SERVICES.items() if service.get("profiles") == ["chaos"]}
    assert chaotic.keys() == {"chaos", "click-count-processor-chaos"}
    assert chaotic["chaos"]["networks"]["chaos"] == {"aliases": ["kafka"]}
    assert chaotic["click-count-processor-chaos"]["networks"] == ["chaos"]
    others = [service for name, service in SERVICES.items() if name not in chaotic]
    assert not any("chaos" in service.get("networks", {}) for service in others)
    assert "docker.sock" not in TEXT


def test_every_service_has_bounds_and_a_health_check() -> None:
    for name, service in SERVICES.items():
        assert service["deploy"]["resources"]["limits"]["pids"] > 0, name
        assert service["logging"]["options"]["max-size"], name
        ends = name in {"topics", "inventory-connector"} or "spark-jobs" in service.get("profiles", [])
        if not ends:
            assert {"test", "interval", "timeout", "retries"} & service["healthcheck"].keys(), name


@pytest.mark.parametrize("name", OURS)
def test_our_services_run_on_a_file_system_that_is_read_only(name: str) -> None:
    assert OURS[name]["read_only"] is True


@pytest.mark.parametrize("name", [*SERVICES, *(OVER.keys() - SERVICES.keys())])
def test_every_service_runs_without_capabilities_and_gains_none(name: str) -> None:
    service = SERVICES.get(name) or OVER[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    for added in ("privileged", "cap_add"):
        assert added not in service
        assert added not in OVER.get(name, {})


def test_the_connector_is_registered_when_its_database_and_kafka_connect_are_healthy_and_before_products_are_copied() -> (
    None
):
    captured = {name for name, service in SERVICES.items() if "capture" in service.get("profiles", [])}
    assert captured == {"postgres", "connect", "inventory-connector", "inventory-products"}
    waited_for = SERVICES["inventory-connector"]["depends_on"]
    assert {name: how["condition"] for name, how in waited_for.items()} == {
        "topics": "service_completed_successfully",
        "connect": "service_healthy",
        "postgres": "service_healthy",
    }
    after = SERVICES["inventory-products"]["depends_on"]["inventory-connector"]
    assert after == {"condition": "service_completed_successfully"}
    assert "wal_level=logical" in SERVICES["postgres"]["command"]


def test_kafka_connect_has_the_connector_of_the_version_that_tests_run() -> None:
    version = SERVICES["connect"]["image"].rpartition(":")[2].removesuffix(".Final}")
    assert PLUGINS["io.debezium.connector.postgresql.PostgresConnector"].endswith(f"-{version}")


@pytest.mark.parametrize("name", ["redis", "cassandra"])
def test_a_store_whose_image_starts_as_root_is_started_as_its_own_user(name: str) -> None:
    assert SERVICES[name]["user"] == name  # as root it would need capabilities to give up its rights


def test_every_published_port_is_a_variable_and_bound_to_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) > 10
    for port in published:
        assert re.fullmatch(r"\$\{STACK_BIND:-127\.0\.0\.1}:\$\{STACK_[A-Z_]+_PORT:?-\d+}:\d+", port), port
    defaults = re.findall(r"_PORT:?-(\d+)}:\d+", " ".join(published))
    assert len(set(defaults)) == len(defaults)


def test_only_the_development_stack_serves_callers_that_it_does_not_know() -> None:
    open_to_all = {
        name
        for name, service in OURS.items()
        if service.get("environment", {}).get("SERVICEKIT_ALLOW_UNAUTHENTICATED") == "true"
    }
    served = {name for name in OURS if name.endswith(("-emitter", "-view", "-query"))}
    assert served <= open_to_all
    for name in served:
        assert OVER[name]["environment"]["SERVICEKIT_ALLOW_UNAUTHENTICATED"] == "false"
        assert OVER[name]["env_file"]  # SERVICEKIT_API_KEYS


def test_what_is_scaled_shares_no_port_and_has_no_name_of_its_own() -> None:
    for name in (each.service for each in PROGRAMS if each.kind == "processor"):
        assert "ports" not in SERVICES[name]
        assert not {"container_name", "hostname"} & SERVICES[name].keys()
        assert "STREAMTABLE_INSTANCE_ID" not in SERVICES[name]["environment"]  # so it is the host name


def test_every_variable_of_the_file_is_explained_on_its_page() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", TEXT))
    assert used - set(re.findall(r"`([A-Z_]+)`", PAGE)) == set()
