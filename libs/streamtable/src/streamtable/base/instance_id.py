"""The instance id of a process that was not given one: the host's name, with a number if another process has that already."""

import errno
import hashlib
import os
import socket
import weakref
from collections.abc import Mapping
from itertools import count

from streamtable.base.settings import PREFIX


class InstanceId:
    """An instance id, which no other process of this host takes for the same group until it is released.

    Args:
        name: The id.
        held: An open socket that stands for it, closed with the process however that ends; None: it was given.
    """

    def __init__(self, name: str, held: int | None = None) -> None:
        self.name = name
        self._let_go = None if held is None else weakref.finalize(self, os.close, held)

    def release(self) -> None:
        """Let another process take it. May be called twice."""
        if self._let_go is not None:
            self._let_go()


def instance_id(group: str, given: str | None, environment: Mapping[str, str] = os.environ) -> InstanceId:
    """Return the instance id of a process of a group.

    Args:
        group: The group.
        given: The id that the program has chosen; None: STREAMTABLE_INSTANCE_ID, or the first of `host`, `host-2`,
            `host-3`, ... that no process of this host holds. So a process that is started again has its former one.
        environment: The variables.
    """
    chosen = given or environment.get(f"{PREFIX}INSTANCE_ID")
    if chosen:
        return InstanceId(chosen)
    host = socket.gethostname()
    for number in count(1):
        name = host if number == 1 else f"{host}-{number}"
        # Linux's abstract addresses: no file, no owner, and the kernel takes it back when the process ends.
        address = "\0streamtable/" + hashlib.sha256(f"{group}\0{name}".encode()).hexdigest()
        if not hasattr(socket, "AF_UNIX"):  # Windows
            return InstanceId(name)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                return InstanceId(name)  # a system without such addresses
            return InstanceId(name, claim.detach())
    raise AssertionError("unreachable")
