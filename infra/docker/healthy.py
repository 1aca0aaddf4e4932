"""The images' health check: requests `/readyz` of the process in this container. Standard library only, no start-up cost.

Its address is read from the settings of the process: STREAMTABLE_METRICS_ADDRESS, else STREAMTABLE_HTTP_ADDRESS.
A process that serves neither counts as healthy as long as it runs.
"""

import os
import socket
import sys

SECONDS = 4.0


def main() -> int:
    """Send the request; returns 0 if the response is 200."""
    address = os.environ.get("STREAMTABLE_METRICS_ADDRESS") or os.environ.get("STREAMTABLE_HTTP_ADDRESS")
    if not address:
        return 0
    port = int(address.rpartition(":")[2])
    try:
        with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = connection.recv(1024)
    except OSError as error:
        print(f"no answer on port {port}: {error}")
        return 1
    status = answer.split(b"\r\n", 1)[0].decode("latin-1")
    print(status)
    return 0 if status.split(" ")[1:2] == ["200"] else 1


if __name__ == "__main__":
    sys.exit(main())
