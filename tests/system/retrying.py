"""A processor whose handler asks an API itself, with retries: `retrying.py SERVERS PREFIX STATE URL FAILPOINT`."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from streamtable import App, Context, Group, Input, Json, Kafka, OnError, Output, Persist, Stream, String
from streamtable_calls import Retry, retried


def group_of(prefix: str, url: str, state: Path) -> Group[str, Any]:
    del state
    results = Stream[str, Any](f"{prefix}-results", String(), Json())
    client = httpx.Client(timeout=2)

    def handle(ctx: Context[str, Any], request: Any) -> None:
        ctx.set([*(ctx.value or []), request["n"]])
        place = f"{ctx.topic}/{ctx.partition}/{ctx.offset}"
        response = client.post(url, json=request, headers={"Idempotency-Key": place}).raise_for_status()
        ctx.emit(results, ctx.key, response.json())

    retry = Retry(first=timedelta(seconds=0.2), most=timedelta(seconds=1), on=(httpx.HTTPError,))
    events = Stream[str, Any](f"{prefix}-in", String(), Json())
    edge = Input(events, handle, on_error=OnError.DEAD_LETTER)
    return Group(f"{prefix}-g", *retried(edge, retry), Output(results), Persist(Json()))


if __name__ == "__main__":
    servers, prefix, folder, url, failpoint = sys.argv[1:]
    App(Kafka(servers), Path(folder)).processor(
        group_of(prefix, url, Path(folder)), instance_id="i", commit_interval=0.05, failpoint=failpoint
    ).run()
