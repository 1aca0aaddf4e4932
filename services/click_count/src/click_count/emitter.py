"""The emitter service: accepts clicks over REST and responds once Kafka has acknowledged them."""

from typing import Final

from click_count.models import AcceptedClicks, Click
from contracts.records import UserClick
from servicekit.http.emitter_api import EmitterApi, PostEvents


def _record(click: Click, identity: str, at: int) -> UserClick:
    return UserClick(id=identity, user_id=click.user_id, url=click.url, at=at)


EMITTER: Final = EmitterApi(
    title="click-count emitter",
    version="1.2.0",
    text="Accepts clicks. A response of 200 or 201 means that Kafka has stored them on all in-sync replicas.",
    what="clicks",
    routes=(
        PostEvents(
            "/clicks",
            "send_clicks",
            "One click (answered with 201) or a list of them (200).\n\n503 if Kafka does not acknowledge in time: "
            "`accepted` and `unknown` list the outcome of each click. An unknown\none may be stored or not: retry it "
            "with the same `id`. Clicks that are in `not_sent` too are certainly not stored.",
            Click,
            AcceptedClicks,
            _record,
            key=lambda click: click.user_id,
            one="One click was stored",
        ),
    ),
)
build_emitter: Final = EMITTER.build
