"""The manifests: what must be true of every pod, and, where kustomize is, that each overlay renders to valid objects."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from streamtable import Settings

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "infra/kubernetes"
VERSIONS = ("1.31", "1.34")
OVERLAYS = ("small", "production")
OF_OTHERS = {"ScaledObject", "Kustomization"}  # definitions that are not Kubernetes's own
MANIFESTS = sorted(path for path in FOLDER.rglob("*.yaml") if path.name != "topics.yaml")
ROLES = ("emitter", "processor", "view", "query")


def objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    found = [each for path in MANIFESTS for each in objects(path.read_text())]
    return [each for each in found if each["kind"] in kinds]


WORKLOADS = of_kind("Deployment", "StatefulSet", "Job")


def name_of(thing: dict[str, Any]) -> str:
    return str(thing["metadata"]["name"])


def validate(thing: dict[str, Any]) -> None:
    if thing["kind"] not in OF_OTHERS:
        for version in VERSIONS:
            kubernetes_validate.validate(thing, version, strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_manifest_is_valid(path: Path) -> None:
    for thing in objects(path.read_text()):
        validate(thing)


@pytest.mark.parametrize(
    "path", sorted(FOLDER.rglob("kustomization.yaml")), ids=lambda path: path.parent.name
)
def test_a_kustomization_names_all_files_of_its_folder_and_no_other(path: Path) -> None:
    (told,) = objects(path.read_text())
    named = [
        *told["resources"],
        *(file for each in told.get("configMapGenerator", []) for file in each["files"]),
    ]
    assert all((path.parent / each).exists() for each in named)
    there = {file.name for file in path.parent.glob("*.yaml")} - {"kustomization.yaml"}
    assert there == {each for each in named if each.endswith(".yaml")}


@pytest.mark.parametrize("thing", WORKLOADS, ids=name_of)
def test_a_pod_has_no_rights_and_bounded_memory(thing: dict[str, Any]) -> None:
    pod = thing["spec"]["template"]["spec"]
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
    assert mounted == {"/tmp", "/var/lib/streamtable"}


@pytest.mark.parametrize("role", ROLES)
def test_nodes_are_drained_one_replica_at_a_time(role: str) -> None:
    (budget,) = [each for each in of_kind("PodDisruptionBudget") if name_of(each) == role]
    (thing,) = [each for each in WORKLOADS if name_of(each) == role]
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == thing["spec"]["selector"]


def test_all_variables_of_the_pods_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    (settings,) = of_kind("ConfigMap")
    told = dict(settings["data"])
    for thing in WORKLOADS:
        (container,) = thing["spec"]["template"]["spec"]["containers"]
        told |= {each["name"]: each.get("value", "pod-0") for each in container.get("env", [])}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert Settings.from_environment().instance_id == "pod-0"


def test_topics_and_groups_are_those_of_the_compose_stack() -> None:
    ours = yaml.safe_load((FOLDER / "base/topics.yaml").read_text())
    everybody = yaml.safe_load((ROOT / "infra/topics.yaml").read_text())
    assert ours["topics"].keys() <= everybody["topics"].keys()
    assert {name: everybody["groups"][name] for name in ours["groups"]} == ours["groups"]
    assert ours["defaults"]["partitions"] == everybody["defaults"]["partitions"]


def test_processors_are_scaled_by_the_lag_of_their_groups_inputs() -> None:
    groups = yaml.safe_load((FOLDER / "base/topics.yaml").read_text())["groups"]
    partitions = yaml.safe_load((FOLDER / "base/topics.yaml").read_text())["defaults"]["partitions"]
    scaled = of_kind("ScaledObject")
    assert len(scaled) == len(groups)
    for thing in scaled:
        (trigger,) = thing["spec"]["triggers"]
        group = trigger["metadata"]["consumerGroup"]
        assert thing["spec"]["scaleTargetRef"]["name"] == f"{group}-processor"
        assert trigger["metadata"]["topic"] in groups[group]["inputs"]
        assert thing["spec"]["maxReplicaCount"] <= partitions


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_renders_to_valid_objects(overlay: str) -> None:
    kustomize = shutil.which("kustomize")
    kubectl = shutil.which("kubectl")
    command = [kustomize, "build"] if kustomize else [kubectl, "kustomize"] if kubectl else None
    if command is None:  # the tests above judge the parts that it is made of
        return
    done = subprocess.run(
        [*map(str, command), FOLDER / "overlays" / overlay], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = objects(done.stdout)
    for thing in rendered:
        validate(thing)
        assert thing["kind"] == "Namespace" or thing["metadata"]["namespace"] == "streamtable"
    names = {(each["kind"], name_of(each)) for each in rendered}
    for scenario in ("click-count", "user-status"):
        for role in ROLES:
            assert ("Deployment" if role == "emitter" else "StatefulSet", f"{scenario}-{role}") in names
    for thing in rendered:
        if thing["kind"] == "StatefulSet":
            assert ("Service", thing["spec"]["serviceName"]) in names
            (container,) = thing["spec"]["template"]["spec"]["containers"]
            assert re.fullmatch(r"streamtable/(click-count|user-status):\w+", container["image"])
