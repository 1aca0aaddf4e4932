"""A processor whose handlers call an API, in a process of its own: `calling.py SERVERS PREFIX STATE URL FAILPOINT [ID]`.

With an instance ID it is one of several, and its session ends three seconds after its last heartbeat.

A request may say where the process dies, once: "before" its function asks the API, "after" that, or in the "handler".
"""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from streamtable import App, Context, Group, Input, Json, Kafka, Output, Persist, Stream, String
from streamtable_calls import Call, Retry, RetryAfter, call_id


def group_of(prefix: str, url: str, state: Path, **given: Any) -> Group[str, Any]:
    results = Stream[str, Any](f"{prefix}-results", String(), Json())
    client = httpx.AsyncClient(limits=httpx.Limits(max_connections=1000))

    def die(where: str, request: Any) -> None:
        mark = state / f"died-{request['n']}"
        if request.get("die") == where and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    async def ask(request: Any) -> Any:
        die("before", request)
        response = await client.post(url, json=request, headers={"Idempotency-Key": call_id()})
        if response.status_code == 429:
            raise RetryAfter(float(response.headers["Retry-After"]))
        die("after", request)
        return response.raise_for_status().json()

    def answered(ctx: Context[str, Any], request: Any, result: Any) -> None:
        ctx.set([*(ctx.value or []), result["n"]])
        ctx.emit(results, ctx.key, result)
        die("handler", request)

    def handle(ctx: Context[str, Any], request: Any) -> None:
        ctx.call(call, request)

    retry = Retry(first=timedelta(seconds=0.2), most=timedelta(seconds=1))
    call: Call[str, Any, Any, Any] = Call(
        "ask", ask, request=Json(), response=Json(), then=answered, **{"retry": retry, **given}
    )
    events = Stream[str, Any](f"{prefix}-in", String(), Json())
    return Group(f"{prefix}-g", Input(events, handle), call, Output(results), Persist(Json()))


if __name__ == "__main__":
    servers, prefix, folder, url, failpoint, *instance = sys.argv[1:]
    short = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}
    kafka = Kafka(servers, short, group_protocol="classic") if instance else Kafka(servers)
    App(kafka, Path(folder)).processor(
        group_of(prefix, url, Path(folder), timeout=timedelta(seconds=2)),
        instance_id=instance[0] if instance else "i",
        commit_interval=0.05,
        failpoint=failpoint,
    ).run()
