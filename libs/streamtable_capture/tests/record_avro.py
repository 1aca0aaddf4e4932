"""Writes `recorded/avro*`: what Debezium's PostgreSQL connector writes with Apicurio's Avro converter. Run by hand.

The converter comes from Maven Central; its jars are not pinned, as no test needs them. Copy those of
`io.apicurio:apicurio-registry-utils-converter:2.6.8.Final` and of what it needs at run time to a folder, without connect-*,
kafka-* and slf4j-*, which Connect has, and run

python libs/streamtable_capture/tests/record_avro.py FOLDER
"""

import json
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from libs.streamtable_capture.tests.record import CHANGES, FOLDER, UNWRAP
from libs.streamtable_capture.tests.shop_database import (
    BIO,
    connect_to,
    connector,
    create_shop,
    postgres_folder,
)

from localkafka.broker import Broker
from localkafka.connect import ConnectWorker, plugin_folder
from localkafka.reading import read_to_end
from localkafka.waiting import wait_until
from localstores.postgres import LOGICAL, PostgresServer

ADDED = "op,lsn,source.ts_ms,source.table,source.schema"
FORMS = {
    "avro": {"provide.transaction.metadata": "true"},
    "avro-flat": {
        **UNWRAP,
        "transforms.u.delete.tombstone.handling.mode": "rewrite",
        "transforms.u.add.fields": ADDED,
    },
}


@contextmanager
def registry() -> Iterator[tuple[str, dict[int, Any], dict[str, int]]]:
    """Serve the one request of Apicurio's API that its converter makes: to create a schema. Yields its URL, schemas and subjects."""
    schemas: dict[int, Any] = {}
    subjects: dict[str, int] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            schema = json.loads(text)
            number = next((each for each, found in schemas.items() if found == schema), len(schemas) + 1)
            schemas[number] = schema
            artifact = self.headers["X-Registry-ArtifactId"]
            subjects[artifact] = number
            answer = {
                "id": artifact, "groupId": "default", "name": artifact, "version": "1", "type": "AVRO", "state": "ENABLED",
                "createdOn": "2026-01-01T00:00:00+0000", "modifiedOn": "2026-01-01T00:00:00+0000",
                "globalId": number, "contentId": number,
            }  # fmt: skip
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/apis/registry/v2", schemas, subjects
    server.shutdown()


def main(converter: Path) -> None:
    """Record both forms."""
    with (
        tempfile.TemporaryDirectory(prefix="streamtable-record-") as folder,
        postgres_folder() as data,
        Broker(Path(folder) / "kafka", brief=True) as broker,
        PostgresServer(data / "postgres", options=LOGICAL) as server,
        registry() as (url, schemas, subjects),
    ):
        create_shop(server)
        database = connect_to(server)
        database.execute("insert into customers values (1, 'ann', %s), (2, 'bob', null)", [BIO])
        settings = {
            "plugin.discovery": "only_scan",
            **{
                f"{side}.converter{name}": value
                for side in ("key", "value")
                for name, value in {
                    "": "io.apicurio.registry.utils.converter.AvroConverter",
                    ".apicurio.registry.url": url,
                    ".apicurio.registry.auto-register": "true",
                    ".apicurio.registry.as-confluent": "true",
                    ".apicurio.registry.use-id": "contentId",
                    ".apicurio.registry.headers.enabled": "false",
                }.items()
            },
        }
        worker = ConnectWorker(
            Path(folder) / "connect",
            broker.bootstrap_servers,
            [connector(server, name, **given) for name, given in FORMS.items()],
            settings=settings,
            plugins=[plugin_folder("debezium-postgres-3.6.0"), converter],
            brief=True,
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

        def written(table: str) -> bool:
            return sum(name.endswith(f".{table}") for name in admin.list_topics().topics) == len(FORMS)

        with worker:
            wait_until(lambda: written("customers"), 60, "the snapshots")
            time.sleep(1)
            for change in CHANGES:
                database.execute(change)
            wait_until(lambda: written("codes"), 60, "the changes")
            time.sleep(3)
        database.close()
        found = admin.list_topics().topics
        for form in FORMS:
            topics = [name for name in found if name.startswith(f"{form}.")]
            places = [TopicPartition(name, each, 0) for name in topics for each in found[name].partitions]
            messages = read_to_end(broker.bootstrap_servers, places)
            messages.sort(key=lambda message: message.timestamp()[1])
            lines = list(map(line_of, messages))
            (FOLDER / f"{form}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            print(form, len(lines))  # noqa: T201 - a script run by hand
        text = json.dumps({"schemas": schemas, "subjects": subjects}, indent=1)
        (FOLDER / "avro-schemas.json").write_text(text + "\n", encoding="utf-8")


def line_of(message: Any) -> str:
    """Return a message as `record.line_of` does, with key and value in base64."""
    headers = {
        name: value.decode() for name, value in message.headers() or () if name.endswith(("oldkey", "newkey"))
    }
    data = [None if each is None else b64encode(each).decode() for each in (message.key(), message.value())]
    topic = message.topic().partition(".")[2]
    return json.dumps([topic, message.partition(), *data, message.timestamp()[1], headers])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
