"""Creates and examines the index of rows in Elasticsearch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from microbatch.stores.elasticsearch import ElasticsearchDriver, mapping
from microbatch.stores.port import Step, StoreFinding, VersionedFields, ok, problem, warning

_SECONDS = 10.0


class ElasticsearchAdmin:
    """Creates and examines one index behind its alias.

    Args:
        driver: The driver of the store; closed by its owner.
        shards: The number of shards of a new index.
        replicas: The number of replicas of each shard.
        refresh: The seconds until a search sees a write.
        fields: The search fields, as name -> type.
    """

    def __init__(
        self,
        driver: ElasticsearchDriver,
        *,
        shards: int,
        replicas: int,
        refresh: float,
        fields: Mapping[str, str],
    ) -> None:
        self.driver = driver
        self._shards = shards
        self._replicas = replicas
        self._refresh = refresh
        self._fields = fields

    def plan(self) -> Sequence[Step]:
        alias = self.driver.alias
        found = self._index()
        if found is None:
            fields = "".join(f", {name} {kind}" for name, kind in self._fields.items())
            details = (
                f"behind the alias {alias}; {self._shards} shards, {self._replicas} replicas, refreshed every "
                f"{self._refresh:g} s, strict mapping: tenant, data, key, deleted{fields}"
            )
            return [Step("index", f"{alias}-1", details)]
        missing = self._missing(found[1])
        if not missing:
            return ()
        details = ", ".join(f"{name} {self._fields[name]}" for name in missing)
        details += "; existing rows are found by them once they are written again"
        return [Step("fields", found[0], details)]

    def create(self) -> None:
        found = self._index()
        if found is None:
            self.driver.create(
                shards=self._shards,
                replicas=self._replicas,
                refresh_seconds=self._refresh,
                fields=self._fields,
            )
        elif self._missing(found[1]):
            properties = mapping(self._fields)["properties"]
            new = {name: properties[name] for name in VersionedFields._fields}
            self.driver.ask(
                lambda client: client.indices.put_mapping(index=self.driver.alias, properties=new)
            )

    def examine(self) -> Iterator[StoreFinding]:
        """Examine alias, mapping, replicas, and whether an acknowledged write is on disk."""
        nodes = self.driver.ask(lambda client: client.nodes.info(metric="_none"), _SECONDS)["nodes"].values()
        versions = ", ".join(sorted({node["version"] for node in nodes}))
        yield ok("server", f"Elasticsearch {versions}, {len(nodes)} nodes")
        found = self._index()
        if found is None:
            advice = "create it: streamtable store create"
            yield problem("index", f"there is no alias {self.driver.alias} of exactly one index", advice)
            return
        name, index = found
        yield from self._mapping(index)
        yield from self._settings(index["settings"]["index"])
        health = self.driver.ask(lambda client: client.cluster.health(index=name), _SECONDS)
        if health["status"] == "red":
            yield problem("shards", f"some of {name} are unassigned", "see the cluster's health")
        elif health["status"] == "yellow":
            yield warning("shards", f"some replicas of {name} are unassigned", "add nodes")
        else:
            yield ok("shards", f"all shards of {name} are assigned")
        self.driver.read([b"check"], _SECONDS)
        yield ok("rows", "may be read")

    def _index(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return name, mappings and settings if the alias points to exactly one index."""
        alias = self.driver.alias
        if not self.driver.ask(lambda client: client.indices.exists_alias(name=alias), _SECONDS):
            return None
        answer = self.driver.ask(lambda client: client.indices.get(index=alias), _SECONDS)
        indices = list(answer.body.items())
        return indices[0] if len(indices) == 1 else None

    def _missing(self, index: Mapping[str, Any]) -> list[str]:
        there = _properties(index)
        versions = [there.get(version, {}).get("properties", {}) for version in VersionedFields._fields]
        return [name for name in self._fields if any(name not in each for each in versions)]

    def _mapping(self, index: Mapping[str, Any]) -> Iterator[StoreFinding]:
        declared, there = mapping(self._fields)["properties"], _properties(index)
        differing = []
        for name, expected in _leaves(declared):
            kind = dict(_leaves(there)).get(name)
            if kind != expected:
                differing.append(f"{name} is {kind or 'missing'}, expected {expected}")
        if index["mappings"].get("dynamic") != "strict":
            differing.append("undeclared fields are accepted")
        if not differing:
            yield ok("mapping", "strict, as required")
            return
        advice = "missing fields: streamtable store create; otherwise a new index under another alias"
        yield problem("mapping", "; ".join(differing), advice)

    def _settings(self, found: Mapping[str, Any]) -> Iterator[StoreFinding]:
        if found.get("translog", {}).get("durability", "request") == "request":
            yield ok("disk", "each write is in the log of all copies before it is acknowledged")
        else:
            advice = "set index.translog.durability to request"
            yield problem("disk", "a crash loses seconds of acknowledged writes", advice)
        replicas = int(found.get("number_of_replicas", 0))
        if replicas < self._replicas:
            advice = "set index.number_of_replicas, or lower the parameter replicas"
            yield problem("replicas", f"{replicas}, expected {self._replicas}", advice)
        elif replicas == 0:
            yield warning("replicas", "none: a lost disk loses the rows", "set replicas=1")
        else:
            yield ok("replicas", str(replicas))
        blocks = [name for name, on in found.get("blocks", {}).items() if str(on) == "true"]
        if blocks:
            yield problem("writes", f"blocked: {', '.join(blocks)}", "free space, remove the block")
        if found.get("refresh_interval") == "-1" and self._fields:
            yield warning("searches", "see no new writes", "set index.refresh_interval to 1s")


def _properties(index: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = index["mappings"].get("properties", {})
    return found


def _leaves(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, each in properties.items():
        if "properties" in each:
            yield from _leaves(each["properties"], f"{prefix}{name}.")
        else:
            yield prefix + name, each.get("type", "object")
