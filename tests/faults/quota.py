"""Client quotas of a broker, which the Python client cannot set: by Kafka's own tool."""

import subprocess

from localkafka.broker import Broker
from localkafka.jars import kafka_jars
from localkafka.java import find_java

_RATES = ("producer_byte_rate", "consumer_byte_rate")


def set_quota(broker: Broker, client_id: str, bytes_per_second: int | None) -> None:
    """Let clients of this id produce and fetch so many bytes a second each; None: as many as they like."""
    command = [str(find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars()}/*"]
    command += ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--alter"]
    command += ["--entity-type", "clients", "--entity-name", client_id]
    if bytes_per_second is None:
        command += ["--delete-config", ",".join(_RATES)]
    else:
        command += ["--add-config", ",".join(f"{rate}={bytes_per_second}" for rate in _RATES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
