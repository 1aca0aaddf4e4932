"""`make secrets`: the secrets of the stack for TLS and authentication: certificates, and a password and an API key for each user.

They are written to a folder that only its owner can enter, and never anywhere else. Existing ones are kept, except for
certificates that expire within a month or lack a name: those are reissued. --renew reissues all of them, except the authority's.
"""

import argparse
import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import yaml
from infra.scenarios.compose import deployed
from infra.scenarios.manifest import askers_of, load_all

from localkafka.certificates import Authority, Pair, expires, hosts_of, write_secret

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("STACK_SECRETS", ROOT / "build" / "secure"))
KAFKA_HOST = os.environ.get("STACK_KAFKA_HOST", "127.0.0.1")
AUTHORITY_VALID, VALID, SOON = timedelta(days=1825), timedelta(days=90), timedelta(days=30)
SCENARIOS = load_all(ROOT)
# The owner, and the host names; a client has none. Processors that answer queries are known by the name of their scenario.
CERTIFICATES = {
    "broker": ["kafka", "localhost", "127.0.0.1", KAFKA_HOST],
    "admin": [],
    **{
        each.service: [each.service, *([each.scenario] if each.answers else ()), "localhost", "127.0.0.1"]
        for each in deployed(SCENARIOS)
        if each.serves_grpc
    },
}
CONSOLES = {
    name
    for scenario in SCENARIOS
    for program in scenario.programs
    if program.component == "console"
    for name in (program.service, program.workload)
}
"""The Kafka users of consoles, in the compose stack and on Kubernetes."""
CALLER = "operator"
"""The name of the caller with the API keys."""


def authority(folder: Path) -> Authority:
    """Return the existing authority, or a new one. Its key stays with its owner: no container gets it."""
    certificate, key = folder / "authority.crt", folder / "authority.key"
    if certificate.exists() and key.exists():
        return Authority.of(Pair(certificate.read_bytes(), key.read_bytes()))
    made = Authority("streamtable", AUTHORITY_VALID)
    made.pair.write(folder, "authority")
    lend(certificate)
    return made


def issue(
    folder: Path, signer: Authority, name: str, hosts: list[str], now: datetime, *, renew: bool
) -> bool:
    """Write `<name>.crt` and `<name>.key`, and both in `<name>.pem`, unless they are valid for a while. Returns whether it did."""
    file = folder / f"{name}.crt"
    there = None if renew or not file.exists() else file.read_bytes()
    if there is not None and expires(there) > now + SOON and hosts_of(there) >= set(hosts):
        return False
    pair = signer.issue(name, list(dict.fromkeys(hosts)), VALID)
    for path in (*pair.write(folder, name), pair.write_together(folder / f"{name}.pem")):
        lend(path)
    return True


def once(folder: Path, name: str) -> str:
    """Return a random secret, which is created once."""
    path = folder / name
    if not path.exists():
        write_secret(path, secrets.token_urlsafe(32).encode())
        lend(path)
    return path.read_text()


def callers(folder: Path, user: str, askers: Mapping[str, str]) -> str:
    """Return the setting of a service whose callers send the key `<user>.api-key`, which no other service accepts.

    Args:
        folder: The folder of the keys.
        user: The service.
        askers: The services that ask it, each with its key `<asker>.query-key`, and the name of the scenario of both.
    """
    scopes = "read+console+replay" if user in CONSOLES else "read+write"
    known = [(CALLER, scopes, f"{user}.api-key")]
    known += [(asker, f"{scenario}/read", f"{asker}.query-key") for asker, scenario in askers.items()]
    return ",".join(
        f"{name}:{scopes}:{sha256(once(folder, key).encode()).hexdigest()}" for name, scopes, key in known
    )


def lend(path: Path) -> None:
    """Make a file readable for the users of containers; on this machine the permissions of the folder protect it."""
    path.chmod(0o644)


def main() -> None:
    """Write the missing files, and print their names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--renew", action="store_true", help="reissue all certificates")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    signer = authority(FOLDER)
    now = datetime.now(UTC)
    issued = [
        name
        for name, hosts in CERTIFICATES.items()
        if issue(FOLDER, signer, name, hosts, now, renew=given.renew)
    ]
    users = yaml.safe_load((ROOT / "infra" / "topics.yaml").read_text())["users"]
    askers = askers_of(SCENARIOS, lambda program: program.service)
    for user in users:
        once(FOLDER, f"{user}.password")
        (FOLDER / f"{user}.env").write_text(
            f"SERVICEKIT_API_KEYS={callers(FOLDER, user, askers.get(user, {}))}\n"
        )
    for program in (each for each in deployed(SCENARIOS) if each.asks):
        with (FOLDER / f"{program.service}.env").open("a") as file:
            file.write(f"{program.variable('QUERY_KEY')}={once(FOLDER, f'{program.service}.query-key')}\n")
    print(f"[secrets] certificates issued: {', '.join(issued) or 'none, all are good for a while'}")
    print(f"[secrets] {len(users)} passwords, and as many API keys of {CALLER!r}, are in {FOLDER}")


if __name__ == "__main__":
    main()
