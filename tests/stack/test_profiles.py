"""The profiles of third-party programs: each runs beside our services where its image is available, else the test is skipped with the reason."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from tests.stack.programs import load
from tests.stack.stack import PORTS, UP_SECONDS, Stack, free_ports, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
engine = load("infra/engine.py")
PROCESSOR: Final = "tweet-reach-processor"
OURS: Final = ("tweet-reach-emitter", "tweet-reach-view", "tweet-reach-query")
STORES: Final = {
    "redis": "redis://{}/0",
    "elasticsearch": "elasticsearch+http://{}/reach?fields=text:text",
    "cassandra": "cassandra://{}/reach/rows?replicas=datacenter1:1",
}
INSIDE: Final = {"redis": "redis:6379", "elasticsearch": "elasticsearch:9200", "cassandra": "cassandra:9042"}


@pytest.fixture(scope="module")
def stack(images: None) -> Iterator[Stack]:
    """Tweet-reach without its processor, which comes with a store."""
    made = Stack(f"streamtable-profiles-{os.getpid()}", free_ports(PORTS))
    try:
        made.compose("up", "--detach", "--wait", "--wait-timeout", str(UP_SECONDS), *OURS)
        yield made
    finally:
        made.compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "40")


def brought_up(stack: Stack, profile: str, service: str) -> None:
    """Wait until the service is healthy; skip the test, with the reason, where its image is not available."""
    configured = json.loads(stack.compose("--profile", profile, "config", "--format", "json"))
    if why := engine.no_image(configured["services"][service]["image"]):
        pytest.skip(why)
    options = ("--detach", "--wait", "--wait-timeout", str(UP_SECONDS), "--no-deps")
    stack.compose("--profile", profile, "up", *options, service)


def answer(stack: Stack, port: str, path: str, **parameters: str) -> Any:
    asked = httpx.get(f"{stack.url(port)}{path}", params=parameters, timeout=20)
    return asked.raise_for_status().json()


@pytest.mark.parametrize("store", STORES)
def test_tweet_reach_keeps_its_rows_in_a_store_of_the_stack(stack: Stack, store: str) -> None:
    brought_up(stack, "stores", store)
    outside = f"127.0.0.1:{stack.ports[f'STACK_{store.upper()}_PORT']}"
    if store != "redis":  # where nothing has to be made
        with stack.ours("streamtable", "store", "create", STORES[store].format(outside)) as made:
            said, _ = made.communicate(timeout=120)
        assert made.returncode == 0, said

    configured = replace(stack, settings={"STACK_REACH_STORE": STORES[store].format(INSIDE[store])})
    configured.compose("--profile", "stores", "up", "--detach", "--wait", "--no-deps", PROCESSOR)
    emitter, url = stack.url("STACK_REACH_EMITTER_PORT"), f"{store}.com"
    follows = [{"author": "ann", "follower": follower} for follower in ("bob", "cy")]
    httpx.post(f"{emitter}/follows", json=follows, timeout=60).raise_for_status()
    httpx.post(f"{emitter}/tweets", json={"author": "ann", "url": url}, timeout=60).raise_for_status()
    wait_until(
        f"the reach of {url} shows",
        lambda: answer(stack, "STACK_REACH_QUERY_PORT", "/reach", url=url)["reach"] == 2,
    )

    # The next store is empty: a group that has committed would say so, and stop.
    configured.compose("--profile", "stores", "rm", "--stop", "--force", "--volumes", PROCESSOR, store)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{stack.ports['STACK_KAFKA_PORT']}"})
    for each in admin.delete_consumer_groups(["tweet-reach-authors", "tweet-reach-urls"]).values():
        each.result(60)


def test_products_of_postgresql_reach_the_prices_of_the_inventory(stack: Stack) -> None:
    brought_up(stack, "capture", "postgres")
    brought_up(stack, "capture", "connect")
    services = ("inventory-emitter", "inventory-processor", "inventory-query", "inventory-products")
    profiles = ("--profile", "inventory", "--profile", "capture")
    stack.compose(*profiles, "up", "--detach", "--wait", "--wait-timeout", str(UP_SECONDS), *services)
    psql = ("exec", "--no-TTY", "postgres", "psql", "--username", "streamtable", "--command")
    stack.compose(*profiles, *psql, "insert into products values ('lamp', 'light', 1999)")
    emitter = stack.url("STACK_INVENTORY_EMITTER_PORT")
    for path, what in (("/listings", {"threshold": 0}), ("/adjustments", {"percent": 25})):
        event = {"product": "lamp", "warehouse": "oslo", **what}
        httpx.post(f"{emitter}{path}", json=event, timeout=60).raise_for_status()

    def priced(price: int) -> bool:
        found: int = answer(stack, "STACK_INVENTORY_QUERY_PORT", "/prices/lamp@oslo")["price"]
        return found == price

    wait_until("the row is joined", lambda: priced(2498))
    stack.compose(*profiles, *psql, "update products set price = 2400")
    wait_until("the change is joined", lambda: priced(3000))


def test_prometheus_reads_our_services_and_takes_the_alerts(stack: Stack) -> None:
    brought_up(stack, "observability", "prometheus")

    def read() -> bool:
        found = answer(stack, "STACK_PROMETHEUS_PORT", "/api/v1/targets")["data"]["activeTargets"]
        up = {each["labels"]["instance"] for each in found if each["health"] == "up"}
        return len(up) >= len(OURS)

    wait_until("all services are read", read)
    rules = answer(stack, "STACK_PROMETHEUS_PORT", "/api/v1/rules")["data"]["groups"]
    assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}


@pytest.mark.parametrize(
    ("profile", "service", "path"),
    [
        ("observability", "grafana", "/api/health"),
        ("observability", "jaeger", "/api/services"),
        ("kafka-ui", "kafka-ui", "/actuator/health"),
    ],
)
def test_a_page_of_others_is_served(stack: Stack, profile: str, service: str, path: str) -> None:
    brought_up(stack, profile, service)
    assert answer(stack, f"STACK_{service.upper().replace('-', '_')}_PORT", path)
