"""`make secrets`: the secrets of the stack for TLS and authentication: certificates, and a password and an API key for each user.

They are written to a folder that only its owner can enter, and never anywhere else. Existing ones are kept, except for
certificates that expire within a month: those are reissued. --renew reissues all of them, except the authority's.
"""

import argparse
import os
import secrets
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import yaml
from infra.scenarios.compose import deployed
from infra.scenarios.manifest import load_all

from localkafka.certificates import Authority, Pair, expires, write_secret

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("STACK_SECRETS", ROOT / "build" / "secure"))
KAFKA_HOST = os.environ.get("STACK_KAFKA_HOST", "127.0.0.1")
AUTHORITY_VALID, VALID, SOON = timedelta(days=1825), timedelta(days=90), timedelta(days=30)
# The owner, and the host names; a client has none.
CERTIFICATES = {
    "broker": ["kafka", "localhost", "127.0.0.1", KAFKA_HOST],
    "admin": [],
    **{
        each.service: [each.service, "localhost", "127.0.0.1"]
        for each in deployed(load_all(ROOT))
        if each.kind == "view"
    },
}
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
    if not renew and file.exists() and expires(file.read_bytes()) > now + SOON:
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


def callers(folder: Path, user: str) -> str:
    """Return the setting of a service whose callers send the key `<user>.api-key`, which no other service accepts."""
    digest = sha256(once(folder, f"{user}.api-key").encode()).hexdigest()
    scopes = "read+console+replay" if user == "console" else "read+write"
    return f"{CALLER}:{scopes}:{digest}"


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
    for user in users:
        once(FOLDER, f"{user}.password")
        (FOLDER / f"{user}.env").write_text(f"SERVICEKIT_API_KEYS={callers(FOLDER, user)}\n")
    print(f"[secrets] certificates issued: {', '.join(issued) or 'none, all are good for a while'}")
    print(f"[secrets] {len(users)} passwords, and as many API keys of {CALLER!r}, are in {FOLDER}")


if __name__ == "__main__":
    main()
