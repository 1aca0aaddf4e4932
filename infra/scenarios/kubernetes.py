"""Renders the scenarios' parts of infra/kubernetes: a kustomization for each application, and what the base has of all."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from infra.scenarios.manifest import KINDS, Program, Scenario
from infra.scenarios.text import HEADER, comment, entry, flow, with_region

_API: Final = "apiVersion: kustomize.config.k8s.io/v1"
_GRPC_PORT: Final = 50051
_SECRETS: Final = "/run/secrets/streamtable"
_LABELS: Final = "/spec/template/metadata/labels"


def application_files(scenarios: Sequence[Scenario]) -> Mapping[str, str]:
    """Return the text of each application's kustomization, by the name of its folder."""
    return {
        name: _application(scenario, name, programs)
        for scenario in scenarios
        for name, programs in _applications(scenario).items()
    }


def component_file(scenarios: Sequence[Scenario], users: Iterable[str]) -> str:
    """Return the component that adds all applications to the base, and tells its settings and jobs of them.

    Args:
        scenarios: The scenarios.
        users: All Kafka users that a password is made for, also those that no scenario has.
    """
    called = [
        program.workload
        for each in scenarios
        for program in each.programs
        if program.kind in ("emitter", "query")
    ]
    settings: dict[str, str] = {}
    for program in (program for each in scenarios for program in each.programs):
        settings |= program.settings
    names = [name for each in scenarios for name in _applications(each)]
    lines = [
        HEADER,
        f"{_API}alpha1",
        "kind: Component",
        "resources:",
        *(f"  - {name}" for name in names),
        "patches:",
        "  - patch: |-",
        "      apiVersion: v1",
        "      kind: ConfigMap",
        "      metadata: {name: streamtable-settings}",
        "      data:",
        *(line for name, value in settings.items() for line in entry(name, value, 8)),
        *comment(
            "The names of the Services, by which callers in the cluster ask; an overlay adds the names that an ingress "
            "passes on.",
            8,
        ),
        "        SERVICEKIT_HOSTS: >-",
        *(f"          {name}," for name in called),
        "          *.svc, *.svc.cluster.local",
        "  - patch: |-",
        "      apiVersion: batch/v1",
        "      kind: Job",
        "      metadata: {name: streamtable-users}",
        "      spec:",
        "        template:",
        "          spec:",
        "            volumes:",
        "              - name: passwords",
        "                projected:",
        "                  defaultMode: 0440",
        "                  sources:",
        *(
            f"                    - secret: {{name: {user}, items: [{{key: password, path: {user}.password}}]}}"
            for user in users
        ),
    ]
    return "\n".join([*lines, ""])


def images_file(text: str, scenarios: Sequence[Scenario]) -> str:
    """Return the production overlay with the images of these scenarios in its region."""
    images = [f"  - {{name: streamtable/{each.name}, newTag: dev}}" for each in scenarios]
    return with_region(text, "images", images)


def network_file(text: str, scenarios: Sequence[Scenario]) -> str:
    """Return the network policies, where the applications that may reach a central store are named in a region."""
    names = [name for each in scenarios if each.store for name in _applications(each)]
    expression = {"key": "app.kubernetes.io/name", "operator": "In", "values": names}
    return with_region(text, "stores", [f"      - {flow(expression)}"])


def autoscaling_file(text: str, scenarios: Sequence[Scenario]) -> str:
    """Return the autoscaler's objects, with an object for each processor in its region."""
    parts = [
        line
        for scenario in scenarios
        for program in scenario.programs
        if program.kind == "processor" and "kubernetes" in program.deployments
        for line in _scaled(scenario, program)
    ]
    return with_region(text, "processors", parts)


def _applications(scenario: Scenario) -> Mapping[str, Sequence[Program]]:
    """Return the programs of each application: the standard ones are one, each other program is its own."""
    there = [each for each in scenario.programs if "kubernetes" in each.deployments]
    ordered = sorted(there, key=lambda each: each.application != scenario.name)
    return {name: list(each) for name, each in groupby(ordered, key=lambda each: each.application)}


def _application(scenario: Scenario, name: str, programs: Sequence[Program]) -> str:
    kinds = tuple(each.kind for each in programs)
    whole = set(kinds) == set(KINDS)
    parts = ["../../scenario"] if whole else [f"../../parts/{kind}" for kind in kinds]
    labels = {"app.kubernetes.io/name": name}
    if (component := programs[0].component) != programs[0].kind:
        labels["app.kubernetes.io/component"] = component
    lines = [
        HEADER,
        *(comment(scenario.about) if name == scenario.name else ()),
        f"{_API}beta1",
        "kind: Kustomization",
        f"resources: {flow(parts)}",
        f"namePrefix: {name}-",
        "labels:",
        f"  - pairs: {flow(labels | {'app.kubernetes.io/part-of': 'streamtable'})}",
        "    includeSelectors: true",
        "    includeTemplates: true",
        "images:",
        f"  - {{name: service, newName: streamtable/{scenario.name}, newTag: dev}}",
    ]
    changed = [line for program in programs for line in _changes(program)]
    return "\n".join([*lines, *(["patches:", *changed] if changed else ()), ""])


def _changes(program: Program) -> list[str]:
    """Return the patches of a workload that is not as its part."""
    container = "/spec/template/spec/containers/0"
    changes: list[tuple[str, str, object]] = []
    if program.single:
        changes.append(("replace", "/spec/replicas", 1))
    if program.command != (program.kind,):
        changes.append(("replace", f"{container}/args", program.command))
    if program.answers:
        changes.append(("add", f"{_LABELS}/streamtable~1answers", "true"))
        changes.append(("add", f"{container}/ports/-", {"name": "grpc", "containerPort": _GRPC_PORT}))
    if program.asks:  # it keeps nothing
        changes += [("add", f"{each}/streamtable~1asks", "true") for each in ("/metadata/labels", _LABELS)]
        changes.append(("remove", "/spec/volumeClaimTemplates", None))
        volume = {"name": "state", "emptyDir": {"sizeLimit": "16Mi"}}
        changes.append(("add", "/spec/template/spec/volumes/-", volume))
    changes += [("add", f"{container}/env/-", each) for each in _variables(program)]
    if not changes:
        return []
    kind = "Deployment" if program.kind == "emitter" else "StatefulSet"
    return [
        f"  - target: {{kind: {kind}, name: {program.kind}}}",
        "    patch: |-",
        *(
            f"      - {flow({'op': op, 'path': path} | ({} if value is None else {'value': value}))}"
            for op, path, value in changes
        ),
    ]


def _variables(program: Program) -> list[Mapping[str, object]]:
    """Return the variables of a program that answers queries, or asks those that do."""
    plain = dict(program.asking(f"{_SECRETS}/ca.crt"))
    if program.answers:
        # The name of a replica in DNS: of its pod, in the headless Service.
        host = f"$(STREAMTABLE_INSTANCE_ID).$(SERVICE_NAME)-{program.kind}-pods"
        plain |= {
            "STREAMTABLE_GRPC_ADDRESS": f"0.0.0.0:{_GRPC_PORT}",
            program.variable("QUERY_ADDRESS"): f"{host}:{_GRPC_PORT}",
            "SERVICEKIT_GRPC_CERTIFICATE_FILE": f"{_SECRETS}/tls.crt",
            "SERVICEKIT_GRPC_KEY_FILE": f"{_SECRETS}/tls.key",
        }
    variables: list[Mapping[str, object]] = [{"name": name, "value": value} for name, value in plain.items()]
    if program.asks:
        key = {"secretKeyRef": {"name": program.kind, "key": "query-key"}}
        variables.append({"name": program.variable("QUERY_KEY"), "valueFrom": key})
    return variables


def _scaled(scenario: Scenario, program: Program) -> list[str]:
    """Return the lines of the object that scales a processor by the lag of every input of each of its groups."""
    name = program.workload
    lines = [
        "---",
        "apiVersion: keda.sh/v1alpha1",
        "kind: ScaledObject",
        f"metadata: {{name: {name}}}",
        "spec:",
        f"  scaleTargetRef: {{apiVersion: apps/v1, kind: StatefulSet, name: {name}}}",
        "  triggers:",
    ]
    for group in program.groups:
        for topic in scenario.groups[group]["inputs"]:
            lines += [
                "    - type: kafka",
                "      metadata:",
                "        bootstrapServers: kafka-0.kafka:9093,kafka-1.kafka:9093,kafka-2.kafka:9093",
                f"        consumerGroup: {group}",
                f"        topic: {topic}",
                '        lagThreshold: "20000"',
                "        offsetResetPolicy: earliest",
                "        sasl: scram_sha512",
                "        tls: enable",
                "      authenticationRef: {name: streamtable-autoscaler}",
            ]
    return lines
