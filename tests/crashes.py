"""The stack traces of a worker that a signal has ended, at the end of the report.

Python writes them to the standard error output at once, between the dots of other workers and far from the failed test. So
each worker of xdist writes them into a file, which the main process shows in the summary.
"""

import faulthandler
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

LINES_MAX: Final = 80
"""The first thread that is listed is the one that got the signal."""


class Crashes:
    """The folder of the files, in the main process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["crashes"] = str(self._folder / node.gateway.id)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for file in sorted(self._folder.iterdir()):
            if lines := file.read_text(errors="replace").splitlines():
                terminalreporter.section(f"crash of {file.name}")
                terminalreporter.write_line("\n".join(lines[:LINES_MAX]))


@pytest.hookimpl(trylast=True)  # pytest's own plugin has enabled it for the standard error output
def pytest_configure(config: pytest.Config) -> None:
    if file := getattr(config, "workerinput", {}).get("crashes"):
        faulthandler.enable(Path(file).open("w"))  # noqa: SIM115 - open until the process ends
    elif config.getoption("numprocesses", default=None):
        folder = tempfile.TemporaryDirectory(prefix="streamtable-crashes-")
        config.add_cleanup(folder.cleanup)
        config.pluginmanager.register(Crashes(Path(folder.name)))
