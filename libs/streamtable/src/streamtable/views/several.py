"""Several views in one process, which share what one of them needs."""

import threading
from collections.abc import Mapping
from typing import Any, Self, TypeVar, cast

from streamtable.clock import Clock
from streamtable.errors import ConfigurationError
from streamtable.observe import Metrics
from streamtable.ports import Log, Stores
from streamtable.topics import Table
from streamtable.views.host import Host
from streamtable.views.view import View

K = TypeVar("K")
V = TypeVar("V")


class Views(Host):
    """Views of some tables that share a consumer, a thread and a client for questions. Arguments as of a `Host`."""

    def __init__(self, log_: Log, stores: Stores, clock: Clock, metrics: Metrics, name: str) -> None:
        super().__init__(log_, stores, clock, metrics, name)
        self._views: dict[str, View[Any, Any]] = {}
        self._making = threading.Lock()

    def view(self, table: Table[K, V]) -> View[K, V]:
        """The view of a table; for the same table always the same one. It is started and closed with the others.

        Each fails for itself: an error that stops one for good leaves the others at work.

        Raises:
            ConfigurationError: another table of that name is viewed here.
        """
        with self._making:
            if table.name not in self._views:
                self._views[table.name] = self._make(table)
            found = self._views[table.name]
        if found.table != table:
            raise ConfigurationError(
                f"the table {table.name!r} is viewed here already as {found.table}, and now asked for as {table}: "
                "use one of them for both (Group.table, if you have the group)"
            )
        return cast("View[K, V]", found)

    @property
    def all(self) -> Mapping[str, View[Any, Any]]:
        """By name of the table."""
        return dict(self._views)

    @property
    def ready(self) -> bool:
        """Every view is. Raises what has stopped one for good."""
        return all(view.ready for view in self.all.values())

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every view is whole, `timeout` seconds at most. Raises as `View.wait_ready`."""
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        for view in self.all.values():
            view.wait_ready(None if deadline is None else max(0.0, deadline - self.clock.monotonic()))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, table: Table[K, V]) -> View[K, V]:
        return View(table, self.log, self.stores, self.clock, self.metrics, self.name, host=self)
