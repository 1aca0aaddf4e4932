"""`python -m infra.secure.kubernetes | kubectl apply -f -`: the Secrets that the manifests require, one for each service.

A service's Secret has the password of its Kafka user, the digests of the keys that its callers send, the authority's
certificate, and a certificate of its own; if it asks processors, also the key that it sends to them. Passwords, keys and the
authority are made once and kept in a folder that only its owner can enter; certificates that expire within a month or lack a
name are reissued. The keys themselves are in `<service>.api-key` there.
The broker takes its certificate from the same authority: `broker.pem` in that folder.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from infra.scenarios.manifest import askers_of
from infra.secure.keys import FOLDER, ROOT, SCENARIOS, authority, callers, issue, once

ADMINISTRATOR, ADMINISTRATOR_SECRET = "admin", "streamtable-admin"
SHARED = "streamtable-secrets"
COMMON = sorted(
    {
        program.variable("CURSOR_SECRET")
        for scenario in SCENARIOS
        for program in scenario.programs
        if program.kind == "query" and not program.single and "kubernetes" in program.deployments
    }
)
"""Secrets that all replicas of a service must agree on, as environment variables."""
BROKERS = ["kafka", "kafka-0.kafka", "kafka-1.kafka", "kafka-2.kafka", "localhost", "127.0.0.1"]


def secret(name: str, namespace: str, data: dict[str, str]) -> dict[str, Any]:
    """Return the manifest of a Secret.

    Args:
        name: The name of the Secret.
        namespace: The namespace that it is for.
        data: Its contents, in plain text.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "streamtable"},
        },
        "stringData": data,
    }


def manifests(folder: Path, namespace: str, users: list[str], now: datetime) -> list[dict[str, Any]]:
    """Return the Secrets of these users and of the administrator, creating missing ones in the folder.

    Args:
        folder: The folder of passwords, keys and certificates.
        namespace: The namespace of the services.
        users: The services' Kafka users, which are the names of their workloads.
        now: The time, for certificates that are about to expire.
    """
    signer = authority(folder)
    issue(folder, signer, "broker", BROKERS, now, renew=False)
    askers = askers_of(SCENARIOS, lambda program: program.workload)
    asking = {name for each in askers.values() for name in each}

    def credentials(name: str) -> dict[str, str]:
        # Processors that answer queries are known by the name of their scenario.
        names = [name, f"{name}.{namespace}.svc", f"{name}-pods", *askers.get(name, {}).values()]
        issue(folder, signer, name, names, now, renew=False)
        return {
            "username": name,
            "password": once(folder, f"{name}.password"),
            "ca.crt": (folder / "authority.crt").read_text(),
            "tls.crt": (folder / f"{name}.crt").read_text(),
            "tls.key": (folder / f"{name}.key").read_text(),
        }

    def keys(user: str) -> dict[str, str]:
        accepted = {"api-keys": callers(folder, user, askers.get(user, {}))}
        return accepted | ({"query-key": once(folder, f"{user}.query-key")} if user in asking else {})

    made = [secret(user, namespace, {**credentials(user), **keys(user)}) for user in users]
    made.append(secret(ADMINISTRATOR_SECRET, namespace, credentials(ADMINISTRATOR)))
    made.append(secret(SHARED, namespace, {name: once(folder, name) for name in COMMON}))
    return made


def main() -> None:
    """Print the Secrets, for `kubectl apply -f -`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--namespace", default="streamtable", help="the namespace of the services")
    parser.add_argument("--folder", type=Path, default=FOLDER / "kubernetes", help="where they are kept")
    given = parser.parse_args()
    for folder in (given.folder.parent, given.folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    given.folder.chmod(0o700)
    users = yaml.safe_load((ROOT / "infra/kubernetes/base/topics.yaml").read_text())["users"]
    yaml.safe_dump_all(manifests(given.folder, given.namespace, list(users), datetime.now(UTC)), sys.stdout)


if __name__ == "__main__":
    main()
