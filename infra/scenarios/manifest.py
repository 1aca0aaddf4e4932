"""The manifest of a scenario, `services/<folder>/scenario.toml`: its programs, topics, groups and rights, and how they are deployed.

Files outside of its folder that name a scenario are generated from its manifest by `make gen`; programs read it when they run.
Standard library only, as `make images` is.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KINDS: Final = ("emitter", "processor", "view", "query")
"""The kinds of programs: each has its defaults in docker-compose.yml and its part in infra/kubernetes/base/parts."""
LOCKS: Final = ("services", "stores")
DEPLOYMENTS: Final = ("compose", "kubernetes")
TOPIC_KINDS: Final = ("results", "between")
PORTS: Final = range(1024, 65536)
_TYPES: Final = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class ManifestInvalidError(ValueError):
    """A manifest is invalid: correct the key that the error names.

    Attributes:
        file: The manifest.
        key: The key in it, with dots.
    """

    def __init__(self, file: Path, key: str, reason: str) -> None:
        super().__init__(f"{file}: {key}: {reason}")
        self.file, self.key = file, key


@dataclass(frozen=True)
class Program:
    """A process of a scenario.

    Attributes:
        name: The program's name in its scenario.
        scenario: The name of the scenario.
        kind: One of `KINDS`.
        command: The arguments of the image's command.
        service: Its service in the compose stack, and its Kafka user there. Programs that are in no stack may share a user.
        profile: The profile of the compose file that starts it; empty: it always starts.
        deployments: Which of `DEPLOYMENTS` have it. Its topics and its Kafka user are in all of them.
        about: The comment above its service in docker-compose.yml.
        memory_mb: Its memory in the compose stack, in megabytes; 0: as its kind.
        port: The port of this machine that its API is published on; 0: none.
        port_variable: The variable of docker-compose.yml that overrides the port.
        single: Whether one copy of it is all that there should be.
        answers: Whether a processor answers queries of its tables, to the programs of its scenario that ask.
        asks: Whether a query asks these processors instead of holding copies of their tables; it keeps nothing on disk.
        component: Its label app.kubernetes.io/component; network policies select it.
        settings: Its settings in the compose stack and in Kubernetes, where all services have them.
        environment: Variables in the compose stack only.
        passed_on: Variables that it gets from the environment of `docker compose`, where they are set there.
        depends_on: Other services of the compose file that it waits for, with their conditions.
        rights: What its Kafka user may do, as `streamtable users apply` reads it.
    """

    name: str
    scenario: str
    kind: str
    command: tuple[str, ...]
    service: str
    profile: str
    deployments: tuple[str, ...]
    about: str
    memory_mb: int
    port: int
    port_variable: str
    single: bool
    answers: bool
    asks: bool
    component: str
    settings: Mapping[str, str]
    environment: Mapping[str, str]
    passed_on: tuple[str, ...]
    depends_on: Mapping[str, Mapping[str, Any]]
    rights: Mapping[str, Any]

    @property
    def application(self) -> str:
        """Its label app.kubernetes.io/name: the scenario's four standard programs are one application."""
        return self.scenario if self.name == self.kind else f"{self.scenario}-{self.name}"

    @property
    def workload(self) -> str:
        """The name of its workload in Kubernetes, which is also its Kafka user there."""
        return f"{self.application}-{self.kind}"

    @property
    def serves_grpc(self) -> bool:
        """Whether it has a gRPC server, and so a certificate."""
        return self.kind == "view" or self.answers

    def variable(self, name: str) -> str:
        """Return the variable of a setting that the services of its scenario have, such as `CLICK_COUNT_QUERY_KEY`."""
        return f"{self.scenario.replace('-', '_').upper()}_{name}"

    def asking(self, authorities: str) -> Mapping[str, str]:
        """Return the settings by which it knows those whom it asks, given the file with their authorities; none if it does not ask.

        Their certificates are for the scenario's name, as replicas get their host names only when they start.
        """
        if not self.asks:
            return {}
        return {
            self.variable("QUERY_AUTHORITIES_FILE"): authorities,
            self.variable("QUERY_SERVER_NAME"): self.scenario,
        }

    @property
    def groups(self) -> Sequence[str]:
        """The groups that it runs."""
        runs: Sequence[str] = self.rights.get("runs", ())
        return runs


@dataclass(frozen=True)
class Scenario:
    """One folder of services/.

    Attributes:
        folder: The name of its folder, which is also the name of its Python package.
        name: Its name in images, services, users and workloads.
        about: The comment above its kustomization.
        lock: The lock of its image's dependencies in infra/docker/locks.
        command: The console script of its distribution, the entry point of its image.
        distribution: The name of its Python distribution.
        in_compose: Whether the compose stack has its programs.
        store: Whether its programs may be given a central store.
        pure_domain: Whether its package has a module `domain`, which may import neither library nor servers.
        topics: The properties of its topics by name, as infra/topics.yaml has them, or one of `TOPIC_KINDS`.
        groups: Its groups by name, as infra/topics.yaml has them.
        graphs: What makes its groups in its package, each `module:name`: a function without arguments that returns a group or
            the owner of a flow, or a mapping of groups. A test compares them with `groups`.
        programs: Its programs, in the order of their names in the manifest.
    """

    folder: str
    name: str
    about: str
    lock: str
    command: str
    distribution: str
    in_compose: bool
    store: bool
    pure_domain: bool
    topics: Mapping[str, Any]
    groups: Mapping[str, Mapping[str, Any]]
    graphs: tuple[str, ...]
    programs: tuple[Program, ...]


def askers_of(
    scenarios: Sequence[Scenario], name_of: Callable[[Program], str]
) -> Mapping[str, Mapping[str, str]]:
    """Return of each program that answers queries which programs ask it, each with the scenario of both; by their Kafka users."""
    return {
        name_of(program): {name_of(each): scenario.name for each in scenario.programs if each.asks}
        for scenario in scenarios
        for program in scenario.programs
        if program.answers
    }


class _Keys:
    """The keys of a table of a manifest, each taken once with its type; one that is left over is unknown."""

    def __init__(self, file: Path, key: str, table: Mapping[str, Any]) -> None:
        self._file, self._key, self._table, self._taken = file, key, table, set[str]()

    def fail(self, key: str, reason: str) -> ManifestInvalidError:
        return ManifestInvalidError(self._file, f"{self._key}{key}", reason)

    def take(self, key: str, default: Any) -> Any:
        """Return the value of a key, or the default, which has the type that the value must have."""
        self._taken.add(key)
        value = self._table.get(key, default)
        if type(value) is not type(default):
            raise self.fail(key, f"must be {_TYPES[type(default)]}, and is {value!r}")
        return value

    def texts(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        found = self.take(key, list(default))
        if not all(isinstance(each, str) for each in found):
            raise self.fail(key, f"must be a list of strings, and is {found!r}")
        return tuple(found)

    def text_table(self, key: str) -> Mapping[str, str]:
        found: dict[str, str] = self.take(key, {})
        if not all(isinstance(each, str) for each in found.values()):
            raise self.fail(key, f"must be a table of strings, and is {found!r}")
        return found

    def tables(self, key: str) -> Mapping[str, Mapping[str, Any]]:
        found: dict[str, dict[str, Any]] = self.take(key, {})
        for name, each in found.items():
            if not isinstance(each, dict):
                raise self.fail(f"{key}.{name}", f"must be a table, and is {each!r}")
        return found

    def end(self) -> None:
        if unknown := self._table.keys() - self._taken:
            known = ", ".join(sorted(self._taken))
            raise self.fail(min(unknown), f"is unknown; the keys are {known}")


def load_all(root: Path) -> tuple[Scenario, ...]:
    """Return the scenarios of a checkout, in the order of their folders.

    Raises:
        ManifestInvalidError: A manifest is invalid, or two of them claim one name, service, port, topic or group.
    """
    files = sorted(root.glob("services/*/scenario.toml"))
    found = tuple(load(file) for file in files)
    claimed: dict[tuple[str, object], Path] = {}
    settings: dict[str, str] = {}
    groups = {group for each in found for group in each.groups}
    for file, scenario in zip(files, found, strict=True):
        for key, name in _claims(scenario):
            if (key, name) in claimed:
                raise ManifestInvalidError(file, key, f"{claimed[key, name]} has {name!r} already")
            claimed[key, name] = file
        for program in scenario.programs:
            here = f"programs.{program.name}"
            if unknown := [each for each in program.rights.get("follows", ()) if each not in groups]:
                raise ManifestInvalidError(
                    file, f"{here}.follows", f"no manifest has the group {unknown[0]!r}"
                )
            for name, value in program.settings.items():
                if (other := settings.setdefault(name, value)) != value:
                    reason = f"is {value!r}, and {other!r} for another program: all have one in Kubernetes"
                    raise ManifestInvalidError(file, f"{here}.settings.{name}", reason)
    return found


def load(file: Path) -> Scenario:
    """Return the scenario of a manifest.

    Raises:
        ManifestInvalidError: It is not valid TOML, or a key is unknown, or has a value of another type, or names nothing.
    """
    try:
        table = tomllib.loads(file.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ManifestInvalidError(file, "(the file)", f"is not valid TOML: {error}") from error
    keys = _Keys(file, "", table)
    name = keys.take("name", "")
    if not NAME.fullmatch(name):
        raise keys.fail("name", f"must be words in lower case with hyphens between them, and is {name!r}")
    lock = keys.take("lock", "")
    if lock not in LOCKS:
        raise keys.fail("lock", f"must be one of {', '.join(LOCKS)}, and is {lock!r}")
    in_compose = keys.take("in_compose", default=True)
    profile = keys.take("profile", "")
    variable = keys.take("port_variable", f"STACK_{name.replace('-', '_').upper()}")
    declared = keys.tables("programs")
    package = file.parent / "src" / file.parent.name
    made = Scenario(
        folder=file.parent.name,
        name=name,
        about=keys.take("about", ""),
        lock=lock,
        command=keys.take("command", name),
        distribution=keys.take("distribution", f"streamtable-{name}"),
        in_compose=in_compose,
        store=keys.take("store", default=False),
        pure_domain=(package / "domain.py").exists() or (package / "domain").exists(),
        topics=_topics(keys),
        groups=_groups(keys),
        graphs=keys.texts("graphs"),
        programs=tuple(
            _program(_Keys(file, f"programs.{each}.", declared[each]), each, name, profile, variable)
            for each in declared
        ),
    )
    keys.end()
    if not made.programs:
        raise keys.fail("programs", "a scenario has at least one program")
    for program in made.programs:
        if unknown := [each for each in program.groups if each not in made.groups]:
            raise keys.fail(f"programs.{program.name}.runs", f"the manifest has no group {unknown[0]!r}")
        if program.asks and not any(each.answers for each in made.programs):
            raise keys.fail(f"programs.{program.name}.asks", "no program of the manifest answers")
    for group in made.groups:
        if not any(group in each.groups for each in made.programs):
            raise keys.fail(f"groups.{group}", "no program runs it: name it in the key runs of one")
    return made


def _topics(keys: _Keys) -> Mapping[str, Any]:
    topics: Mapping[str, Any] = keys.take("topics", {})
    for topic, what in topics.items():
        if what not in TOPIC_KINDS and not isinstance(what, dict):
            kinds = ", ".join(map(repr, TOPIC_KINDS))
            raise keys.fail(f"topics.{topic}", f"must be a table or one of {kinds}, and is {what!r}")
    return topics


def _groups(keys: _Keys) -> Mapping[str, Mapping[str, Any]]:
    groups = keys.tables("groups")
    for group, what in groups.items():
        inputs = what.get("inputs", [])
        if not isinstance(inputs, list) or not (inputs or what.get("joins")):
            raise keys.fail(f"groups.{group}.inputs", "must be a list of topics")
    return groups


def _program(keys: _Keys, name: str, scenario: str, profile: str, variable: str) -> Program:
    """Return a program; what it does not say follows from its name and its scenario."""
    kind = keys.take("kind", name)
    if kind not in KINDS:
        raise keys.fail("kind", f"must be one of {', '.join(KINDS)}, and is {kind!r}")
    replays: bool = keys.take("replays", default=False)
    rights: dict[str, Any] = {
        key: list(named) for key in ("runs", "reads", "follows", "writes") if (named := keys.texts(key))
    }
    made = Program(
        name=name,
        scenario=scenario,
        kind=kind,
        command=keys.texts("command", [name]),
        service=keys.take("service", f"{scenario}-{name}"),
        profile=keys.take("profile", profile),
        deployments=keys.texts("deployments", DEPLOYMENTS),
        about=keys.take("about", ""),
        memory_mb=keys.take("memory_mb", 0),
        port=keys.take("port", 0),
        port_variable=keys.take("port_variable", f"{variable}_{name.replace('-', '_').upper()}_PORT"),
        single=keys.take("single", default=False),
        answers=keys.take("answers", default=False),
        asks=keys.take("asks", default=False),
        component=keys.take("component", kind),
        settings=keys.text_table("settings"),
        environment=keys.text_table("environment"),
        passed_on=keys.texts("passed_on"),
        depends_on=keys.tables("depends_on"),
        rights=rights | ({"replays": True} if replays else {}),
    )
    keys.end()
    if unknown := set(made.deployments) - set(DEPLOYMENTS):
        raise keys.fail("deployments", f"must be of {', '.join(DEPLOYMENTS)}, and has {min(unknown)!r}")
    if kind == "processor" and not made.groups:
        raise keys.fail("runs", "a processor runs at least one group")
    for key, who in (("answers", "processor"), ("asks", "query")):
        if getattr(made, key) and kind != who:
            raise keys.fail(key, f"only a {who} does")
    if made.port and kind == "processor":
        raise keys.fail("port", "a processor serves no API, and its metrics are not published")
    if made.port and made.port not in PORTS:
        raise keys.fail("port", f"must be from {PORTS[0]} to {PORTS[-1]}, and is {made.port}")
    return made


def _claims(scenario: Scenario) -> Sequence[tuple[str, object]]:
    """Return what no other scenario, and no other program, may have."""
    published = [each for each in scenario.programs if each.port]
    services = [each.service for each in scenario.programs]
    return [
        ("name", scenario.name),
        *(("topics", each) for each in scenario.topics),
        *(("groups", each) for each in scenario.groups),
        *(("service", each) for each in (services if scenario.in_compose else dict.fromkeys(services))),
        *(("workload", each.workload) for each in scenario.programs),
        *(("port", each.port) for each in published),
        *(("port_variable", each.port_variable) for each in published),
    ]
