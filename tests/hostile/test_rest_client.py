"""Clients that are generated from the OpenAPI documents in the repository work with the services."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.hostile.rest_world import ROWS, STATUSES, Service

from servicekit_testing.prefork import prefork_of

DOCUMENTS = Path(__file__).parents[2] / "proto" / "openapi"
CONFIG = "post_hooks: []\nuse_path_prefixes_for_title_model_names: true\n"
GENERATOR = ("openapi_python_client", "openapi_python_client.cli")

Generate = Callable[[str], ModuleType]


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    """A function that makes the client of a document, a package, and imports it."""

    def make(name: str) -> ModuleType:
        config = tmp_path / "config.yaml"
        package = name.replace("-", "_") + "_client"
        config.write_text(f"{CONFIG}package_name_override: {package}\n", "utf-8")
        paths = ["--path", str(DOCUMENTS / f"{name}.json"), "--output-path", str(tmp_path / package)]
        arguments = ["generate", "--meta", "none", *paths, "--config", str(config), "--fail-on-warning"]
        said = tmp_path / "said"
        with said.open("wb") as output:
            done = prefork_of(*GENERATOR).start(arguments, os.environ, output.fileno())
        assert done.wait(120) == 0, said.read_text()
        monkeypatch.syspath_prepend(tmp_path)
        return import_module(package)

    return make


def test_a_generated_client_sends_clicks(generate: Generate, emitter: Service) -> None:
    package = generate("click-count-emitter")
    models: Any = import_module(f"{package.__name__}.models")
    send: Any = import_module(f"{package.__name__}.api.default.send_clicks")
    with package.Client(base_url=emitter.url) as client:
        one = send.sync(client=client, body=models.Click(user_id="alice", url="https://example.org/"))
        assert isinstance(one, models.Accepted)
        assert one.offset >= 0
        two = [models.Click(user_id="bob", url="x", id=one.id), models.Click(user_id="é", url="y", at=5)]
        many = send.sync(client=client, body=two)
        assert isinstance(many, models.AcceptedClicks)
        assert many.accepted[0].id == one.id
        assert len(many.accepted) == 2
        refused = send.sync_detailed(client=client, body=models.Click(user_id="a/b", url="x"))
        assert refused.status_code == 422
        assert refused.parsed.errors[0].where == "body.one.user_id"


def test_a_generated_client_reads_counts(generate: Generate, query: Service) -> None:
    package = generate("click-count-query")
    models: Any = import_module(f"{package.__name__}.models")
    counts = f"{package.__name__}.api.counts"
    get_count, list_counts, get_top = (
        import_module(f"{counts}.{name}") for name in ("get_count", "list_counts", "get_top")
    )
    with package.Client(base_url=query.url) as client:
        answer: Any = get_count.sync(user="alice", client=client)
        assert isinstance(answer, models.UserCountAnswer)
        assert answer.count == ROWS["alice"]
        missing: Any = get_count.sync_detailed(user="nobody", client=client)
        assert missing.status_code == 404
        assert isinstance(missing.parsed, models.Problem)
        assert get_count.sync(user="e\u0301", client=client).count == ROWS["e\u0301"]
        found = {}
        page: Any = list_counts.sync(client=client, limit=900)
        while True:
            found.update({item.user_id: item.count for item in page.items})
            if page.next_ is None:
                break
            page = list_counts.sync(client=client, limit=900, cursor=page.next_)
        assert found == ROWS
        assert [item.count for item in get_top.sync(client=client, limit=2).items] == [2000, 1999]


def test_a_generated_client_says_statuses(generate: Generate, statuses: Service) -> None:
    package = generate("user-status-emitter")
    models: Any = import_module(f"{package.__name__}.models")
    set_status, set_statuses = (
        import_module(f"{package.__name__}.api.default.{name}") for name in ("set_status", "set_statuses")
    )
    with package.Client(base_url=statuses.url) as client:
        one: Any = set_status.sync("é", client=client, body=models.NewStatus(status="at lunch", at=5))
        assert isinstance(one, models.Accepted)
        assert one.token == f"user-status-updates:{one.partition}:{one.offset}"
        two = [models.StatusUpdate(user_id=user, status="x", id=one.id) for user in ("alice", "bob")]
        many: Any = set_statuses.sync(client=client, body=two)
        assert [each.id for each in many.accepted] == [one.id, one.id]
        refused: Any = set_status.sync_detailed("é", client=client, body=models.NewStatus(status=""))
        assert refused.status_code == 422
        assert refused.parsed.errors[0].where == "body.status"


def test_a_generated_client_reads_users(generate: Generate, users: Service) -> None:
    package = generate("user-status-query")
    models: Any = import_module(f"{package.__name__}.models")
    get_user, list_users = (
        import_module(f"{package.__name__}.api.users.{name}") for name in ("get_user", "list_users")
    )
    with package.Client(base_url=users.url) as client:
        both: Any = get_user.sync("alice", client=client)
        assert (both.status.text, both.status.clicks, both.clicks) == ("says alice", 0, ROWS["alice"])
        assert (get_user.sync("carol", client=client).clicks, get_user.sync("bob", client=client).status) == (
            None,
            None,
        )
        missing: Any = get_user.sync_detailed("nobody", client=client)
        assert missing.status_code == 404
        assert isinstance(missing.parsed, models.Problem)
        found: dict[str, tuple[str | None, int | None]] = {}
        page: Any = list_users.sync(client=client, limit=900)
        while True:
            found.update(
                {item.user_id: (item.status and item.status.text, item.clicks) for item in page.items}
            )
            if page.next_ is None:
                break
            page = list_users.sync(client=client, limit=900, cursor=page.next_)
        assert found == {
            user: (STATUSES[user]["status"] if user in STATUSES else None, ROWS.get(user))
            for user in {*ROWS, *STATUSES}
        }
