"""A supplier for demonstrations: `python -m inventory.supplier [PORT] [--fail N]`.

`POST /orders` places an order once for each `Idempotency-Key`, after it has failed N times for it. `GET /orders` lists the orders
with the number of their attempts.
"""

import argparse
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Orders:
    """The orders of a supplier.

    Args:
        failures: The number of attempts of each order that fail.
    """

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self._lock = threading.Lock()
        self._attempts = Counter[str]()
        self._placed: dict[str, Any] = {}

    def place(self, key: str, order: Any) -> str | None:
        """Place an order, unless it is there. Returns its number; None: this attempt fails."""
        with self._lock:
            self._attempts[key] += 1
            if self._attempts[key] <= self._failures:
                return None
            placed = self._placed.setdefault(key, {"order": f"order-{len(self._placed) + 1}", "of": order})
            return str(placed["order"])

    def listed(self) -> list[dict[str, Any]]:
        """Return the orders that are placed, each with its key and the number of attempts."""
        with self._lock:
            return [
                {"key": key, "attempts": self._attempts[key], **placed}
                for key, placed in self._placed.items()
            ]


def server_of(orders: Orders, port: int = 0) -> ThreadingHTTPServer:
    """Return the server of a supplier. `port` 0: a free one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            number = orders.place(self.headers["Idempotency-Key"], json.loads(data))
            self._answer(503 if number is None else 200, {"order": number})

        def do_GET(self) -> None:
            self._answer(200, orders.listed())

        def _answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    """Serve until it is interrupted."""
    parser = argparse.ArgumentParser(description="A supplier that can be told to fail.")
    parser.add_argument("port", type=int, nargs="?", default=8090)
    parser.add_argument("--fail", type=int, default=0, metavar="N", help="How often each order fails.")
    given = parser.parse_args()
    server_of(Orders(given.fail), given.port).serve_forever()


if __name__ == "__main__":
    main()
