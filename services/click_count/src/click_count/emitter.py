"""The emitter service: takes clicks by REST and answers when Kafka has acknowledged them."""

from typing import Final

from click_count.models import AcceptedClicks, Click
from contracts.records import UserClick
from servicekit.http.emitter_api import EmitterApi, PostEvents


def _record(click: Click, identity: str, at: int) -> UserClick:
    return UserClick(id=identity, user_id=click.user_id, url=click.url, at=at)


EMITTER: Final = EmitterApi(
    title="click-count emitter",
    version="1.2.0",
    text="Takes clicks. An answer of 200 or 201 means that Kafka has stored them on all in-sync replicas.",
    what="clicks",
    routes=(
        PostEvents(
            "/clicks",
            "send_clicks",
            "One click (answered with 201) or a list of them (200).\n\n503 when Kafka does not acknowledge in time: "
            "`accepted` and `unknown` say what became of each click. An unknown\none may be stored or not: send it again "
            "with the same `id`. Those in `not_sent` too are certainly not stored.",
            Click,
            AcceptedClicks,
            _record,
            key=lambda click: click.user_id,
            one="One click was stored",
        ),
    ),
)
build_emitter: Final = EMITTER.build
