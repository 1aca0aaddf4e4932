"""The log lines and connection errors of the client, at a limited rate."""

import logging
import re
import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError

from streamtable.kafka.identity import UNRESOLVED, ClientIdentity

EVERY_S = 10.0
_UNRESOLVED_S = 30.0  # the client tries again every ten seconds at least
# Of ConsumerGroupHeartbeat, as the client sends it; Kafka 3.7 to 3.9 have only version 0.
_HEARTBEAT_VERSION = 1
_HEARTBEAT = re.compile(r"ApiKey ConsumerGroupHeartbeat \(68\) Versions \d+\.\.(\d+)")


class ClientLog:
    """Receives the log lines and errors of one client; logs the same kind of line at most every ten seconds.

    Args:
        client: Kind and name of the client.
        bootstrap_servers: Named in connection errors, as a wrong address is the usual cause.
        clock: seconds.
        caller: The user that the client acts as, for its errors.

    Attributes:
        transaction_failed: The client's message about the failure of its transaction; cleared when a transaction begins.
        no_consumer_protocol: Whether a broker has connected that does not support the consumer protocol (KIP-848). The
            client itself says nothing then: it looks for another coordinator for ever.
    """

    def __init__(
        self,
        client: str,
        bootstrap_servers: str,
        clock: Callable[[], float] = time.monotonic,
        caller: ClientIdentity | None = None,
    ) -> None:
        self.caller = caller or ClientIdentity(bootstrap_servers)
        self.transaction_failed = ""
        self.no_consumer_protocol = False
        # By connection: the newest version of this request, in its list of requests.
        self._heartbeats: dict[str, int] = {}
        self._log = structlog.get_logger("streamtable.kafka").bind(client=client)
        self._bootstrap_servers = bootstrap_servers
        self._clock = clock
        self._unresolved = "", 0.0  # with its time
        self._last: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def log(self, level: int, _format: str, facility: str, _client: str, text: str, *_: object) -> None:
        """Log a line; the client calls this as if it were a `logging.Logger`."""
        if facility == "CONFWARN":  # options are shared by producers and consumers; each ignores the other's
            level = logging.DEBUG
        elif facility == "TXNERR":
            self.transaction_failed = text
        elif facility == "APIVERSION":
            self._note_abilities(text)
        elif text.endswith(": retrying"):  # as on a broker that has just started
            level = min(level, logging.INFO)
        self.event(level, "kafka client", facility, text)

    def _note_abilities(self, text: str) -> None:
        """Note a line about what a broker supports: first all its requests, then the features that follow from them."""
        connection, _, said = text.partition(": ")
        if said.endswith("Broker API support:"):
            self._heartbeats[connection] = -1
        elif found := _HEARTBEAT.search(said):
            self._heartbeats[connection] = int(found.group(1))
        elif (
            ":  Feature " in said
            and self._heartbeats.pop(connection, _HEARTBEAT_VERSION) < _HEARTBEAT_VERSION
        ):
            self.no_consumer_protocol = True

    def error(self, error: KafkaError) -> None:
        """Log an error of the client, or an error item among records."""
        level = logging.ERROR if error.fatal() else logging.WARNING
        if error.code() == UNRESOLVED:
            self._unresolved = self.caller.explain(error), self._clock()
        self.event(level, "kafka error", error.name(), lambda: self.caller.explain(error))

    @property
    def unresolved(self) -> str:
        """The latest host name that does not resolve, with what to do; empty if there was none within half a minute."""
        text, at = self._unresolved
        return text if self._clock() - at < _UNRESOLVED_S else ""

    def event(self, level: int, event: str, kind: str, text: str | Callable[[], str]) -> None:
        """Log an event. A callable `text` is only called if the line is logged."""
        now = self._clock()
        if now - self._last.get(kind, -EVERY_S) < EVERY_S:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        self._last[kind] = now
        suppressed = self._suppressed.pop(kind, 0)
        self._log.log(
            level,
            event,
            kind=kind,
            text=text if isinstance(text, str) else text(),
            bootstrap_servers=self._bootstrap_servers,
            suppressed=suppressed,
        )
