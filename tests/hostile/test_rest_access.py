"""The services ask for credentials and count requests when their environment says so."""

import time
from hashlib import sha256
from pathlib import Path

import httpx
import jwt
from tests.hostile.program import wait_until
from tests.hostile.rest_world import emitter_service, query_service

from localkafka.broker import Broker

KEYS = {"reader": "read", "writer": "write"}
SECRET = "0123456789abcdef0123456789abcdef"
CLICK = {"user_id": "alice", "url": "x"}


def settings(**other: str) -> dict[str, str]:
    keys = [f"{name}:{scope}:{sha256(name.encode()).hexdigest()}" for name, scope in KEYS.items()]
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
