"""`make demo`: a real Kafka and the services of four scenarios on this machine, with known results.

It sends clicks and out-of-order statuses, and compares click counts, in total, by minute (one minute closes) and by URL and
hour, and the latest status of each user with the click counts before it and now; it sends tweets and followers, and
compares the reach of each URL; it sends shipments and sales, and compares stocks, prices, totals and reorders, which are
placed at a supplier that fails twice for each of them.
Where INVENTORY_POSTGRES_URL or CLICK_COUNT_LAKE is set, sinks write there too, and what they have written is read back by SQL.
The console shows all of it live. Everything is on 127.0.0.1 and in one temporary folder; Ctrl-C stops all of it in
order. With --check it exits by itself, with code 0 only if every result is right.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from infra.demo_capture import SERVICE, captured, what_to_install
from infra.demo_inventory import SUPPLIER_FAILS, compare_orders, compare_stock, trade
from infra.demo_parts import (
    BIN,
    ROOT,
    DemoFailed,
    Service,
    answers,
    free_port,
    mark,
    reached,
    say,
    services_of,
    wait_until,
)
from infra.demo_sinks import compare_targets, runs
from infra.scenarios.manifest import load_all
from rich.table import Table

from click_count.windows import CLICK_MINUTES, MINUTE_MS
from inventory.flow import HOUR_MS
from localkafka.broker import Broker
from localkafka.errors import LocalKafkaError
from servicekit_testing.topic_reading import committed_records
from tweet_reach.example_data import FOLLOWED_BY, REACHES, TWEETED_BY

KNOWN_CLICKS: Mapping[str, int] = {"alice": 5, "bob": 3, "carol": 2, "dave": 1, "erin": 1, "user-1": 8}
URLS = ("https://example.org/", "https://example.org/news", "https://example.org/about")
KNOWN_URLS: Mapping[str, int] = dict(zip(URLS, (7, 7, 6), strict=True))  # of the clicks above, in turn
NOON_MS = 1_767_268_800_000
# User, minutes after noon, status: the later ones come first, and must not be overwritten.
UPDATES: Sequence[tuple[str, int, str]] = (
    ("alice", 5, "at lunch"),
    ("alice", 1, "at work"),
    ("bob", 9, "gone home"),
    ("bob", 3, "at lunch"),
    ("mallory", 2, "just looking"),
)
# User: the latest status, the clicks that had been counted before it, the clicks by now.
KNOWN_USERS: Mapping[str, tuple[str | None, int | None, int | None]] = {
    "alice": ("at lunch", 5, 6),
    "bob": ("gone home", 3, 3),
    "carol": (None, None, 2),
    "mallory": ("just looking", 0, None),
}
STARTED: Sequence[str] = ("processor", "view", "query", "emitter")
ADDRESSES: Mapping[str, str] = {
    "emitter": "STREAMTABLE_HTTP_ADDRESS",
    "processor": "STREAMTABLE_METRICS_ADDRESS",
    "view": "STREAMTABLE_GRPC_ADDRESS",
    "query": "STREAMTABLE_HTTP_ADDRESS",
}
OWN: Mapping[str, Mapping[str, str]] = {"tweet-reach-processor": {"TWEET_REACH_BATCH_SECONDS": "1"}}
READY_SECONDS = 90.0
ANSWER_SECONDS = 20.0
SUPPLIER_PORT = 8097
WORKERS_MAX = 2
"""The processes of one processor: tweet-reach has one for each stage."""


def emit(
    client: httpx.Client, emitter: str, clicks: Mapping[str, int], at: int, urls: Sequence[str] = URLS
) -> None:
    """Send clicks of this time on these URLs in turn, in an order that mixes the users."""
    users = [user for user, count in clicks.items() for _ in range(count)]
    body = [
        {"user_id": user, "url": urls[n % len(urls)], "at": at}
        for n, user in enumerate(users[::2] + users[1::2])
    ]
    client.post(f"{emitter}/clicks", json=body).raise_for_status()
    say(f"Emitted by REST and acknowledged by Kafka: {len(body)} clicks.")


def say_statuses(client: httpx.Client, emitter: str) -> Mapping[str, str]:
    """Send statuses out of order, the latest first. Returns the token of each user's last write."""
    tokens = {}
    for user, minutes, status in UPDATES:
        at = NOON_MS + minutes * 60_000
        answer = client.put(f"{emitter}/users/{user}/status", json={"status": status, "at": at})
        answer.raise_for_status()
        tokens[user] = answer.headers["Streamtable-Token"]
    say(f"Emitted by REST and acknowledged by Kafka: {len(UPDATES)} statuses, the latest ones first.")
    return tokens


def compare(client: httpx.Client, query: str, services: Sequence[Service]) -> bool:
    """Wait for the counts, print them beside the expected ones, return whether all are right."""
    found: dict[str, Any] = {}

    def counted() -> bool:
        for user in KNOWN_CLICKS:
            answer = answers(client, f"{query}/clicks/{user}")
            if answer is not None:
                found[user] = answer["count"]
        return found == KNOWN_CLICKS

    try:
        wait_until("the counts", ANSWER_SECONDS, services, counted)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table("user", "expected", "counted", "")
    for user, expected in KNOWN_CLICKS.items():
        table.add_row(user, str(expected), str(found.get(user, "-")), mark(found.get(user) == expected))
    say(table)
    return found == KNOWN_CLICKS


def compare_users(client: httpx.Client, query: str, services: Sequence[Service]) -> bool:
    """Ask for each user, print the answers, return whether all are right."""
    found: dict[str, tuple[str | None, int | None, int | None]] = {}

    def known() -> bool:
        for user in KNOWN_USERS:
            answer = answers(client, f"{query}/users/{user}")
            if answer is not None:
                status = answer["status"] or {"text": None, "clicks": None}
                found[user] = (status["text"], status["clicks"], answer["clicks"])
        return found == KNOWN_USERS

    try:
        wait_until("the statuses", ANSWER_SECONDS, services, known)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table("user", "says", "clicks then", "clicks now", "")
    for user, expected in KNOWN_USERS.items():
        cells = ["-" if cell is None else str(cell) for cell in found.get(user, ("?", "?", "?"))]
        table.add_row(user, *cells, mark(found.get(user) == expected))
    say(table)
    return found == KNOWN_USERS


def compare_minutes(
    client: httpx.Client, query: str, minute: int, bootstrap_servers: str, services: Sequence[Service]
) -> bool:
    """Wait for the counts of a minute, and for the record that says that alice's has closed. Returns whether all are right."""
    found: dict[str, int] = {}
    expected = {**KNOWN_CLICKS, "alice's minute has closed with": KNOWN_CLICKS["alice"]}

    def known() -> bool:
        for user in KNOWN_CLICKS:
            window = {"since": minute, "until": minute + MINUTE_MS}
            answer = answers(client, f"{query}/clicks/{user}/minutes?{urlencode(window)}")
            if answer is not None and answer["items"]:
                found[user] = answer["items"][0]["count"]
        for each, closed in committed_records(bootstrap_servers, CLICK_MINUTES, ANSWER_SECONDS):
            if each.start_ms == minute and closed is not None:
                found[f"{each.key}'s minute has closed with"] = closed
        return found == expected

    try:
        wait_until("the minutes", ANSWER_SECONDS, services, known)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table("in one minute", "expected", "counted", "")
    for user, count in expected.items():
        table.add_row(user, str(count), str(found.get(user, "-")), mark(found.get(user) == count))
    say(table)
    return found == expected


def compare_hours(client: httpx.Client, query: str, minute: int, services: Sequence[Service]) -> bool:
    """Wait for the counts of the URLs in the hour of a minute. Returns whether all are right."""
    found: dict[str, int] = {}
    window = {"since": minute, "until": minute + 1}

    def known() -> bool:
        for url in KNOWN_URLS:
            answer = answers(client, f"{query}/urls/hours?{urlencode({'url': url, **window})}")
            if answer is not None and answer["items"]:
                found[url] = answer["items"][0]["count"]
        return found == KNOWN_URLS

    try:
        wait_until("the hours", ANSWER_SECONDS, services, known)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table("in that hour", "expected", "counted", "")
    for url, count in KNOWN_URLS.items():
        table.add_row(url, str(count), str(found.get(url, "-")), mark(found.get(url) == count))
    say(table)
    return found == KNOWN_URLS


def tweet(client: httpx.Client, emitter: str) -> None:
    """Send tweets and follow events."""
    tweets = [{"author": who, "url": url} for url, authors in TWEETED_BY.items() for who in authors]
    follows = [{"author": who, "follower": name} for who, names in FOLLOWED_BY.items() for name in names]
    client.post(f"{emitter}/tweets", json=tweets).raise_for_status()
    client.post(f"{emitter}/follows", json=follows).raise_for_status()
    say(f"Emitted by REST and acknowledged by Kafka: {len(tweets)} tweets and {len(follows)} followers.")


def compare_reaches(client: httpx.Client, query: str, services: Sequence[Service]) -> bool:
    """Ask for the reach of each URL, print the answers, return whether all are right."""
    found: dict[str, int] = {}

    def reached_all() -> bool:
        for url in REACHES:
            answer = answers(client, f"{query}/reach?url={url}")
            if answer is not None:
                found[url] = answer["reach"]
        return found == REACHES

    try:
        wait_until("the reaches", ANSWER_SECONDS, services, reached_all)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table("URL", "expected", "reach", "")
    for url, expected in REACHES.items():
        table.add_row(url, str(expected), str(found.get(url, "-")), mark(found.get(url) == expected))
    say(table)
    return found == REACHES


def start(
    running: ExitStack, environment: Mapping[str, str], folder: Path, *, capture: bool = False
) -> tuple[Mapping[str, str], list[Service]]:
    """Start the programs of all scenarios that the compose stack has. Returns their addresses by their names there.

    They start by role, the emitters last, so that these are stopped first: what they accepted is processed. `capture`:
    whether the service of captured products is one of them.
    """
    scenarios = [each for each in load_all(ROOT) if each.in_compose]
    port = free_port(SUPPLIER_PORT)
    at, taken = {"supplier": f"127.0.0.1:{port}"}, {port}
    supplier = {f"python -m inventory.supplier {port} --fail {SUPPLIER_FAILS}": dict[str, str]()}
    special = {**OWN, "inventory-ordering": {"INVENTORY_SUPPLIER": f"http://{at['supplier']}"}}
    roles: dict[str, dict[str, dict[str, str]]] = {"console": {}, **{kind: {} for kind in STARTED}}
    for scenario in scenarios:
        for each in scenario.programs:
            # The processors of the demo answer no queries.
            if not runs(each.service) or each.asks or (each.service == SERVICE and not capture):
                continue
            # Each worker of a processor takes the next port.
            count = WORKERS_MAX if each.kind == "processor" else 1
            port = free_port(each.port, count, taken)
            taken |= set(range(port, port + count))
            at[each.service] = f"127.0.0.1:{port}"
            # What refers to variables of the compose file is for its containers.
            own = {name: value for name, value in each.environment.items() if "${" not in value}
            own |= {**each.settings, ADDRESSES[each.kind]: at[each.service], **special.get(each.service, {})}
            roles[each.component][" ".join([scenario.command, *each.command])] = own
    services = list(running.enter_context(services_of(supplier, environment, folder)))
    # Those of one role are stopped side by side: each takes seconds until its clients have ended.
    for commands in roles.values():
        services += running.enter_context(services_of(commands, environment, folder))
    return at, services


def run(folder: Path, *, check: bool, capture: bool) -> int:
    """Start everything, show it, and stop it. Returns the exit code."""
    began = time.monotonic()
    with ExitStack() as running:
        say("Starting Kafka ...")
        broker = running.enter_context(Broker(folder / "kafka", port=free_port(9092)))
        environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "STREAMTABLE_LOG_FORMAT": "console",
            "SERVICEKIT_STATUS_TOPIC": "streamtable-status",
        }
        subprocess.run(
            [BIN / "streamtable", "topics", "apply", "--file", ROOT / "infra" / "topics.yaml"],
            env={**os.environ, **environment},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        say(
            "Starting the services of click-count, user-status, tweet-reach and inventory, and the console ..."
        )
        products = running.enter_context(captured(folder, broker.bootstrap_servers)) if capture else None
        at, services = start(running, environment, folder, capture=capture)
        with httpx.Client(timeout=10) as client:
            for service, address in at.items():
                # The address of a view is for gRPC; queries are ready when their tables are there.
                if service.endswith("-view") or service == "supplier":
                    continue
                url = f"http://{address}/readyz"
                wait_until(f"{url} is ready", READY_SECONDS, services, partial(reached, client, url))
            now = time.time_ns() // 1_000_000
            minute = (now // MINUTE_MS - 5) * MINUTE_MS
            right = walk(client, at, services, environment, minute)
            now = time.time_ns() // 1_000_000
            trade(client, f"http://{at['inventory-emitter']}", now, products.write if products else None)
            hour = now - now % HOUR_MS
            servers = environment["STREAMTABLE_BOOTSTRAP_SERVERS"]
            right = (
                compare_stock(client, f"http://{at['inventory-query']}", hour, servers, services) and right
            )
            right = compare_targets(minute, KNOWN_CLICKS["alice"], services) and right
            right = compare_orders(client, f"http://{at['supplier']}", services) and right
        say(f"{'Right' if right else 'Wrong'} after {time.monotonic() - began:.0f} s.")
        if check or not right:
            return 0 if right else 1
        show(at, environment, opening(services))
        while True:
            time.sleep(1)
            for one in services:
                one.check_alive()


def walk(
    client: httpx.Client,
    at: Mapping[str, str],
    services: Sequence[Service],
    environment: Mapping[str, str],
    minute: int,
) -> bool:
    """Run each scenario in turn; send one more click after the statuses. Returns whether all results are right.

    Args:
        client: Sends the requests.
        at: The addresses of the services.
        services: The services.
        environment: Their common environment.
        minute: The start of the minute of the first clicks, some minutes ago.
    """
    emit(client, f"http://{at['click-count-emitter']}", KNOWN_CLICKS, minute)
    right = compare(client, f"http://{at['click-count-query']}", services)
    # A status is joined with the clicks that its processor knows of: only then the answers below are known.
    joined = partial(has_read_all, "user-status", environment)
    wait_until("clicks are joined", ANSWER_SECONDS, services, joined)
    tokens = say_statuses(client, f"http://{at['user-status-emitter']}")
    for user, token in tokens.items():
        url, headers = f"http://{at['user-status-query']}/users/{user}", {"Streamtable-Token": token}
        shown = partial(reached, client, url, headers)
        wait_until(f"the status of {user} shows", ANSWER_SECONDS, services, shown)
    # Minutes later: by that alice's earlier minute closes.
    now = time.time_ns() // 1_000_000
    emit(client, f"http://{at['click-count-emitter']}", {"alice": 1}, now, ["https://example.org/later"])
    right = compare_users(client, f"http://{at['user-status-query']}", services) and right
    bootstrap_servers = environment["STREAMTABLE_BOOTSTRAP_SERVERS"]
    right = (
        compare_minutes(client, f"http://{at['click-count-query']}", minute, bootstrap_servers, services)
        and right
    )
    right = compare_hours(client, f"http://{at['click-count-query']}", minute, services) and right
    tweet(client, f"http://{at['tweet-reach-emitter']}")
    return compare_reaches(client, f"http://{at['tweet-reach-query']}", services) and right


def has_read_all(group: str, environment: Mapping[str, str]) -> bool:
    """Return whether a group has committed all of its inputs and joined tables."""
    command: list[str | Path] = [BIN / "streamtable", "group", "lag", group, "--json"]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return bool(json.loads(done.stdout)["lag"] == 0)


def opening(services: Sequence[Service]) -> str:
    """Return the URL by which a browser signs in to the console, which the console has printed last."""
    (console,) = (each for each in services if each.command == "streamtable-console")
    lines = console.log.read_text(errors="replace").splitlines()
    return [line.removeprefix("open ") for line in lines if line.startswith("open http")][-1]


def show(at: Mapping[str, str], environment: Mapping[str, str], console: str) -> None:
    """Print the addresses to open and the commands to try."""
    say(
        f"""
[bold]Open[/]
  {console}
                                                the console: the graph, every process, tables and topics, live
                                                (this address signs in once; its log has the next one)
  http://{at["click-count-query"]}/top                    the users with the most clicks
  http://{at["click-count-query"]}/clicks/alice/minutes   alice's clicks by minutes
  http://{at["click-count-query"]}/urls/hours?url=https://example.org/   a URL's clicks by hours
  http://{at["click-count-query"]}/events                 live changes (server-sent events)
  http://{at["user-status-query"]}/users/alice/events     what alice says and clicks, live
  http://{at["tweet-reach-query"]}/reach/top              the URLs with the highest reach
  http://{at["inventory-query"]}/stock                 what is in stock in which warehouse
  http://{at["supplier"]}/orders                the orders at the supplier, each with its attempts
  http://{at["click-count-processor"]}/metrics                the processor's metrics

[bold]Try[/] in another terminal
  curl http://{at["user-status-query"]}/users/alice
  curl -X POST http://{at["click-count-emitter"]}/clicks -H 'content-type: application/json' \\
       -d '{{"user_id": "alice", "url": "https://example.org/"}}'
  curl -X PUT http://{at["user-status-emitter"]}/users/alice/status -H 'content-type: application/json' \\
       -d '{{"status": "back at work"}}'
  curl 'http://{at["tweet-reach-query"]}/reach?url=foo.com/blog/1'
  curl -X POST http://{at["tweet-reach-emitter"]}/follows -H 'content-type: application/json' \\
       -d '{{"author": "george", "follower": "you"}}'
  curl -X POST http://{at["inventory-emitter"]}/sales -H 'content-type: application/json' \\
       -d '{{"product": "lamp", "warehouse": "oslo", "quantity": 1}}'
  curl http://{at["inventory-query"]}/categories/light
  STREAMTABLE_BOOTSTRAP_SERVERS={environment["STREAMTABLE_BOOTSTRAP_SERVERS"]} \\
       .venv/bin/click-count load --rate 2000 --keys 100 --seconds 10

gRPC is served on {at["click-count-view"]} (counts), {at["user-status-view"]} (statuses), {at["tweet-reach-view"]} (reach) and {at["inventory-view"]} (stock). [bold]Ctrl-C[/] stops everything.
""",
        soft_wrap=True,
    )


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="exit by itself; 0 only if all results are right"
    )
    parser.add_argument(
        "--capture",
        action="store_true",
        help="the inventory's products are rows of a PostgreSQL, captured by Debezium",
    )
    given = parser.parse_args()
    if given.capture and (missing := what_to_install()):
        say(f"[red]The demo was not started:[/] {missing}", markup=True)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: stop all services in order
    folder = Path(tempfile.mkdtemp(prefix="streamtable-demo-"))
    try:
        code = run(folder, check=given.check, capture=given.capture)
    except KeyboardInterrupt:
        say("Everything is stopped.")
        code = 0
    except (DemoFailed, LocalKafkaError, subprocess.CalledProcessError, httpx.HTTPError) as error:
        say(f"[red]The demo failed:[/] {error}\nLogs are in {folder}.", markup=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
