"""Renders the scenarios' parts of docker-compose.yml, of infra/secure/compose.yml over it, and what Prometheus reads there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from infra.scenarios.manifest import Program, Scenario
from infra.scenarios.text import WIDTH, blocks, comment, entry, flow, with_region

_API_PORT: Final = {"emitter": 8080, "view": 50051, "query": 8080}


def compose_file(text: str, scenarios: Sequence[Scenario]) -> str:
    """Return docker-compose.yml with the services and volumes of these scenarios in its regions."""
    services = [
        _service(scenario, program, first=at == 0)
        for scenario in scenarios
        for at, program in enumerate(deployed([scenario]))
    ]
    volumes = [f"  {program.service}:" for program in deployed(scenarios) if program.kind == "processor"]
    return with_region(with_region(text, "services", blocks(services)), "volumes", volumes)


def secure_file(text: str, scenarios: Sequence[Scenario], users: Iterable[str]) -> str:
    """Return infra/secure/compose.yml with the services of these scenarios, and the secrets of all users, in its regions.

    Args:
        text: The current file.
        scenarios: The scenarios.
        users: All Kafka users of the stack, also those that no scenario has.
    """
    users = list(users)
    serving = [program.service for program in deployed(scenarios) if program.serves_grpc]
    files = [f"{user}.password" for user in users] + [
        f"{name}.{end}" for name in serving for end in ("crt", "key")
    ]
    folder = "${STACK_SECRETS:-./build/secure}"
    text = with_region(text, "passwords", [f"      - {user}.password" for user in users])
    text = with_region(text, "services", blocks(map(_secured, deployed(scenarios))))
    return with_region(text, "secrets", [f'  {each}: {{file: "{folder}/{each}"}}' for each in files])


def prometheus_file(text: str, scenarios: Sequence[Scenario]) -> str:
    """Return the configuration of Prometheus with the services of these scenarios in its region."""
    return with_region(text, "services", [f"          - {each.service}" for each in deployed(scenarios)])


def ports_page(text: str, scenarios: Sequence[Scenario]) -> str:
    """Return the page about the stack with the published ports of these scenarios in its region."""
    rows = ["| | REST of the emitter | REST of the query | gRPC of the view |", "| --- | --- | --- | --- |"]
    for scenario in (each for each in scenarios if each.in_compose):
        published = [each for each in scenario.programs if each.port]
        profile = next((each.profile for each in published), "")
        name = f"{scenario.name}, profile `{profile}`" if profile else scenario.name
        cells = (
            ", ".join(f"{each.port}: `{each.port_variable}`" for each in published if each.kind == kind)
            for kind in ("emitter", "query", "view")
        )
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return with_region(text, "ports", ["", *rows, ""])


def deployed(scenarios: Sequence[Scenario]) -> list[Program]:
    """Return the programs that the compose stack has, in its profiles."""
    return [
        program
        for each in scenarios
        if each.in_compose
        for program in each.programs
        if "compose" in program.deployments
    ]


def _service(scenario: Scenario, program: Program, *, first: bool) -> list[str]:
    """Return the lines of a service; the first of a scenario names its image for the others."""
    image = f"${{STREAMTABLE_REGISTRY:-streamtable}}/{scenario.name}:${{STREAMTABLE_VERSION:-dev}}"
    lines = [*comment(program.about, 2), f"  {program.service}:", f"    <<: *{program.kind}"]
    if program.profile:
        lines.append(f"    profiles: {flow([program.profile])}")
    lines.append(f"    image: &{scenario.name} {image}" if first else f"    image: *{scenario.name}")
    if program.command != (program.kind,):
        lines.append(f"    command: {flow(program.command)}")
    if environment := _environment(program):
        lines += environment
    if program.port:
        # An empty variable is for copies: each gets a free port. An emitter and a single program keep theirs.
        fallback = ":-" if program.kind == "emitter" or program.single else "-"
        published = f"${{{program.port_variable}{fallback}{program.port}}}"
        lines.append(f'    ports: ["${{STACK_BIND:-127.0.0.1}}:{published}:{_API_PORT[program.kind]}"]')
    if program.kind == "processor":
        lines.append(f'    volumes: ["{program.service}:/var/lib/streamtable"]')
    if program.memory_mb:
        lines.append(f"    deploy: {{resources: {{limits: {{memory: {program.memory_mb}m, pids: 256}}}}}}")
    if program.depends_on:
        after = {"topics": {"condition": "service_completed_successfully"}, **program.depends_on}
        lines += ["    depends_on:", *(f"      {name}: {flow(how)}" for name, how in after.items())]
    return lines


def _environment(program: Program) -> list[str]:
    port = _API_PORT["view"]
    answering = {"STREAMTABLE_GRPC_ADDRESS": f"0.0.0.0:{port}", program.variable("QUERY_ADDRESS"): f":{port}"}
    own: Mapping[str, Any] = {
        **(answering if program.answers else {}),
        **program.environment,
        **dict.fromkeys(program.passed_on),
        **program.settings,
    }
    if not own:
        return []
    base = "*environment" if program.kind == "emitter" else f"*{program.kind}-environment"
    return [
        "    environment:",
        f"      <<: {base}",
        *(line for name, value in own.items() for line in entry(name, value, 6)),
    ]


def _secured(program: Program) -> list[str]:
    """Return the lines of a service that Kafka knows by its user and password, and callers by their key."""
    user, serves = program.service, program.serves_grpc
    environment = {
        "<<": "[*environment, *grpc]" if serves else "*environment",
        "STREAMTABLE_KAFKA_SASL_USERNAME": user,
        **program.asking("/run/secrets/authority.crt"),
    }
    secrets = [("password", "password"), *((end, f"grpc.{end}") for end in ("crt", "key") if serves)]
    return [
        f"  {user}:",
        *_plain("environment", environment),
        f'    env_file: ["${{STACK_SECRETS:-./build/secure}}/{user}.env"]',
        "    depends_on: *after",
        "    secrets:",
        "      - authority.crt",
        *(f"      - {{source: {user}.{end}, target: {target}}}" for end, target in secrets),
    ]


def _plain(key: str, values: Mapping[str, str]) -> list[str]:
    """Return the lines of a mapping whose values stand as they are, as references to anchors do."""
    pairs = [f"{name}: {value}" for name, value in values.items()]
    line = f"    {key}: {{{', '.join(pairs)}}}"
    return [line] if len(line) <= WIDTH else [f"    {key}:", *(f"      {pair}" for pair in pairs)]
