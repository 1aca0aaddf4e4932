"""A Kafka with TLS, SASL/SCRAM and ACLs, the topics and users that `infra/topics.yaml` declares, and our services as such users."""

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import yaml
from libs.streamtable_cli.tests.bench import MODULES
from tests.hostile.program import OURS, Program, program

from localkafka.broker import Broker
from localkafka.certificates import write_secret
from localkafka.security import Security
from servicekit_testing import retrying_client
from servicekit_testing.prefork import prefork_of
from streamtable import Kafka

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("click-count", "click-windows", "click-windows-by-url", "user-status")
STATUS_TOPIC = "streamtable-status"


@dataclass
class World:
    """The broker, its users, and everything that was written while a test looked.

    Attributes:
        folder: passwords, the declared topics and users.
        key: The API key of all services; `reader` is one that may only read.
        written: The output of commands and processes that have ended.
        running: processes by user.
    """

    broker: Broker
    security: Security
    folder: Path
    key: str
    reader: str
    written: list[str] = field(default_factory=list)
    running: dict[str, tuple[Program, str]] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "topics.yaml"

    def password(self, user: str) -> str:
        return (self.folder / f"{user}.password").read_text()

    def options(self, user: str) -> dict[str, str]:
        """Return the librdkafka options of a user."""
        return {
            **self.broker.client(),
            "sasl.username": user,
            "sasl.password": self.password(user),
        }

    def kafka(self, user: str, seconds: float = 20, **options: str) -> Kafka:
        named = {name.replace("_", "."): value for name, value in options.items()}
        return Kafka(self.broker.bootstrap_servers, {**self.options(user), **named}, admin_timeout=seconds)

    def environment(self, user: str) -> dict[str, str]:
        """Settings of a service that comes as this user."""
        options = {name: value for name, value in self.options(user).items() if name != "sasl.password"}
        variables = {
            f"STREAMTABLE_KAFKA_{name.upper().replace('.', '_')}": each for name, each in options.items()
        }
        keys = [
            f"{name}:{scopes}:{sha256(key.encode()).hexdigest()}"
            for name, scopes, key in (
                ("tests", "read+write+console+replay", self.key),
                ("reader", "read", self.reader),
            )
        ]
        return {
            **variables,
            "STREAMTABLE_BOOTSTRAP_SERVERS": self.broker.bootstrap_servers,
            "STREAMTABLE_KAFKA_SASL_PASSWORD_FILE": str(self.folder / f"{user}.password"),
            "SERVICEKIT_API_KEYS": ",".join(keys),
            "SERVICEKIT_STATUS_TOPIC": STATUS_TOPIC,
            "SERVICEKIT_METRICS_PUBLIC": "false",
        }

    def command(self, user: str, *arguments: str) -> str:
        """Run `streamtable` as this user: its answer. It must succeed, or be the doctor, who may find something."""
        done = self._run(user, MODULES, ["--timeout", "20", *arguments], {})
        assert done.returncode == 0 or (done.returncode == 1 and arguments[0] == "doctor"), done.stderr
        return done.stdout

    def ended(self, user: str, module: str, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run a service as this user that does not get far: its exit code, and what it wrote."""
        done = self._run(user, [module], arguments, environment)
        return done.returncode, done.stdout + done.stderr

    def _run(
        self, user: str, modules: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        with tempfile.TemporaryDirectory(prefix="streamtable-secure-") as state:
            defaults = {"STREAMTABLE_STATE_DIR": state, "STREAMTABLE_LOG_FORMAT": "json", "COLUMNS": "200"}
            output, errors = Path(state, "output"), Path(state, "errors")
            with output.open("wb") as first, errors.open("wb") as second:
                started = prefork_of(*modules).start(
                    arguments,
                    {**clean, **defaults, **self.environment(user), **environment},
                    first.fileno(),
                    second.fileno(),
                )
            try:
                code = started.wait(90)
            finally:
                started.kill()
            done = subprocess.CompletedProcess(modules, code, output.read_text(), errors.read_text())
        self.written += [done.stdout, done.stderr]
        return done

    def url(self, user: str) -> str:
        return f"http://{self.running[user][1]}"

    def client(self, user: str, key: str | None = None) -> httpx.Client:
        """A caller of a running service, with the key that may do all, or another one; "" for none."""
        key = self.key if key is None else key
        return retrying_client(self.url(user), {"Authorization": f"Bearer {key}"} if key else {})


@contextmanager
def secure_world() -> Iterator[World]:
    """The broker with topics and users, without services."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamtable-secure-")))
        security = Security({"admin": secrets.token_urlsafe(24)})
        broker = Broker(folder / "kafka", brief=True, security=security)
        stack.callback(broker.close)
        stack.callback(broker.kill)
        broker.start()
        world = World(broker, security, folder, secrets.token_urlsafe(24), secrets.token_urlsafe(24))
        declared = _declared()
        world.file.write_text(yaml.safe_dump(declared))
        write_secret(folder / "admin.password", security.users["admin"].encode())
        for user in declared["users"]:
            write_secret(folder / f"{user}.password", secrets.token_urlsafe(24).encode())
        world.command("admin", "topics", "apply", "--file", str(world.file))
        world.command("admin", "users", "apply", "--file", str(world.file), "--passwords", str(folder))
        yield world


def _declared() -> dict[str, Any]:
    """Return the part of the declarations that these tests use, with fewer partitions."""
    everything = yaml.safe_load((ROOT / "infra" / "topics.yaml").read_text())
    groups = {name: everything["groups"][name] for name in GROUPS}
    users = {
        name: user
        for name, user in everything["users"].items()
        if name == "console" or (name.startswith(GROUPS) and groups.keys() >= set(user.get("runs", ())))
    }
    used = {
        *(topic for each in groups.values() for topic in [*each["inputs"], *each.get("outputs", [])]),
    }
    topics = {
        name: topic
        for name, topic in everything["topics"].items()
        if name in used or name.startswith("streamtable-")
    }
    return {"defaults": {"partitions": 2}, "topics": topics, "groups": groups, "users": users}


@contextmanager
def services(world: World) -> Iterator[None]:
    """The services of clicks, the processor of statuses and the console, each as a user of its own."""
    certificate, key = world.security.authority.issue("click-count-view").write(world.folder, "view")
    http = {"STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0"}
    metrics = {"STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:0"}
    grpc = {
        "STREAMTABLE_GRPC_ADDRESS": "127.0.0.1:0",
        "SERVICEKIT_GRPC_CERTIFICATE_FILE": str(certificate),
        "SERVICEKIT_GRPC_KEY_FILE": str(key),
    }
    settings = {
        "click-count-emitter": http,
        "click-count-processor": metrics,
        "click-count-view": grpc,
        "click-count-query": http,
        "user-status-processor": metrics,
        "console": http,
    }

    def started(user: str) -> tuple[Program, str]:
        service, _, role = user.rpartition("-")
        module = f"{service.replace('-', '_') or user}.main"
        environment = {**world.environment(user), **settings[user]}
        scheme = "grpc" if settings[user] is grpc else "http"
        return stack.enter_context(
            program(world.broker, role if service else "", scheme, environment, module)
        )

    with ExitStack() as stack:
        with ThreadPoolExecutor() as pool:
            world.running = dict(zip(settings, pool.map(started, settings), strict=True))
        yield
