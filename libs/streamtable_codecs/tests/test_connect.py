"""A real Kafka Connect reads our Avro by the converter of a registry: Apicurio's, which is on Maven Central."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from localkafka.broker import Broker
from localkafka.connect import Connector, ConnectWorker, plugin_folder
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from streamtable import App, Avro, Stream, String
from streamtable_codecs import Confluent, FileRegistry

SCHEMA = {
    "type": "record",
    "name": "Price",
    "namespace": "shop",
    "fields": [{"name": "product", "type": "string"}, {"name": "price", "type": "double"}],
}
ID = 7
PAGE = (Path(__file__).parents[3] / "docs/how-to/use-kafka-connect.md").read_text("utf-8")
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


@contextmanager
def apicurio() -> Iterator[str]:
    """Serve the requests of Apicurio's API that its converter makes to read: the schema of an id, and what it refers to."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known: dict[str, Any] = {f"/ids/contentIds/{ID}": SCHEMA, f"/ids/contentIds/{ID}/references": []}
            found = known.get(self.path.removeprefix("/apis/registry/v2").partition("?")[0])
            body = json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/apis/registry/v2"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def settings_of_the_page(url: str) -> dict[str, str]:
    """Return the converter's settings, as the page has them."""
    (text,) = (each.partition("```")[0] for each in PAGE.split("```properties\n")[1:])
    pairs = (line.split("=", 1) for line in text.splitlines())
    return {name: url if name.endswith(".url") else value for name, value in pairs}


@pytest.mark.faults_long("the converter's jars are fetched")
def test_connects_file_sink_reads_avro_by_the_converter_of_a_registry(
    broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    file, out, topic = tmp_path / "schemas.json", tmp_path / "prices.txt", topics.create("prices")
    file.write_text(json.dumps({"schemas": {str(ID): SCHEMA}, "subjects": {f"{topic}-value": ID}}))
    prices: Stream[str, Any] = Stream(topic, String(), Avro(SCHEMA, Confluent(FileRegistry(file))))
    with (
        App(broker.bootstrap_servers, state_dir=tmp_path / "state") as app,
        app.emitter(prices) as emitter,
    ):
        emitter.emit("book", {"product": "book", "price": 12.5})
    with apicurio() as url:
        config = {
            "connector.class": SINK,
            "topics": topic,
            "file": str(out),
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            **settings_of_the_page(url),
        }
        plugins = [plugin_folder("connect-file-4.3.1"), plugin_folder("apicurio-converter-2.6.8")]
        with ConnectWorker(
            tmp_path / "connect",
            broker.bootstrap_servers,
            [Connector(topics.name("sink"), config)],
            plugins=plugins,
            settings={"plugin.discovery": "only_scan"},
            brief=True,
        ):
            wait_until(
                lambda: out.exists() and out.read_text() == "Struct{product=book,price=12.5}\n",
                60,
                "the event in the file",
            )
