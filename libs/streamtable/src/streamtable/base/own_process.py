"""Objects that were made before a fork say so in the child, where their threads do not exist: there they would wait for ever."""

import os
from dataclasses import dataclass, field

from streamtable.errors import UsedAfterFork


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """The process that made an object which works by threads and connections.

    Args:
        what: The thing, for the error: "the emitter of 'clicks'".
    """

    what: str
    _pid: int = field(default_factory=os.getpid, init=False)

    @property
    def elsewhere(self) -> bool:
        """Whether this process is another one, forked since."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise `UsedAfterFork` in another process."""
        if os.getpid() != self._pid:
            raise UsedAfterFork(
                f"{self.what} was made in process {self._pid} and is used in process {os.getpid()}, which was forked from it: "
                "make it after the fork, in the process that uses it (post_fork of gunicorn, worker_process_init of "
                "Celery, the target of a multiprocessing.Process), or start processes by spawn"
            )
