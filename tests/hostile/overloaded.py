"""A REST server whose handler takes 0.2 s of one of four threads: it can answer 20 requests a second."""

import sys
import time

from starlette.responses import Response

from servicekit.http.app import build_app
from servicekit.http.connections import ConnectionLimits
from servicekit.http.server import HttpServer

THREADS = 4
SECONDS = 0.2

app = build_app("overloaded", "1", ready=lambda: True, metrics=lambda: b"")


@app.get("/work")
def work() -> Response:
    time.sleep(SECONDS)
    return Response("done")


if __name__ == "__main__":
    limits = ConnectionLimits(per_peer=2000)
    server = HttpServer(app, "127.0.0.1", 0, threads=THREADS, limits=limits)
    server.start()
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()
