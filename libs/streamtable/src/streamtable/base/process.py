"""The process around a processor: stop on signals, and relieve garbage collection and memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamtable.errors import ConfigurationError
from streamtable_supervisor.signals import stop_on_signals
from streamtable_supervisor.system import limit, raise_limit, relaxed_gc, trim_heap

ADDRESS_SPACE_MIN = 2 << 30
"""Bytes of address space. Threads and C libraries reserve 0.5 to 1.3 GB; a tenth of it is memory."""


@contextmanager
def running(stop: Callable[[], object]) -> Iterator[None]:
    """Run a processor in the block: signals stop it. Free memory is returned to the system first, and files may be opened.

    Raises:
        ConfigurationError: The process is allowed too little address space.
    """
    require_address_space()
    trim_heap()
    raise_limit("RLIMIT_NOFILE")  # a table takes some files for each partition, and 1024 are few
    with stop_on_signals(stop), relaxed_gc():
        yield


def require_address_space() -> None:
    """Refuse a limit that makes C libraries abort the process silently when their threads or buffers find no room.

    Raises:
        ConfigurationError: The limit is too low.
    """
    found = limit("RLIMIT_AS")
    if found is not None and found[0] < ADDRESS_SPACE_MIN:
        raise ConfigurationError(
            f"the limit of address space (RLIMIT_AS, `ulimit -v`) is {found[0] >> 20} MiB, and {ADDRESS_SPACE_MIN >> 20} MiB are "
            "needed, most of it only reserved: raise it, and limit memory by a cgroup instead (systemd's MemoryMax)"
        )
