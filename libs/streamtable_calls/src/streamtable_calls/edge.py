"""`PendingEdge`: the base of the edges with pending rows, whose work beside the records is one for all of a group."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from streamtable import Codec, Timer
from streamtable.base.clock import Clock
from streamtable.graph.companion import Accompanied, Companions
from streamtable_calls.pending import PendingCall
from streamtable_calls.process import ByHand, InLoop, ProcessCalls
from streamtable_calls.settings import CallSettings, RetrySettings

K = TypeVar("K")
V = TypeVar("V")


class PendingEdge(Accompanied[K, PendingCall, V], Generic[K, V]):
    """A call, or the retries of an input."""

    settings: CallSettings | RetrySettings

    @property
    def codecs(self) -> Sequence[Codec[Any]]:
        call = self.settings
        return (call.request, call.response) if isinstance(call, CallSettings) else ()

    @classmethod
    def companions(
        cls, group: str, timers: Sequence[Timer[Any, Any, Any]], clock: Clock, *, by_hand: bool
    ) -> Companions:
        settings = [timer.settings for timer in timers if isinstance(timer, PendingEdge)]
        calls = {each.name: each for each in settings if isinstance(each, CallSettings)}
        retried = {each.name: each for each in settings if isinstance(each, RetrySettings)}
        executor = ByHand() if by_hand else InLoop(group, calls, clock)
        return ProcessCalls(group, calls, retried, executor, clock)
