"""The errors that end a call, or an attempt."""

from streamtable.errors import Fatal, StateMeaningChanged, StreamtableError


class RetryAfter(Exception):
    """Raised by the function of a call: try again after these seconds, as an API asks for with `Retry-After`.

    Args:
        seconds: The pause, from now. It counts as an attempt.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"to be tried again after {seconds:g} s")
        self.seconds = seconds


class CallTimedOut(TimeoutError):
    """An attempt has taken longer than the `timeout` of its call. It is always worth another one, whatever `Retry.on` names."""


class PendingCallsLeft(StateMeaningChanged):
    """The graph does not have a call any more that is still pending.

    Args:
        call: The name of the call.
        group: The name of the group.
        partition: The number of the partition.
        count: The number of calls that are pending in the partition.
    """

    def __init__(self, call: str, group: str, partition: int, count: int) -> None:
        self.state, self.group = f"call {call}", group
        self.recorded, self.declared = f"{count} calls are pending", f"no Call({call!r})"
        Fatal.__init__(
            self,
            f"{count} calls of {call!r} are pending, and the graph of group {group!r} has no call and no retried input of this name "
            f"any more. Add it again until they are done; or delete them: 'streamtable calls drop {group} {call}'",
            topic=f"{group}-calls",
            partition=partition,
        )


class CallFailed(StreamtableError):
    """A call has failed and is not tried again. The message has the error of its last attempt.

    Args:
        call: The name of the call.
        attempts: The number of attempts.
        reason: The class and the message of the last error.
    """

    def __init__(self, call: str, attempts: int, reason: str) -> None:
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"the call {call!r} has failed; it was tried {times}: {reason}")
        self.call, self.attempts, self.reason = call, attempts, reason


def text_of(error: BaseException) -> str:
    """Return the class and the message of an error of the program, whose `__str__` may itself fail."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as failed:  # noqa: BLE001 - the program's function may raise anything
        return f"{type(error).__name__}, whose message cannot be made: {type(failed).__name__}"
