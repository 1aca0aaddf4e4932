"""The manifests: what must be true of every pod, and, where kustomize is, that each overlay renders to valid objects."""

import re
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from infra.scenarios.kubernetes import autoscaling_file
from infra.scenarios.manifest import load_all
from infra.secure.kubernetes import manifests
from jsonschema import Draft202012Validator, ValidationError
from kubernetes_validate import utils
from referencing import Registry, Resource

from click_count.settings import ClickSettings
from inventory.settings import InventorySettings
from localkafka.certificates import hosts_of
from servicekit.process.edge_settings import EdgeSettings
from servicekit.process.service_settings import ServiceSettings
from servicekit.process.tracing import trace_settings
from streamtable import Settings
from streamtable.base.hosts import OwnHosts
from streamtable_admin import declared
from streamtable_admin.acls import required_acls
from streamtable_query import QueryAddress
from user_status.settings import StatusSettings

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "infra/kubernetes"
VERSIONS = ("1.31", "1.34")
OVERLAYS = ("small", "production")
OF_OTHERS = {
    "ScaledObject",
    "TriggerAuthentication",
    "PodMonitor",
    "Kustomization",
    "Component",
}  # definitions not Kubernetes's own
MANIFESTS = sorted(path for path in FOLDER.rglob("*.yaml") if path.name != "topics.yaml")
ROLES = ("emitter", "processor", "view", "query")
SCENARIOS = load_all(ROOT)
# What an overlay runs, by image: the names of its workloads, and the arguments of their containers.
THERE = {each.name: [one for one in each.programs if "kubernetes" in one.deployments] for each in SCENARIOS}
PROGRAMS = {one.workload: one for programs in THERE.values() for one in programs}
# Of the services that serve pages of rows.
SETTINGS: tuple[type[ServiceSettings], ...] = (ClickSettings, InventorySettings, StatusSettings)
RUN = {name: {one.workload: list(one.command) for one in programs} for name, programs in THERE.items()}


def objects(text: str) -> list[dict[str, Any]]:
    # The loader in C, where the library has it: an overlay is 5,000 lines, and that in Python takes seconds.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, loader) if each]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    found = [each for path in MANIFESTS for each in objects(path.read_text())]
    return [each for each in found if each["kind"] in kinds]


WORKLOADS = of_kind("Deployment", "StatefulSet", "Job")
PODS = [*WORKLOADS, *of_kind("CronJob")]


def added(kind: str) -> dict[str, Any]:
    """What the component of all scenarios adds to the object of this kind in the base."""
    (component,) = objects((FOLDER / "base/scenarios/kustomization.yaml").read_text())
    patches = [yaml.safe_load(each["patch"]) for each in component["patches"]]
    (found,) = [each for each in patches if each["kind"] == kind]
    return dict(found)


def name_of(thing: dict[str, Any]) -> str:
    return str(thing["metadata"]["name"])


def pod_of(thing: dict[str, Any]) -> dict[str, Any]:
    job = thing["spec"]["jobTemplate"] if thing["kind"] == "CronJob" else thing
    return dict(job["spec"]["template"]["spec"])


def validate(thing: dict[str, Any]) -> None:
    if thing["kind"] not in OF_OTHERS:
        for version in VERSIONS:
            schema_of(thing["kind"], thing["apiVersion"], version).validate(thing)


@cache
def schema_of(kind: str, api_version: str, version: str) -> Draft202012Validator:
    """The strict schema, as `kubernetes_validate.validate` finds it: that reads 1.5 MB of definitions again for each object."""
    folder, shared = definitions(version)
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = utils.schema_contents(f"{folder}/{kind.lower()}-{group}.json", version)
    return Draft202012Validator(schema, registry=shared)


@cache
def definitions(version: str) -> tuple[str, Registry[Any]]:
    """The folder of the schemas of a version, and the definitions to which they refer."""
    (found,) = {each for each in utils.all_versions() if utils.major_minor(each) == version}
    folder = f"kubernetes-json-schema/v{found}-local-strict"
    shared = Resource.from_contents(utils.schema_contents(f"{folder}/_definitions.json", version))
    return folder, (shared @ Registry()).crawl()


def test_an_object_with_an_unknown_field_is_not_valid() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "view"},
        "spec": {"clusterIP": "None"},
    }
    validate(service)
    with pytest.raises(ValidationError, match="portz"):
        validate({**service, "spec": {"portz": []}})


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_manifest_is_valid(path: Path) -> None:
    for thing in objects(path.read_text()):
        validate(thing)


@pytest.mark.parametrize(
    "path", sorted(FOLDER.rglob("kustomization.yaml")), ids=lambda path: path.parent.name
)
def test_a_kustomization_names_all_files_of_its_folder_and_no_other(path: Path) -> None:
    (settings_given,) = objects(path.read_text())
    named = [
        *settings_given.get("resources", []),
        *(file for each in settings_given.get("configMapGenerator", []) for file in each["files"]),
    ]
    assert all((path.parent / each).exists() for each in named)
    there = {file.name for file in path.parent.glob("*.yaml")} - {"kustomization.yaml"}
    assert there == {each for each in named if each.endswith(".yaml")}


@pytest.mark.parametrize("thing", PODS, ids=name_of)
def test_a_pod_has_no_rights_and_bounded_memory(thing: dict[str, Any]) -> None:
    pod = pod_of(thing)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]


@pytest.mark.parametrize("thing", PODS, ids=name_of)
def test_a_pod_may_read_the_secrets_that_it_mounts(thing: dict[str, Any]) -> None:
    """The kubelet gives these files to root, and to a group only if `fsGroup` names it."""
    pod = pod_of(thing)
    added_volumes = pod_of(added("Job"))["volumes"] if name_of(thing) == "streamtable-users" else []
    volumes = [*pod["volumes"], *added_volumes]
    mounted = [each[kind] for each in volumes for kind in ("secret", "projected") if kind in each]
    assert mounted
    assert {each["defaultMode"] for each in mounted} == {0o440}
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]


@pytest.mark.parametrize("role", ROLES)
def test_a_service_has_probes_a_name_of_its_own_and_time_to_stop(role: str) -> None:
    (thing,) = [each for each in WORKLOADS if name_of(each) == role]
    assert thing["kind"] == ("Deployment" if role == "emitter" else "StatefulSet")
    pod = thing["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == [role]
    probes = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert probes == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    instance = {"name": "STREAMTABLE_INSTANCE_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert instance in container["env"]
    wait = int(container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [0, 0])[1])
    assert pod["terminationGracePeriodSeconds"] > Settings().shutdown_timeout + wait
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounted == {"/tmp", "/var/lib/streamtable", "/run/secrets/streamtable"}


@pytest.mark.parametrize("role", ROLES)
def test_nodes_are_drained_one_replica_at_a_time(role: str) -> None:
    (budget,) = [each for each in of_kind("PodDisruptionBudget") if name_of(each) == role]
    (thing,) = [each for each in WORKLOADS if name_of(each) == role]
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == thing["spec"]["selector"]


def test_all_variables_of_the_pods_are_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a secret")
    (settings,) = of_kind("ConfigMap")
    settings_given = dict(settings["data"]) | added("ConfigMap")["data"]
    for thing in WORKLOADS:
        (container,) = thing["spec"]["template"]["spec"]["containers"]
        settings_given |= {each["name"]: each.get("value", "pod-0") for each in container.get("env", [])}
    for name, value in settings_given.items():
        monkeypatch.setenv(name, value.replace("/run/secrets/streamtable", str(tmp_path)))
    assert Settings.from_environment().instance_id == "pod-0"


def test_the_collector_of_traces_is_named_as_services_take_it_and_the_network_lets_them_reach_it() -> None:
    (component,) = objects((FOLDER / "components/tracing/kustomization.yaml").read_text())
    added = {each["target"]["kind"]: yaml.safe_load(each["patch"]) for each in component["patches"]}
    settings_given = {each["path"].removeprefix("/data/"): each["value"] for each in added["ConfigMap"]}
    traces = trace_settings(settings_given, "click-count", "pod-0")
    assert traces is not None
    assert (traces.sampler, traces.ratio) == ("parentbased_traceidratio", 0.01)
    things = {(each["kind"], name_of(each)): each for each in rendered("production")}
    if things:
        assert settings_given.items() <= things["ConfigMap", "streamtable-settings"]["data"].items()
        egress = things["NetworkPolicy", "streamtable"]["spec"]["egress"]
        assert urlsplit(traces.endpoint).port in [each["port"] for rule in egress for each in rule["ports"]]


@pytest.mark.parametrize("path", ["base/topics.yaml", "overlays/small/topics.yaml"])
def test_topics_and_groups_are_those_of_the_compose_stack(path: str) -> None:
    ours = yaml.safe_load((FOLDER / path).read_text())
    everybody = yaml.safe_load((ROOT / "infra/topics.yaml").read_text())
    assert (ours["topics"], ours["groups"]) == (everybody["topics"], everybody["groups"])


def test_processors_are_scaled_by_the_lag_of_every_input_of_every_group() -> None:
    groups = yaml.safe_load((FOLDER / "base/topics.yaml").read_text())["groups"]
    triggers = [each["metadata"] for thing in of_kind("ScaledObject") for each in thing["spec"]["triggers"]]
    assert {(each["consumerGroup"], each["topic"]) for each in triggers} == {
        (name, topic)
        for programs in THERE.values()
        for program in programs
        for name in program.groups
        for topic in groups[name]["inputs"]
    }


@cache
def rendered(overlay: str) -> list[dict[str, Any]]:
    """All objects of an overlay; none, and a word about it, where there is nothing that renders."""
    kustomize, kubectl = shutil.which("kustomize"), shutil.which("kubectl")
    command = [kustomize, "build"] if kustomize else [kubectl, "kustomize"] if kubectl else None
    if command is None:
        print(
            "neither kustomize nor kubectl is here: the other tests judge the parts that overlays are made of"
        )
        return []
    done = subprocess.run(
        [*map(str, command), FOLDER / "overlays" / overlay], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def secrets_of(thing: dict[str, Any]) -> dict[str, set[str]]:
    """The keys that an object needs of each Secret, by the Secret's name."""
    needed: dict[str, set[str]] = {}
    if thing["kind"] == "TriggerAuthentication":
        for each in thing["spec"]["secretTargetRef"]:
            needed.setdefault(each["name"], set()).add(each["key"])
    pod = thing.get("spec", {}).get("template", {}).get("spec", {})
    for container in pod.get("containers", []):
        for each in container.get("envFrom", []):
            if "secretRef" in each:
                needed.setdefault(each["secretRef"]["name"], set())
        for each in container.get("env", []):
            if reference := each.get("valueFrom", {}).get("secretKeyRef"):
                needed.setdefault(reference["name"], set()).add(reference["key"])
    for volume in pod.get("volumes", []):
        if "secret" in volume:
            keys = {each["key"] for each in volume["secret"].get("items", [])}
            needed.setdefault(volume["secret"]["secretName"], set()).update(keys)
        for source in volume.get("projected", {}).get("sources", []):
            keys = {each["key"] for each in source["secret"]["items"]}
            needed.setdefault(source["secret"]["name"], set()).update(keys)
    return needed


def labels_of(thing: dict[str, Any]) -> dict[str, str]:
    return dict(thing["spec"]["template"]["metadata"]["labels"])


def chosen(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    selected = selector.get("matchLabels", {}).items() <= labels.items()
    return selected and all(labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", []))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_renders_to_valid_objects_of_all_services(overlay: str) -> None:
    things = rendered(overlay)
    for thing in things:
        validate(thing)
        assert thing["kind"] == "Namespace" or thing["metadata"]["namespace"] == "streamtable"
    names = {(each["kind"], name_of(each)) for each in things}
    assert len(names) == len(things)
    running: dict[str, dict[str, list[str]]] = {}
    for thing in things:
        if thing["kind"] in {"StatefulSet", "Deployment"}:
            (container,) = thing["spec"]["template"]["spec"]["containers"]
            image = re.fullmatch(r"streamtable/([\w-]+):\w+", container["image"])
            assert image is not None
            running.setdefault(image[1], {})[name_of(thing)] = container["args"]
        if thing["kind"] == "StatefulSet":
            assert ("Service", thing["spec"]["serviceName"]) in names
    assert not things or running == RUN


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_selector_of_an_overlay_finds_the_pods_of_one_workload(overlay: str) -> None:
    things = rendered(overlay)
    pods = {
        name_of(each): labels_of(each) for each in things if each["kind"] in {"StatefulSet", "Deployment"}
    }
    for thing in things:
        match thing["kind"]:
            case "Service":
                found = [
                    name
                    for name, labels in pods.items()
                    if thing["spec"]["selector"].items() <= labels.items()
                ]
            case "PodDisruptionBudget" | "StatefulSet" | "Deployment":
                found = [name for name, labels in pods.items() if chosen(thing["spec"]["selector"], labels)]
            case _:
                continue
        assert found == [name_of(thing).removesuffix("-pods")]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_rest_answers_to_the_names_by_which_callers_in_the_cluster_ask(overlay: str) -> None:
    things = rendered(overlay)
    (settings,) = [each["data"] for each in things if name_of(each) == "streamtable-settings"] or [{}]
    hosts = OwnHosts(
        EdgeSettings.from_environment({k: v for k, v in settings.items() if k == "SERVICEKIT_HOSTS"}).hosts
    )
    for each in things:
        if each["kind"] == "Service" and not name_of(each).endswith(("-pods", "-view")):
            for name in (name_of(each), f"{name_of(each)}.streamtable.svc.cluster.local"):
                assert hosts.include(f"{name}:8080", None)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_overlay_lets_callers_in_without_a_key(overlay: str) -> None:
    settings = [each["data"] for each in rendered(overlay) if name_of(each) == "streamtable-settings"]
    assert all("SERVICEKIT_ALLOW_UNAUTHENTICATED" not in each for each in settings)


def test_in_production_processors_belong_to_the_autoscaler_within_their_partitions() -> None:
    things = rendered("production")
    partitions = yaml.safe_load((FOLDER / "base/topics.yaml").read_text())["defaults"]["partitions"]
    processors = {
        name_of(each) for each in things if each["kind"] == "StatefulSet" and "replicas" not in each["spec"]
    }
    scaled = [each for each in things if each["kind"] == "ScaledObject"]
    assert {each["spec"]["scaleTargetRef"]["name"] for each in scaled} == processors
    (settings,) = [each["data"] for each in things if name_of(each) == "streamtable-settings"] or [{}]
    for each in scaled:
        assert 1 < each["spec"]["minReplicaCount"] < each["spec"]["maxReplicaCount"] <= partitions
        for trigger in each["spec"]["triggers"]:
            assert trigger["metadata"]["bootstrapServers"] == settings["STREAMTABLE_BOOTSTRAP_SERVERS"]


def test_a_sink_is_scaled_by_the_lag_of_each_of_its_groups() -> None:
    """The stack's own sinks are in no cluster, as it has no database; where they are added, they are processors like others."""
    (inventory,) = [each for each in SCENARIOS if each.name == "inventory"]
    (sinks,) = [each for each in inventory.programs if each.name == "sinks"]
    programs = (replace(sinks, deployments=("kubernetes",)),)
    text = (FOLDER / "components/autoscaling/autoscaling.yaml").read_text()
    things = objects(autoscaling_file(text, [replace(inventory, programs=programs)]))
    (scaled,) = [each for each in things if each["kind"] == "ScaledObject"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == "inventory-sinks-processor"
    triggers = [each["metadata"] for each in scaled["spec"]["triggers"]]
    assert [(each["consumerGroup"], each["topic"]) for each in triggers] == [
        ("inventory-stock-out", "inventory-stock"),
        ("inventory-hours-out", "product-hours"),
    ]


OPENED = {
    "streamtable-metrics": ["http"],
    "streamtable-callers": [8080],
    "streamtable-grpc-callers": [50051],
    "streamtable-answers": [50051],
    "streamtable-console": [8080],
}
"""The ports that each network policy opens."""


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_network_lets_through_what_is_needed_and_no_more(overlay: str) -> None:
    things = rendered(overlay)
    policies = {name_of(each): each["spec"] for each in things if each["kind"] == "NetworkPolicy"}
    workloads = [each for each in things if each["kind"] in {"StatefulSet", "Deployment", "Job"}]
    for workload in workloads:
        labels = labels_of(workload)
        bound = {name for name, spec in policies.items() if chosen(spec["podSelector"], labels)}
        assert {"streamtable", "streamtable-metrics"} <= bound
        component = labels.get("app.kubernetes.io/component")
        assert ("streamtable-callers" in bound) == (component in {"emitter", "query"})
        assert ("streamtable-grpc-callers" in bound) == (component == "view")
        assert ("streamtable-console" in bound) == (component == "console")
        program = PROGRAMS.get(name_of(workload))
        assert ("streamtable-answers" in bound) == (program is not None and program.answers)
        assert ("streamtable-asks" in bound) == (program is not None and program.asks)
        stores = {each.name for each in SCENARIOS if each.store}
        assert ("streamtable-store" in bound) == (labels["app.kubernetes.io/name"] in stores)
    opened = {}
    for name, spec in policies.items():
        for rule in spec.get("ingress", []):
            assert rule["from"], "a rule without from allows every pod"
            opened[name] = [each["port"] for each in rule["ports"]]
    assert opened == OPENED or not things
    (monitor,) = [each["spec"] for each in things if each["kind"] == "PodMonitor"] or [None]
    assert monitor is None or all(chosen(monitor["selector"], labels_of(each)) for each in workloads)


def test_no_secret_may_be_absent() -> None:
    assert not [path for path in MANIFESTS if "optional:" in path.read_text()]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_service_has_a_secret_user_and_keys_of_its_own(overlay: str) -> None:
    users = yaml.safe_load((FOLDER / "base/topics.yaml").read_text())["users"]
    services = [each for each in rendered(overlay) if each["kind"] in {"StatefulSet", "Deployment"}]
    for service in services:
        name, pod = name_of(service), service["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        environment = {each["name"]: each for each in container["env"]}
        label = environment["SERVICE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"]
        called = labels_of(service)[label.removeprefix("metadata.labels['").removesuffix("']")]
        user = environment["STREAMTABLE_KAFKA_SASL_USERNAME"]["value"].replace("$(SERVICE_NAME)", called)
        assert user == name
        assert user in users
        keys = environment["SERVICEKIT_API_KEYS"]["valueFrom"]["secretKeyRef"]
        mounted = [each["secret"] for each in pod["volumes"] if "secret" in each]
        assert keys == {"name": name, "key": "api-keys"}
        assert [(each["secretName"], each["defaultMode"]) for each in mounted] == [(name, 0o440)]
        if PROGRAMS[name].serves_grpc:
            assert environment["SERVICEKIT_GRPC_KEY_FILE"]["value"] == "/run/secrets/streamtable/tls.key"
    assert len({name_of(each) for each in services}) == len(services)


def variables_of(pod: str, workload: dict[str, Any], settings: dict[str, str]) -> dict[str, str]:
    """The environment of a pod as the kubelet makes it, but for what is in Secrets."""
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    made = dict(settings)
    fields = {"metadata.name": pod} | {
        f"metadata.labels['{key}']": value for key, value in labels_of(workload).items()
    }
    for each in container["env"]:
        if "value" in each:
            made[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: made[found[1]], each["value"])
        elif reference := each["valueFrom"].get("fieldRef"):
            made[each["name"]] = fields[reference["fieldPath"]]
    return made


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_query_without_a_copy_reaches_each_pod_that_answers_by_its_name_and_knows_it_by_its_certificate(
    overlay: str, tmp_path: Path
) -> None:
    things = {(each["kind"], name_of(each)): each for each in rendered(overlay)}
    settings = things.get(("ConfigMap", "streamtable-settings"), {"data": {}})["data"]
    secrets = {
        name_of(each): each["stringData"]
        for each in manifests(tmp_path, "streamtable", list(PROGRAMS), datetime.now(UTC))
    }
    answering = [each for each in PROGRAMS.values() if each.answers]
    asking = [each for each in PROGRAMS.values() if each.asks]
    assert {each.scenario for each in answering} == {each.scenario for each in asking}
    for program in answering if things else ():
        workload = things["StatefulSet", program.workload]
        given = variables_of(f"{program.workload}-1", workload, settings)
        address = QueryAddress.parse(given[program.variable("QUERY_ADDRESS")])
        service = workload["spec"]["serviceName"]
        assert address.host == f"{program.workload}-1.{service}"  # the name of a pod in DNS
        assert things["Service", service]["spec"]["clusterIP"] == "None"
        assert given["STREAMTABLE_GRPC_ADDRESS"] == f"0.0.0.0:{address.port}"
        keys = EdgeSettings.from_environment(
            {"SERVICEKIT_API_KEYS": secrets[program.workload]["api-keys"]}
        ).api_keys
        for asker in (each for each in asking if each.scenario == program.scenario):
            asks = variables_of("", things["StatefulSet", asker.workload], settings)
            name = asks[asker.variable("QUERY_SERVER_NAME")]
            assert name in hosts_of(secrets[program.workload]["tls.crt"].encode())
            key = sha256(secrets[asker.workload]["query-key"].encode()).digest()
            assert [each.scopes for each in keys if each.digest == key] == [{f"{program.scenario}/read"}]
    for asker in asking if things else ():
        workload = things["StatefulSet", asker.workload]
        assert "volumeClaimTemplates" not in workload["spec"]
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        volumes = {each["name"] for each in workload["spec"]["template"]["spec"]["volumes"]}
        assert volumes == {each["name"] for each in container["volumeMounts"]}


def test_in_production_kafka_is_reached_over_tls_with_a_password() -> None:
    things = {(each["kind"], name_of(each)): each for each in rendered("production")}
    if not things:
        return
    settings = things["ConfigMap", "streamtable-settings"]["data"]
    assert settings["STREAMTABLE_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
    assert settings["STREAMTABLE_KAFKA_SASL_MECHANISM"] == "SCRAM-SHA-512"
    folder = "/run/secrets/streamtable/"
    files = {settings[f"STREAMTABLE_KAFKA_{each}"] for each in ("SASL_PASSWORD_FILE", "SSL_CA_LOCATION")}
    assert files == {f"{folder}password", f"{folder}ca.crt"}
    for (kind, _), scaled in things.items():
        for trigger in scaled["spec"]["triggers"] if kind == "ScaledObject" else []:
            assert (trigger["metadata"]["tls"], trigger["metadata"]["sasl"]) == ("enable", "scram_sha512")
            assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in things


def test_a_job_gives_every_user_its_password_and_acls() -> None:
    (job,) = [each for each in WORKLOADS if name_of(each) == "streamtable-users"]
    pod = added("Job")["spec"]["template"]["spec"]
    (passwords,) = [each["projected"]["sources"] for each in pod["volumes"] if "projected" in each]
    users = yaml.safe_load((FOLDER / "base/topics.yaml").read_text())["users"]
    paths = {each["secret"]["name"]: each["secret"]["items"] for each in passwords}
    assert paths == {user: [{"key": "password", "path": f"{user}.password"}] for user in users}
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][2:4] == ["users", "apply"]
    assert "passwords" in {each["name"] for each in container["volumeMounts"]}
    # Every user may do what it needs; the declaration itself is checked as the job checks it.
    users_declared = declared.load(FOLDER / "base/topics.yaml")
    assert {each.user for each in required_acls(users_declared)} == users.keys()


def test_the_key_of_the_console_has_the_scopes_that_the_console_asks_for(tmp_path: Path) -> None:
    made = manifests(tmp_path, "streamtable", list(PROGRAMS), datetime.now(UTC))
    keys = {name_of(each): each["stringData"]["api-keys"] for each in made if name_of(each) in PROGRAMS}
    scopes = {
        name: EdgeSettings.from_environment({"SERVICEKIT_API_KEYS": text}).api_keys[0].scopes
        for name, text in keys.items()
    }
    assert scopes.pop("console-query") == {"read", "console", "replay"}
    assert all(each == {"read", "write"} for each in scopes.values())


def test_the_replicas_of_a_query_sign_their_cursors_with_one_secret(tmp_path: Path) -> None:
    (shared,) = [
        each["stringData"]
        for each in manifests(tmp_path, "streamtable", [], datetime.now(UTC))
        if name_of(each) == "streamtable-secrets"
    ]
    queries = [each for each in PROGRAMS.values() if each.kind == "query" and not each.single]
    assert {each.variable("CURSOR_SECRET") for each in queries} == shared.keys()
    for settings in SETTINGS:
        given = settings.from_environment(shared).cursor_secret
        assert given == shared[f"{settings.env_prefix}CURSOR_SECRET"]
    assert len(set(shared.values())) == len(shared)


def test_the_secrets_of_all_pods_are_made_by_one_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infra.secure.kubernetes", "--folder", str(tmp_path / "keys")]
    first, again = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first == again
    made = {name_of(each): each["stringData"].keys() for each in objects(first)}
    for overlay in OVERLAYS:
        for thing in rendered(overlay):
            needed = secrets_of(thing)
            assert all(keys <= made[name] for name, keys in needed.items())
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
