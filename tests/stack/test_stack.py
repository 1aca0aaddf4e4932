"""The compose stack: known answers through its published ports, and nothing lost whatever happens to its containers."""

import os
import random
import time
from dataclasses import replace
from typing import Final

import httpx
import pytest
from tests.stack.stack import PORTS, Clicks, Stack, docker, free_ports, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
SEED: Final = int(os.environ.get("STACK_TEST_SEED", "20260"))
ROUNDS_SECONDS: Final = float(os.environ.get("STACK_TEST_SECONDS", "40"))
PROCESSOR: Final = "click-count-processor"
KILLED: Final = (PROCESSOR, "click-count-view", "click-count-query", "click-count-emitter")
SERVICES: Final = tuple(
    f"{scenario}-{role}"
    for scenario in ("click-count", "user-status", "tweet-reach")
    for role in ("emitter", "processor", "view", "query")
)


def scale(stack: Stack, processors: int) -> None:
    """Until there are so many, and they are healthy."""
    wanted = f"{PROCESSOR}={processors}"
    stack.compose("up", "--detach", "--wait", "--no-recreate", "--no-deps", "--scale", wanted, PROCESSOR)


def healthy(stack: Stack, service: str) -> bool:
    (container,) = stack.containers(service)
    return bool(stack.inspect(container)["State"]["Health"]["Status"] == "healthy")


def test_known_clicks_come_out_as_known_counts(stack: Stack) -> None:
    known = {"alice": 5, "bob": 3, "carol": 2}
    clicks = [
        {"user_id": user, "url": "https://example.org/"}
        for user, count in known.items()
        for _ in range(count)
    ]
    httpx.post(f"{stack.url('STACK_CLICK_EMITTER_PORT')}/clicks", json=clicks, timeout=60).raise_for_status()
    stack.sent.update(known)
    stack.settle()


def test_a_status_is_answered_with_the_clicks_before_it(stack: Stack) -> None:
    wait_until("clicks are joined", lambda: stack.lag("user-status") == 0)
    url = f"{stack.url('STACK_STATUS_EMITTER_PORT')}/users/alice/status"
    httpx.put(url, json={"status": "at work"}, timeout=60).raise_for_status()
    asked = f"{stack.url('STACK_STATUS_QUERY_PORT')}/users/alice"

    def answered() -> bool:
        answer = httpx.get(asked, timeout=10).raise_for_status().json()
        status = answer["status"]
        return status is not None and (status["text"], status["clicks"], answer["clicks"]) == (
            "at work",
            5,
            5,
        )

    wait_until("alice's status shows", answered)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_no_rights_and_can_write_only_to_its_state(stack: Stack, service: str) -> None:
    (container,) = stack.containers(service)
    told = docker(
        "exec", container, "sh", "-c", "id -u; grep CapEff /proc/1/status; touch /app/x 2>&1 || true"
    )
    user, rights, refused = told.splitlines()
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


def test_containers_are_killed_at_random_under_load_and_nothing_is_lost_or_counted_twice(
    stack: Stack,
) -> None:
    scale(stack, 2)
    chance = random.Random(SEED)
    killed = 0
    deadline = time.monotonic() + ROUNDS_SECONDS
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
            time.sleep(ROUNDS_SECONDS)
            clicks.finish()
        (proxy,) = stack.containers("chaos")
        assert docker("logs", proxy).count("fault") >= 3
    finally:
        made.compose("--profile", "chaos", "rm", "--stop", "--force", "--volumes", *chaotic)
    stack.settle()


def test_the_console_shows_every_process_of_the_stack(stack: Stack) -> None:
    wanted = {*SERVICES, "console console"}

    def told() -> bool:
        answer = (
            httpx.get(f"{stack.url('STACK_CONSOLE_PORT')}/api/fleet", timeout=10).raise_for_status().json()
        )
        ready = [each for each in answer["instances"] if each["state"] == "ready"]
        names = {f"{each['service']} {each['role']}" for each in ready}
        return {name.replace("-", " ") for name in wanted} <= {name.replace("-", " ") for name in names}

    wait_until("all processes are on the console", told)


def reach_of(stack: Stack, url: str) -> int:
    asked = f"{stack.url('STACK_REACH_QUERY_PORT')}/reach"
    answer = httpx.get(asked, params={"url": url}, timeout=10).raise_for_status()
    return int(answer.json()["reach"])


def tweeted(stack: Stack, url: str) -> None:
    """By ann, whom bob and cy follow."""
    emitter = stack.url("STACK_REACH_EMITTER_PORT")
    follows = [{"author": "ann", "follower": follower} for follower in ("bob", "cy")]
    httpx.post(f"{emitter}/follows", json=follows, timeout=60).raise_for_status()
    httpx.post(f"{emitter}/tweets", json={"author": "ann", "url": url}, timeout=60).raise_for_status()


def test_a_url_reaches_the_followers_of_those_who_tweet_it(stack: Stack) -> None:
    tweeted(stack, "foo.com")
    wait_until("the reach of foo.com shows", lambda: reach_of(stack, "foo.com") == 2)


def test_rows_of_tweet_reach_are_in_redis_where_that_is_the_store(stack: Stack) -> None:
    made = replace(stack, settings={"STACK_REACH_STORE": "redis://redis:6379/0"})
    made.compose("--profile", "stores", "up", "--detach", "--wait", "redis", "tweet-reach-processor")
    tweeted(stack, "bar.com")
    wait_until("the reach of bar.com shows", lambda: reach_of(stack, "bar.com") == 2)
    (redis,) = stack.containers("redis")
    assert int(docker("exec", redis, "redis-cli", "dbsize")) > 0


def test_down_leaves_nothing(images: None) -> None:
    made = Stack(f"streamtable-test-{os.getpid()}-down", free_ports(PORTS))
    try:
        made.compose("up", "--detach", "kafka")
        assert made.left()
    finally:
        made.compose("down", "--volumes", "--remove-orphans", "--timeout", "10")
    assert made.left() == []
