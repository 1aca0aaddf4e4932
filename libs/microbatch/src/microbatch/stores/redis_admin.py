"""Checks whether a Redis or Valkey keeps acknowledged writes. Nothing has to be created in it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from microbatch.stores.port import Step, StoreFinding, ok, problem, warning
from microbatch.stores.redis import RedisDriver
from streamtable.errors import RetryLater

_SECONDS = 5.0


class RedisAdmin:
    """Examines one server.

    Args:
        driver: The driver of the store; closed by its owner.
        replicas: The number of replicas that must have a write before it is acknowledged.
    """

    def __init__(self, driver: RedisDriver, *, replicas: int) -> None:
        self.driver = driver
        self._replicas = replicas

    def plan(self) -> Sequence[Step]:
        return ()

    def create(self) -> None:
        """Return nothing: Redis needs no schema."""

    def examine(self) -> Iterator[StoreFinding]:
        """Examine role, eviction, durability, and what survives a failover."""
        found = self._info()
        name = "Valkey" if "valkey_version" in found else "Redis"
        version = found.get("valkey_version", found.get("redis_version", "of an unknown version"))
        yield ok("server", f"{name} {version}")
        if found.get("cluster_enabled") == "1":
            yield problem("cluster", "this is a node of a cluster", "use a standalone one")
        if found.get("role") != "master":
            yield problem(
                "role", f"this is a {found.get('role')}", "name the primary, or an address that leads to it"
            )
        yield self._eviction(found)
        yield self._disk(found)
        yield self._copies(found)
        self.driver.read([b"check"], _SECONDS)
        yield ok("rows", "may be read")

    def _info(self) -> dict[str, str]:
        (answer,) = self.driver.ask([(b"INFO",)], _SECONDS)
        if isinstance(answer, Exception):
            raise RetryLater(f"Redis: {self.driver.passing(answer)}")
        lines = bytes(answer).decode(errors="replace").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    @staticmethod
    def _eviction(found: dict[str, str]) -> StoreFinding:
        policy, limit = found.get("maxmemory_policy", "unknown"), found.get("maxmemory", "0")
        if limit == "0":
            return ok("memory", "has no limit (maxmemory)")
        if policy == "noeviction":
            return ok("memory", f"rejects writes above {limit} bytes (noeviction)")
        advice = "set maxmemory-policy noeviction"
        return problem("memory", f"rows are evicted when {limit} bytes are used ({policy})", advice)

    def _disk(self, found: dict[str, str]) -> StoreFinding:
        if found.get("aof_enabled") != "1":
            advice = "set appendonly yes and appendfsync always, or keep only what can be rebuilt"
            return warning("disk", "a crash loses all writes acknowledged since the last snapshot", advice)
        if found.get("aof_last_write_status", "ok") != "ok":
            return problem("disk", "the last write of the log has failed", "check the disk")
        answer: Any = self.driver.ask([(b"CONFIG", b"GET", b"appendfsync")], _SECONDS)[0]
        policy = "" if isinstance(answer, Exception) or not answer else answer[1].decode(errors="replace")
        if policy == "always":
            return ok("disk", "each write is on it before it is acknowledged")
        said = f"appendfsync is {policy}" if policy else "this user may not see appendfsync"
        return warning(
            "disk", f"{said}: a crash loses a second of acknowledged writes", "set appendfsync always"
        )

    def _copies(self, found: dict[str, str]) -> StoreFinding:
        replicas = [text for name, text in found.items() if re.fullmatch("slave[0-9]+", name)]
        online = sum("state=online" in text for text in replicas)
        if online < self._replicas:
            advice = "start them, or lower the parameter replicas"
            return problem("replicas", f"{online} are online, writes wait for {self._replicas}", advice)
        if online and not self._replicas:
            return warning(
                "replicas",
                f"{online} are online, writes wait for none: a failover loses acknowledged writes",
                "add replicas=1 to the URL",
            )
        return ok("replicas", f"{online} are online, writes wait for {self._replicas}")
