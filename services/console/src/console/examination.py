"""Checks brokers and groups as `streamtable doctor` does: once a minute, and for a twentieth of the time at most."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from threading import Event, Thread
from typing import Final

from console.clusters import CLIENT_NAME, LIMITS
from streamtable import Kafka
from streamtable_admin import examination
from streamtable_admin.cluster import connect
from streamtable_admin.findings import Finding, Level

EVERY_SECONDS: Final = 60.0
_LIMITS: Final = replace(LIMITS, bytes_max=1 << 20)  # beside three requests that read as much as they may
_PAUSE_FACTOR: Final = 19
"""A check that took long is followed by a pause of this many times as long."""


class Examination:
    """Keeps the findings of the latest check. Any thread may read them.

    Args:
        kafka: The cluster.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._latest: tuple[int | None, list[Finding]] = (None, [])
        self._since: dict[tuple[str, str, str], int] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="examination", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def latest(self) -> tuple[int | None, list[Finding]]:
        """The time of the latest check in milliseconds since 1970, None before the first, with its warnings and problems."""
        return self._latest

    def look(self) -> None:
        """Check once. Where the beginning of a finding is not known, it is the time of the check that found it first."""
        going_on = takewhile(lambda _: not self._stopping.is_set(), self._findings())
        found = [
            each for each in examination.checked("brokers", lambda: going_on) if each.level is not Level.OK
        ]
        now_ms = _now_ms()
        before, self._since = self._since, {}
        for index, each in enumerate(found):
            name = (each.level, each.subject, each.advice)
            self._since[name] = before.get(name, now_ms)
            found[index] = replace(each, since_ms=each.since_ms or self._since[name])
        self._latest = (now_ms, found)

    def _findings(self) -> Iterator[Finding]:
        with connect(self._kafka, client_name=CLIENT_NAME) as cluster:
            brokers, found = examination.reached_brokers(cluster)
            yield from found
            if brokers:
                groups = examination.groups_with_dead_letters(cluster)
                yield from examination.cluster_findings(cluster, brokers, groups, _now_ms(), limits=_LIMITS)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            began = time.monotonic()
            self.look()
            pause = max(EVERY_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
