"""The compose stack as tests see it: brought up under a name and ports of its own, asked through its published ports."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import yaml
from infra.scenarios.compose import deployed
from infra.scenarios.manifest import load_all

from servicekit.process.load import key_choice

ROOT = Path(__file__).resolve().parents[2]
PORTS = (
    "STACK_KAFKA_PORT",
    *(each.port_variable for each in deployed(load_all(ROOT)) if each.port),
    "STACK_REDIS_PORT",
    "STACK_ELASTICSEARCH_PORT",
    "STACK_CASSANDRA_PORT",
    "STACK_POSTGRES_PORT",
    "STACK_CONNECT_PORT",
    "STACK_PROMETHEUS_PORT",
    "STACK_GRAFANA_PORT",
    "STACK_JAEGER_PORT",
    "STACK_KAFKA_UI_PORT",
)
CONSOLE_TOKEN = "a-token-of-the-tests-of-the-stack"
UP_SECONDS = 400  # less than a minute on a machine with nothing else to do
CALM_SECONDS = 240.0


def free_ports(names: Sequence[str]) -> dict[str, str]:
    """One for each name, all different."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in names]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return {name: str(probe.getsockname()[1]) for name, probe in zip(names, probes, strict=True)}


def load_yaml(text: str) -> Any:
    """Return the value of a YAML file, by the loader in C where there is one: Python takes most of a second for the compose file."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def rendered(text: str, **variables: str) -> dict[str, dict[str, Any]]:
    """Return the services of a compose file with these variables, as `docker compose config` fills them in."""

    def value(match: re.Match[str]) -> str:
        given = variables.get(match["name"])
        return match["default"] if given is None or (match["colon"] and not given) else given

    filled = re.sub(r"\$\{(?P<name>[A-Z_]+)(?P<colon>:?)-(?P<default>[^}]*)\}", value, text)
    services: dict[str, dict[str, Any]] = load_yaml(filled)["services"]
    return services


def wait_until(what: str, done: Callable[[], bool], seconds: float = CALM_SECONDS) -> None:
    """Poll until the condition holds; a request that fails during a restart is retried."""
    deadline = time.monotonic() + seconds
    last: object = "it never was so"
    while time.monotonic() < deadline:
        try:
            if done():
                return
        except (httpx.TransportError, httpx.HTTPStatusError, subprocess.CalledProcessError) as error:
            last = error
        time.sleep(0.3)
    raise AssertionError(f"{what}: not within {seconds:g} s; last: {last}")


@dataclass
class Stack:
    """A project of compose.

    Attributes:
        name: The name of the project, by which its containers, volumes and network are found.
        ports: published on 127.0.0.1, by the variables of the compose file.
        settings: its other variables, where they are to differ.
        sent: the clicks of each user that Kafka has acknowledged.
    """

    name: str
    ports: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)

    @property
    def environment(self) -> dict[str, str]:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("STACK_") or name.endswith("_IMAGE")
        }
        return {
            **clean,
            "STACK_NAME": self.name,
            "CONSOLE_TOKEN": CONSOLE_TOKEN,
            **self.ports,
            **self.settings,
        }

    def compose(self, *arguments: str, seconds: float = 500) -> str:
        """Run `docker compose`: its answer. An assertion tells what it said if it fails."""
        done = self.tried(*arguments, seconds=seconds)
        if done.returncode:
            logs = self.tried("logs", "--tail", "15").stdout[-8000:]
            raise AssertionError(f"{' '.join(arguments)}:\n{done.stderr[-4000:]}\n{logs}")
        return done.stdout

    def tried(self, *arguments: str, seconds: float = 500) -> subprocess.CompletedProcess[str]:
        """Run `docker compose`, however it ends."""
        command = ["docker", "compose", "--project-directory", str(ROOT), "--progress", "plain", *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    def containers(self, service: str) -> list[str]:
        return self.compose("--profile", "*", "ps", "--all", "--quiet", service).split()

    def inspect(self, container: str) -> Any:
        return json.loads(docker("inspect", container))[0]

    def left(self) -> list[str]:
        """Containers, volumes and networks of the project; not the anonymous volumes, which have no label."""
        lists = (["ps", "--all"], ["volume", "ls"], ["network", "ls"])
        return [each for listing in lists for each in self._listed(*listing)]

    def _listed(self, *listing: str) -> list[str]:
        label = f"label=com.docker.compose.project={self.name}"
        return docker(*listing, "--quiet", "--filter", label).split()

    def inspect_all(self) -> list[Any]:
        """Each of its containers, whether it runs or not."""
        return [self.inspect(each) for each in self._listed("ps", "--all")]

    def memory(self) -> dict[str, float]:
        """Return the share of its memory limit that each running container uses, by its name."""
        running = self._listed("ps")
        printed = docker("stats", "--no-stream", "--format", "{{.Name}} {{.MemPerc}}", *running)
        return {name: float(share.rstrip("%")) / 100 for name, share in map(str.split, printed.splitlines())}

    def console(self, path: str) -> Any:
        """Return what the console answers."""
        headers = {"Authorization": f"Bearer {CONSOLE_TOKEN}"}
        answer = httpx.get(f"{self.url('STACK_CONSOLE_PORT')}{path}", headers=headers, timeout=20)
        return answer.raise_for_status().json()

    def url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def ours(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Start one of our programs on this machine, with the stack's Kafka."""
        kafka = {"STREAMTABLE_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.ports['STACK_KAFKA_PORT']}"}
        return subprocess.Popen(
            [Path(sys.executable).parent / program, *arguments],
            env={**self.environment, **kafka},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def lag(self, group: str) -> int | None:
        """Records that a group has not applied yet; None before its first commit."""
        with self.ours("streamtable", "group", "lag", group, "--json") as asked:
            said, _ = asked.communicate(timeout=60)
        if asked.returncode:
            raise subprocess.CalledProcessError(asked.returncode, "streamtable group lag", said)
        lag: int | None = json.loads(said)["lag"]
        return lag

    def counts(self) -> Counter[str]:
        """All rows of the query service."""
        found: Counter[str] = Counter()
        cursor: str | None = None
        with httpx.Client(base_url=self.url("STACK_CLICK_QUERY_PORT"), timeout=10) as client:
            while True:
                page = client.get("/clicks", params={"limit": 1000} | ({"cursor": cursor} if cursor else {}))
                answer = page.raise_for_status().json()
                found.update({item["user_id"]: item["count"] for item in answer["items"]})
                cursor = answer["next"]
                if cursor is None:
                    return found

    def settle(self) -> None:
        """Wait until all that was sent is applied, and compare each user's count with it."""
        wait_until("all clicks are applied", lambda: self.lag("click-count") == 0)
        wait_until("the view shows what was sent", lambda: self.counts() == self.sent)


class Clicks:
    """A load of clicks through the published port of Kafka, without end until `finish`."""

    def __init__(self, stack: Stack, *, seed: int, rate: int, keys: int = 200) -> None:
        self._stack = stack
        self._user_of = key_choice(keys, 0, seed)
        options = {"--seed": seed, "--rate": rate, "--keys": keys}
        flat = [str(part) for option in options.items() for part in option]
        self._process = stack.ours("click-count", "load", *flat)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def finish(self, seconds: float = 200) -> None:
        """End it in order, and add to what was sent what it has sent: all of it must be acknowledged."""
        assert self._process.poll() is None, self._process.communicate()[0]
        self._process.terminate()
        said, _ = self._process.communicate(timeout=seconds)
        report = re.search(r"sent (\d+), acknowledged (\d+) .*errors: none", said)
        assert report is not None, said
        assert report[1] == report[2]
        self._stack.sent += Counter(self._user_of() for _ in range(int(report[1])))


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def logs_of(container: str) -> str:
    """Return the whole output of a container."""
    command = ["docker", "logs", container]
    printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    return printed.stdout
