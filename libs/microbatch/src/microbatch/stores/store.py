"""A central store: reads and writes of batches of rows, retried until a deadline."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import structlog

from microbatch.stores.port import LARGEST_NUMBER, LONGEST_KEY, Driver, Row, SearchDriver, VersionedFields
from streamtable.base.clock import Clock, SystemClock
from streamtable.errors import Migrated, RetryKeys, RetryLater, SerializationError

R = TypeVar("R")
log = structlog.get_logger()

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


class RemoteStore:
    """Rows of one tenant. Only the keys of a batch that failed are retried.

    Every method raises, in addition to its own errors:
        RetryLater: No answer within the deadline. Its subclass `RetryKeys` names the keys that are not done.
        ConfigurationError: A retry cannot help: a missing index or table, missing rights, a row of another kind.

    Args:
        driver: The driver of the server; closed with this.
        deadline: The seconds for a call with all its attempts.
        attempt: The seconds for one attempt.
        clock: Monotonic time, and pauses between attempts.

    Attributes:
        expire: Whether rows have a time to live, which begins again with each write.
    """

    def __init__(
        self, driver: Driver, *, deadline: float = 10.0, attempt: float = 3.0, clock: Clock | None = None
    ) -> None:
        self.expire = getattr(driver, "ttl", None) is not None
        self._driver = driver
        self._deadline = deadline
        self._attempt = attempt
        self._clock = clock or SystemClock()

    def get(self, key: bytes) -> Row | None:
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, Row]:
        """Return the rows of those keys that have one, in one round trip unless it has to retry."""
        distinct = list(dict.fromkeys(keys))
        self._check_keys(distinct)
        found: dict[bytes, Row] = {}

        def attempt(left: Sequence[bytes], timeout: float) -> Mapping[bytes, str]:
            answer = self._driver.read(left, timeout)
            found.update(answer.rows)
            return answer.failed

        self._repeat("reading", distinct, attempt)
        return found

    def put_many(
        self,
        rows: Mapping[bytes, bytes | None],
        number: int | None,
        fields: Mapping[bytes, VersionedFields] | None = None,
    ) -> None:
        """Write rows, in one round trip unless it has to retry; None deletes. When it returns, the store has all rows.

        A row with a higher number stays. A call may be repeated after any error, with the same number and the same rows.

        Args:
            rows: The data by key.
            number: The number of this write, 1 to 2**63 - 1. None for plain writes, without any condition.
            fields: The search fields by key, of rows that can be searched. Ignored by stores that cannot search (all
                but Elasticsearch).

        Raises:
            Migrated: A row has a higher number, in a store that reports this. Other rows of the batch may be written.
            SerializationError: A key is longer than 4,096 bytes, or a row larger than the store accepts.
        """
        assert number is None or 0 < number <= LARGEST_NUMBER
        self._check_keys(rows)

        def attempt(left: Sequence[bytes], timeout: float) -> Mapping[bytes, str]:
            part = rows if len(left) == len(rows) else {key: rows[key] for key in left}
            if fields and isinstance(self._driver, SearchDriver):
                answer = self._driver.write_found_by(part, number, timeout, fields)
            else:
                answer = self._driver.write(part, number, timeout)
            if answer.refused:
                raise Migrated(
                    f"{len(answer.refused)} rows have a higher number than {number}, {shown(answer.refused)} among "
                    "them: a later owner of the partition has written"
                )
            return answer.failed

        self._repeat("writing", list(rows), attempt)

    def delete_many(self, keys: Iterable[bytes], number: int | None) -> None:
        """Delete rows, like `put_many` with None for each."""
        self.put_many(dict.fromkeys(keys), number)

    def flush(self) -> None:
        """Make written rows visible to searches, if the store needs that. Reads by key always see them."""

        def attempt(_: Sequence[bytes], timeout: float) -> Mapping[bytes, str]:
            self._driver.flush(timeout)
            return {}

        self._repeat("flushing", [b""], attempt)

    def close(self) -> None:
        self._driver.close()

    def _repeat(
        self, what: str, keys: list[bytes], attempt: Callable[[Sequence[bytes], float], Mapping[bytes, str]]
    ) -> None:
        until = self._clock.monotonic() + self._deadline
        pause = _FIRST_PAUSE_S
        left = keys
        while left:
            failed: Mapping[bytes, str]
            try:
                failed = attempt(left, min(self._attempt, max(0.001, until - self._clock.monotonic())))
            except RetryLater as error:
                failed = dict.fromkeys(left, error.message)
            if not failed:
                return
            left = [key for key in left if key in failed]
            reason = failed[left[0]]
            now = self._clock.monotonic()
            # An attempt with hardly any time left would only replace the reason with "timeout".
            if until - (now + pause) < min(self._attempt, self._deadline) / 4:
                raise RetryKeys(
                    f"{what} {len(left)} of {len(keys)} rows failed for {self._deadline:g} s, {shown(left)} among "
                    f"them: {reason}",
                    keys=left,
                )
            log.warning("central store: retrying", doing=what, rows=len(left), reason=reason, pause=pause)
            self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @staticmethod
    def _check_keys(keys: Iterable[bytes]) -> None:
        for key in keys:
            if len(key) > LONGEST_KEY:
                raise SerializationError(
                    f"a key of a central store has {len(key)} bytes, {LONGEST_KEY} are allowed: {key[:40]!r}..."
                )


def shown(keys: Iterable[bytes]) -> str:
    """Return a few of the keys, for a message."""
    few = list(keys)[:3]
    return ", ".join(repr(key[:40]) for key in few)
