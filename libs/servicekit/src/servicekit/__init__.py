import os

# grpcio's native code logs what callers send, such as the debug data of a GOAWAY frame, unescaped and without a limit: it could
# forge lines of the log. It reads this variable when it is first imported; errors of calls are reported without it.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import streamtable.base.load_structlog  # noqa: F401 - before all that import structlog
