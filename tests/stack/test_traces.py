"""The collector of the stack is configured as the compose file and the page on traces say."""

import re
from pathlib import Path
from typing import Any

from tests.stack.stack import load_yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = load_yaml((ROOT / "infra/otel/jaeger.yaml").read_text())
SERVICES: dict[str, Any] = load_yaml((ROOT / "docker-compose.yml").read_text())["services"]
PAGE = (ROOT / "docs/operate/tracing.md").read_text()


def test_every_part_that_the_collector_uses_is_configured_and_every_one_that_is_configured_is_used() -> None:
    service = CONFIG["service"]
    assert set(service["extensions"]) == CONFIG["extensions"].keys()
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in service["pipelines"].values() for name in pipeline[kind]}
        assert used == CONFIG[kind].keys()
    stored = CONFIG["extensions"]["jaeger_storage"]["backends"].keys()
    assert {CONFIG["exporters"]["jaeger_storage_exporter"]["trace_storage"]} == stored
    assert {CONFIG["extensions"]["jaeger_query"]["storage"]["traces"]} == stored


def test_the_collector_is_where_services_browsers_and_the_health_check_look_for_it() -> None:
    jaeger = SERVICES["jaeger"]
    receiver = CONFIG["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    page = CONFIG["extensions"]["jaeger_query"]["http"]["endpoint"]
    health = CONFIG["extensions"]["healthcheckv2"]["http"]["endpoint"]
    assert f"STACK_TRACES=http://jaeger:{receiver.rpartition(':')[2]} " in PAGE
    assert jaeger["ports"][0].endswith(f":{page.rpartition(':')[2]}")
    assert f":{health.rpartition(':')[2]}/" in jaeger["healthcheck"]["test"][-1]
    assert jaeger["volumes"] == ["./infra/otel:/etc/jaeger:ro"]
    assert jaeger["command"][-1] == "/etc/jaeger/jaeger.yaml"


def test_each_of_our_services_sends_its_traces_where_one_variable_says() -> None:
    for name, service in SERVICES.items():
        if name.endswith(("-emitter", "-processor", "-view", "-query")):
            assert service["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "${STACK_TRACES:-}", name


def test_the_page_names_the_number_of_traces_that_are_kept() -> None:
    kept = CONFIG["extensions"]["jaeger_storage"]["backends"]["latest"]["memory"]["max_traces"]
    assert re.search(rf"latest\s+{kept:,} traces", PAGE)
