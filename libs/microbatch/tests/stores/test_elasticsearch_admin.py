"""Created indexes, and the findings about others."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from microbatch.stores.elasticsearch import ElasticsearchDriver
from microbatch.stores.elasticsearch_admin import ElasticsearchAdmin
from microbatch.stores.port import Severity, StoreFinding

pytestmark = pytest.mark.broker
FIELDS = {"url": "keyword", "text": "text"}


class Index:
    """An alias of this test alone, and the admin of one that wants these settings."""

    def __init__(self, url: str, client: Elasticsearch) -> None:
        self.alias = f"a{uuid.uuid4().hex[:8]}"
        self.name = f"{self.alias}-1"
        self.client = client
        self.driver = ElasticsearchDriver(url, alias=self.alias, tenant="t")

    def admin(
        self, *, shards: int = 1, replicas: int = 0, refresh: float = 1, fields: Mapping[str, str] = FIELDS
    ) -> ElasticsearchAdmin:
        return ElasticsearchAdmin(
            self.driver, shards=shards, replicas=replicas, refresh=refresh, fields=fields
        )

    def found(self, **options: Any) -> dict[str, StoreFinding]:
        return {each.subject: each for each in self.admin(**options).examine()}

    def set(self, **settings: Any) -> None:
        changed = {f"index.{name.replace('__', '.')}": value for name, value in settings.items()}
        self.client.indices.put_settings(index=self.name, settings=changed)


@pytest.fixture
def index(server_of: Callable[[str], Any]) -> Iterator[Index]:
    url = server_of("elasticsearch").url
    with Elasticsearch(url) as client:
        made = Index(url, client)
        yield made
        made.driver.close()
        client.indices.delete(index=[made.name, f"{made.alias}-2"], ignore_unavailable=True)


def test_the_plan_lists_what_create_then_creates(index: Index) -> None:
    admin = index.admin(shards=2, refresh=3)
    (step,) = admin.plan()
    assert (step.what, step.name) == ("index", index.name)
    assert "2 shards, 0 replicas, refreshed every 3 s" in step.settings
    assert "url keyword, text text" in step.settings
    assert not index.client.indices.exists(index=index.name)
    admin.create()
    made = index.client.indices.get(index=index.alias)[index.name]
    assert made["settings"]["index"]["number_of_shards"] == "2"
    assert made["settings"]["index"]["refresh_interval"] == "3000ms"
    assert made["mappings"]["dynamic"] == "strict"
    assert admin.plan() == ()
    admin.create()


def test_a_created_index_has_no_findings_except_missing_replicas(index: Index) -> None:
    index.admin().create()
    found = index.found()
    assert {name for name, each in found.items() if each.level is not Severity.OK} == {"replicas"}
    assert found["replicas"].level is Severity.WARNING


def test_missing_fields_are_found_and_added(index: Index) -> None:
    index.admin(fields={}).create()
    assert "now.url is missing" in index.found()["mapping"].fact
    (step,) = index.admin().plan()
    assert step.what == "fields"
    index.admin().create()
    assert index.found()["mapping"].level is Severity.OK
    assert index.admin().plan() == ()


def test_a_missing_index_is_a_problem(index: Index) -> None:
    assert index.found()["index"].level is Severity.PROBLEM


def test_an_alias_of_two_indices_is_a_problem(index: Index) -> None:
    index.admin().create()
    index.client.indices.create(index=f"{index.alias}-2", aliases={index.alias: {}})
    assert index.found()["index"].level is Severity.PROBLEM


def test_a_dynamic_or_different_mapping_is_a_problem(index: Index) -> None:
    index.client.indices.create(
        index=index.name,
        aliases={index.alias: {}},
        settings={"number_of_replicas": 0},
        mappings={"properties": {"tenant": {"type": "text"}, "data": {"type": "binary"}}},
    )
    fact = index.found(fields={})["mapping"].fact
    assert "tenant is text, expected keyword" in fact
    assert "undeclared fields" in fact


def test_settings_that_can_lose_acknowledged_rows_are_a_problem(index: Index) -> None:
    index.admin().create()
    index.set(translog__durability="async")
    assert index.found()["disk"].level is Severity.PROBLEM
    assert index.found(replicas=1)["replicas"].level is Severity.PROBLEM


def test_unassigned_replicas_are_a_warning(index: Index) -> None:
    index.admin(replicas=1).create()
    found = index.found(replicas=1)
    assert (found["replicas"].level, found["shards"].level) == (Severity.OK, Severity.WARNING)


def test_an_index_with_blocked_writes_or_searches_is_reported(index: Index) -> None:
    index.admin().create()
    index.set(blocks__write=True, refresh_interval="-1")
    found = index.found()
    assert (found["writes"].level, found["searches"].level) == (Severity.PROBLEM, Severity.WARNING)
    index.set(blocks__write=False)
