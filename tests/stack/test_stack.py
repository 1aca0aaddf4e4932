"""The compose stack: known answers through its published ports, and nothing lost whatever happens to its containers."""

import os
import random
import subprocess
import time
from dataclasses import replace
from typing import Final

import httpx
import pytest
from infra.scenarios.compose import deployed
from infra.scenarios.manifest import load_all
from tests.stack.programs import load
from tests.stack.stack import CALM_SECONDS, ROOT, Clicks, Stack, docker, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
SEED: Final = int(os.environ.get("STACK_TEST_SEED", "20260"))
KILLING_SECONDS: Final = float(os.environ.get("STACK_TEST_SECONDS", "120"))
BREAKING_SECONDS: Final = KILLING_SECONDS / 3
LOAD_SECONDS: Final = 20
demo = load("infra/demo.py")
PROCESSOR: Final = "click-count-processor"
KILLED: Final = (PROCESSOR, "click-count-view", "click-count-query", "click-count-emitter")
SERVICES: Final = tuple(
    each.service for each in deployed(load_all(ROOT)) if not each.profile and each.service != "console"
)


def scale(stack: Stack, processors: int) -> None:
    """Scale a service, and wait until all its containers are healthy."""
    expected = f"{PROCESSOR}={processors}"
    stack.compose("up", "--detach", "--wait", "--no-recreate", "--no-deps", "--scale", expected, PROCESSOR)


def healthy(stack: Stack, service: str) -> bool:
    (container,) = stack.containers(service)
    return bool(stack.inspect(container)["State"]["Health"]["Status"] == "healthy")


def test_the_demo_s_answers_come_out_of_the_published_ports(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "ANSWER_SECONDS", CALM_SECONDS)
    kafka = f"127.0.0.1:{stack.ports['STACK_KAFKA_PORT']}"
    at = {
        each.service: f"127.0.0.1:{stack.ports[each.port_variable]}"
        for each in deployed(load_all(ROOT))
        if each.port
    }
    with httpx.Client(timeout=60) as client:
        assert demo.walk(client, at, [], {"STREAMTABLE_BOOTSTRAP_SERVERS": kafka})
    stack.sent.update({**demo.KNOWN_CLICKS, "alice": demo.KNOWN_CLICKS["alice"] + 1})
    stack.settle()


def test_under_the_demo_s_load_each_container_keeps_within_its_memory(stack: Stack) -> None:
    most: dict[str, float] = {}
    deadline = time.monotonic() + LOAD_SECONDS
    with Clicks(stack, seed=SEED + 4, rate=2000, keys=100) as clicks:
        while time.monotonic() < deadline:
            most |= {name: max(share, most.get(name, 0)) for name, share in stack.memory().items()}
        clicks.finish()
    assert len(most) > len(SERVICES)
    assert max(most.values()) < 0.95, most
    assert not [each["Name"] for each in stack.inspect_all() if each["State"]["OOMKilled"]]
    stack.settle()


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_no_rights_and_can_write_only_to_its_state(stack: Stack, service: str) -> None:
    (container,) = stack.containers(service)
    all_shown = docker(
        "exec", container, "sh", "-c", "id -u; grep CapEff /proc/1/status; touch /app/x 2>&1 || true"
    )
    user, rights, refused = all_shown.splitlines()
    assert (user, int(rights.split()[1], 16)) == ("10001", 0)
    assert "Read-only" in refused
    assert "no-new-privileges:true" in stack.inspect(container)["HostConfig"]["SecurityOpt"]


def test_processors_are_scaled_up_and_down_under_load_and_nothing_is_lost_or_counted_twice(
    stack: Stack,
) -> None:
    with Clicks(stack, seed=SEED, rate=500) as clicks:
        scale(stack, 3)
        three = stack.containers(PROCESSOR)
        assert len({stack.inspect(each)["Config"]["Hostname"] for each in three}) == 3
        scale(stack, 1)
        assert len(stack.containers(PROCESSOR)) == 1
        clicks.finish()
    stack.settle()


def test_a_query_without_a_copy_answers_for_the_keys_of_each_replica(stack: Stack) -> None:
    scale(stack, 2)
    profile = ("--profile", "instances")
    options = ("--detach", "--wait", "--no-recreate", "--no-deps")
    stack.compose(*profile, "up", *options, "click-count-instances")
    with httpx.Client(base_url=stack.url("STACK_CLICK_INSTANCES_PORT"), timeout=20) as client:

        def right() -> bool:
            answers = {user: client.get(f"/clicks/{user}").raise_for_status().json() for user in stack.sent}
            return {user: answer["count"] for user, answer in answers.items()} == stack.sent

        wait_until("the count of each user is right", right)
    stack.compose(*profile, "rm", "--stop", "--force", "--volumes", "click-count-instances")
    scale(stack, 1)


def test_containers_are_killed_at_random_under_load_and_nothing_is_lost_or_counted_twice(
    stack: Stack,
) -> None:
    scale(stack, 2)
    chance = random.Random(SEED)
    killed = 0
    deadline = time.monotonic() + KILLING_SECONDS
    with Clicks(stack, seed=SEED + 1, rate=500) as clicks:
        while time.monotonic() < deadline:
            victim = chance.choice([each for name in KILLED for each in stack.containers(name)])
            docker("kill", victim)
            killed += 1
            time.sleep(chance.uniform(0, 3))  # how long a machine is away
            docker("start", victim)
        clicks.finish()
    assert killed >= 3
    scale(stack, 1)
    stack.settle()


def test_the_broker_is_restarted_under_load_and_nothing_is_lost_or_counted_twice(stack: Stack) -> None:
    with Clicks(stack, seed=SEED + 2, rate=500) as clicks:
        before = stack.counts().total()
        wait_until("the load is being counted", lambda: stack.counts().total() > before)
        stack.compose("restart", "kafka")
        wait_until("the broker is healthy", lambda: healthy(stack, "kafka"))
        clicks.finish()
    stack.settle()


def test_a_way_to_kafka_that_breaks_again_and_again_loses_and_doubles_nothing(stack: Stack) -> None:
    chaotic = ("chaos", f"{PROCESSOR}-chaos")
    made = replace(stack, settings={"STACK_CHAOS_SECONDS": "2", "STACK_CHAOS_SEED": str(SEED)})
    made.compose("--profile", "chaos", "up", "--detach", "--wait", "--no-recreate", *chaotic)
    try:
        with Clicks(stack, seed=SEED + 3, rate=500) as clicks:
            time.sleep(BREAKING_SECONDS)
            clicks.finish()
        (proxy,) = stack.containers("chaos")
        assert docker("logs", proxy).count("fault") >= 3
    finally:
        made.compose("--profile", "chaos", "rm", "--stop", "--force", "--volumes", *chaotic)
    stack.settle()


def test_the_console_shows_every_process_of_the_stack(stack: Stack) -> None:
    expected = {*SERVICES, "console console"}

    def all_shown() -> bool:
        answer = stack.console("/api/fleet")
        ready = [each for each in answer["instances"] if each["state"] == "ready"]
        names = {f"{each['service']} {each['role']}" for each in ready}
        return {name.replace("-", " ") for name in expected} <= {name.replace("-", " ") for name in names}

    wait_until("all processes are on the console", all_shown)


def test_down_leaves_nothing(stack: Stack) -> None:
    scale(stack, 2)
    containers = stack.inspect_all()
    mounts = [mount for each in containers for mount in each["Mounts"]]
    held = {mount["Name"] for mount in mounts if mount["Type"] == "volume"}
    assert len(held) > len(SERVICES) / 2
    verb = ["make", "down", "VOLUMES=1"]
    subprocess.run(verb, cwd=ROOT, env=stack.environment, capture_output=True, check=True, timeout=300)
    assert stack.left() == []
    assert not held & set(docker("volume", "ls", "--quiet").split())
