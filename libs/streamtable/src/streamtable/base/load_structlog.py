"""Loads structlog, without rich where no terminal shows the lines. `streamtable` imports it first.

structlog loads rich for the tracebacks of its console, wherever rich is installed: 5 MB, which no process without a terminal
uses. A program that wants them elsewhere imports structlog before `streamtable`.
"""

import os
import sys

_STDERR = 2

if not os.isatty(_STDERR) and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment] # an import of it raises ImportError, which structlog expects
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
