"""A processor's life: wait for the broker, join the group, work until told to stop, leave in order."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog

from streamtable.clock import Clock
from streamtable.engine.failpoint import Failpoint, no_failpoint
from streamtable.engine.member import Member
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.vitals import Vitals
from streamtable.errors import RetryLater
from streamtable.graph import Group
from streamtable.observe import Metrics, Progress
from streamtable.ports import Cluster, Log, Stores, TopicInfo
from streamtable.wanted import check_topics, check_unchanged

T = TypeVar("T")
log = structlog.get_logger()

_BACKGROUND_SLICE_SECONDS = 0.05
_CHECK_TOPICS_SECONDS = 30.0
_SAMPLE_SECONDS = 5.0
_WAIT_SECONDS = 0.5


class GroupProcessor:
    """One process of a group.

    Args:
        group: the graph.
        log_: Kafka.
        stores: where tables live.
        settings: how it works.
        clock: wall and monotonic time.
        metrics: where the numbers go.
        progress: where recovery is shown.
        failpoint: called between any two steps of a commit and in recovery.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        log_: Log,
        stores: Stores,
        settings: ProcessorSettings,
        clock: Clock,
        metrics: Metrics,
        progress: Progress,
        failpoint: Failpoint = no_failpoint,
    ) -> None:
        self.group = group
        self.settings = settings
        self._log = log_
        self._stores = stores
        self._clock = clock
        self._vitals = Vitals(group, metrics, progress)
        self._reached = failpoint
        # Not an Event: `stop` may be called by a signal handler while this thread holds an Event's lock.
        self._stopping = False
        self._member: Member | None = None
        self._background_failure: BaseException | None = None

    def run(self) -> None:
        """Work until `stop` is called. What was handled by then is committed.

        Raises:
            ConfigurationError: topics are missing or do not fit; nothing was started.
            StreamtableError: going on would lose or double something; what was committed stays committed.
        """
        cluster = self._log.cluster()
        try:
            topics = self._patiently(lambda: check_topics(self.group, cluster))
            if topics is not None:
                member = self._patiently(lambda: self._join(cluster, topics))
                if member is not None:
                    self._work(member, cluster, topics)
        finally:
            cluster.close()
            self._stores.close()
            self._reached("store-closed")

    def stop(self) -> None:
        """Let `run` end after the step it is in. Any thread, or a signal handler."""
        self._stopping = True

    @property
    def ready(self) -> bool:
        """Has joined, and all assigned partitions are at work."""
        return self._member is not None and self._member.ready

    @property
    def recovering(self) -> Mapping[int, int]:
        """Changelog offsets still to read before a partition goes to work, by partition."""
        return self._member.assignment.recovering if self._member is not None else {}

    def _join(self, cluster: Cluster, topics: Mapping[str, TopicInfo]) -> Member:
        return Member(
            self.group,
            self._log,
            cluster,
            topics,
            self._stores,
            self.settings,
            self._clock,
            self._vitals,
            self._reached,
        )

    def _work(self, member: Member, cluster: Cluster, topics: Mapping[str, TopicInfo]) -> None:
        self._member = member
        background = threading.Thread(
            target=self._run_background, args=(member, cluster, topics), name="restorer", daemon=True
        )
        background.start()
        try:
            while not self._stopping:
                member.step()
                if self._background_failure is not None:
                    raise self._background_failure
            member.commit()
        except BaseException as error:
            # Said here, because closing what is broken may raise another error in its place.
            reason = f"{type(error).__name__}: {error}"
            log.critical("processor stops", group=self.group.name, reason=reason)
            member.abandon()
            raise
        finally:
            self._stopping = True
            background.join()
            self._reached("closing")
            self._member = None
            member.close()
            self._vitals.close()

    def _run_background(self, member: Member, cluster: Cluster, topics: Mapping[str, TopicInfo]) -> None:
        checked_at = sampled_at = self._clock.monotonic()
        try:
            while not self._stopping:
                member.restorer.step(_BACKGROUND_SLICE_SECONDS)
                self._vitals.loading(member.assignment)
                now = self._clock.monotonic()
                if now - sampled_at >= _SAMPLE_SECONDS:
                    sampled_at = now
                    self._now_and_then(lambda: self._vitals.sample(member.assignment, cluster))
                if now - checked_at >= _CHECK_TOPICS_SECONDS:
                    checked_at = now
                    self._now_and_then(lambda: check_unchanged(self.group, cluster, topics))
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            self._background_failure = error

    def _now_and_then(self, ask: Callable[[], object]) -> None:
        """Something that is asked again soon anyway."""
        try:
            ask()
        except RetryLater as error:
            log.info("Kafka does not answer a question", reason=str(error))

    def _patiently(self, ask: Callable[[], T]) -> T | None:
        """Ask until the broker answers or `start_timeout` has passed; None if told to stop meanwhile."""
        began = self._clock.monotonic()
        while not self._stopping:
            try:
                return ask()
            except RetryLater as error:
                waited = self._clock.monotonic() - began
                if self.settings.start_timeout is not None and waited >= self.settings.start_timeout:
                    raise
                log.warning("waiting for Kafka", seconds=round(waited, 1), reason=str(error))
                self._clock.sleep(_WAIT_SECONDS)
        return None
