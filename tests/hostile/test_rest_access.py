"""The services ask for credentials and count requests when their environment says so."""

import json
import time
from hashlib import sha256
from pathlib import Path

import httpx
import jwt
from tests.hostile.rest_world import Service, emitter_service, query_service

from localkafka.broker import Broker
from localkafka.waiting import wait_until

KEYS = {"reader": "read", "writer": "write"}
SECRET = "0123456789abcdef0123456789abcdef"
CLICK = {"user_id": "alice", "url": "x"}


def settings(**other: str) -> dict[str, str]:
    keys = [
        f"caller-{number}:{scope}:{sha256(key.encode()).hexdigest()}"
        for number, (key, scope) in enumerate(KEYS.items())
    ]
    return {"SERVICEKIT_API_KEYS": ",".join(keys), **other}


def token(scope: str) -> str:
    now = int(time.time())
    claims = {"iss": "i", "aud": "a", "sub": "carol", "exp": now + 60, "nbf": now, "scope": scope}
    return jwt.encode(claims, SECRET, "HS256")


def test_the_emitter_takes_clicks_of_callers_who_may_write_by_key_or_by_token(
    broker: Broker, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET, "ascii")
    tokens = {
        "SERVICEKIT_JWT_ALGORITHM": "HS256",
        "SERVICEKIT_JWT_KEY_FILE": str(secret),
        "SERVICEKIT_JWT_ISSUER": "i",
        "SERVICEKIT_JWT_AUDIENCE": "a",
    }
    with emitter_service(broker, **settings(**tokens)) as service:

        def post(credential: str | None) -> int:
            headers = {} if credential is None else {"Authorization": f"Bearer {credential}"}
            return httpx.post(f"{service.url}/clicks", json=CLICK, headers=headers).status_code

        assert post(None) == post("nobody") == post(token("write") + "x") == 401
        assert post("reader") == post(token("read")) == 403
        assert post("writer") == post(token("read write")) == 201
        for status, count in (("401", 3), ("403", 2), ("201", 2)):
            route = "/clicks" if status == "201" else "none"  # the others do not come so far
            sample = f'http_requests_total{{method="POST",route="{route}",status="{status}"}} {count}.0'
            wait_until(lambda sample=sample: sample in httpx.get(f"{service.url}/metrics").text)  # type: ignore[misc] # bound in the loop
        service.check_sound()
        for secret_text in (SECRET, "writer", "nobody", sha256(b"writer").hexdigest()):
            assert not [line for line in service.lines if secret_text in line]


def noted(service: Service) -> list[tuple[str | None, str, str, int]]:
    """The audit trail: who, what, where, outcome."""
    found = [json.loads(line) for line in service.lines if '"event": "audit"' in line]
    assert all((each["service"], each["peer"]) == ("click-count", "127.0.0.1") for each in found)
    return [(each["caller"], each["method"], each["path"], each["status"]) for each in found]


def test_keys_are_exchanged_without_a_restart_and_each_write_is_noted(broker: Broker, tmp_path: Path) -> None:
    keys, secret = tmp_path / "keys", tmp_path / "secret"
    keys.write_text(f"ann:click-count/write:{sha256(b'old').hexdigest()}\n")
    secret.write_text(SECRET, "ascii")
    files = {
        "SERVICEKIT_API_KEYS_FILE": str(keys),
        "SERVICEKIT_JWT_ALGORITHM": "HS256",
        "SERVICEKIT_JWT_KEY_FILE": str(secret),
        "SERVICEKIT_JWT_ISSUER": "i",
        "SERVICEKIT_JWT_AUDIENCE": "a",
    }
    with emitter_service(broker, **files) as service:

        def post(credential: str) -> int:
            headers = {"Authorization": f"Bearer {credential}"}
            return httpx.post(f"{service.url}/clicks", json=CLICK, headers=headers, timeout=60).status_code

        assert post("old") == 201
        assert post(token("click-count/write")) == 201
        assert post(token("user-status/write")) == 403
        first = [
            ("ann", "POST", "/clicks", 201),
            ("carol", "POST", "/clicks", 201),
            ("carol", "POST", "/clicks", 403),
        ]
        wait_until(lambda: noted(service) == first)  # a line comes after its answer
        keys.write_text(
            f"ann:user-status/write:{sha256(b'old').hexdigest()}\nbea:write:{sha256(b'new').hexdigest()}"
        )
        wait_until(lambda: post("new") == 201)
        assert post("old") == 403, "it is a key of another service now"
        secret.write_text("another " * 4, "ascii")
        wait_until(lambda: post(token("write")) == 401)
        wait_until(lambda: noted(service)[-1] == (None, "POST", "/clicks", 401))
        service.check_sound()


def test_the_query_service_counts_the_requests_of_each_caller(broker: Broker) -> None:
    limits = {
        "SERVICEKIT_RATE_LIMIT": "0.01",
        "SERVICEKIT_RATE_BURST": "30",
        "SERVICEKIT_METRICS_PUBLIC": "false",
    }
    reader = {"Authorization": "Bearer reader"}
    with query_service(broker, headers=reader, **settings(**limits)) as service:
        answers = [httpx.get(f"{service.url}/clicks/alice", headers=reader) for _ in range(31)]
        assert answers[-1].status_code == 429
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 100
        assert httpx.get(f"{service.url}/metrics", headers=reader).status_code == 429
        assert httpx.get(f"{service.url}/metrics").status_code == 401
        assert httpx.get(f"{service.url}/livez").status_code == 200
        service.check_sound()
