"""A small HTTP API that counts idempotency keys and misbehaves as it is asked to: `api.py`, which prints its port.

A request's body says what happens at its first attempts, one after the other: "503", "429", "hang", "half" an answer, or the
seconds until a good one. Afterwards each attempt succeeds. `GET /` returns what it has seen.
"""

import asyncio
import json
from typing import Any

seen: list[dict[str, Any]] = []  # each attempt: id, key, n, status
running: dict[str, int] = {}  # by key
most: dict[str, int] = {}  # at once, by key; and by "all"


async def answer(body: dict[str, Any], call_id: str) -> tuple[str, dict[str, Any]] | None:
    attempt = sum(each["id"] == call_id for each in seen)
    steps = body.get("do", [])
    step = steps[attempt] if attempt < len(steps) else "0"
    entry = {"id": call_id, "key": body["key"], "n": body["n"], "step": step, "done": False}
    seen.append(entry)
    if step == "hang":
        await asyncio.sleep(3600)
    if step in {"503", "429"}:
        return step, {}
    if step == "half":
        return None
    await asyncio.sleep(float(step))
    entry["done"] = True
    return "200", {"id": call_id, "n": body["n"]}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
            }
            raw = await reader.readexactly(int(headers.get("content-length", 0)))
            if head[0].startswith("GET"):
                status, result = "200", {"seen": seen, "most": most}
            else:
                body = json.loads(raw)
                for name in (body["key"], "all"):
                    running[name] = running.get(name, 0) + 1
                    most[name] = max(most.get(name, 0), running[name])
                try:
                    found = await answer(body, headers["idempotency-key"])
                finally:
                    for name in (body["key"], "all"):
                        running[name] -= 1
                if found is None:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
                    return
                status, result = found
            data = json.dumps(result).encode()
            more = "Retry-After: 0.2\r\n" if status == "429" else ""
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{more}\r\n".encode() + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
