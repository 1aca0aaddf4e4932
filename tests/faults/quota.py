"""Client quotas of a broker, set with Kafka's own tool, as the Python client cannot set them."""

import subprocess

from localkafka.broker import Broker
from localkafka.jars import kafka_jars
from localkafka.java import find_java

_RATES = ("producer_byte_rate", "consumer_byte_rate")


def set_quota(broker: Broker, client_id: str, bytes_per_second: int | None) -> None:
    """Limit clients with this id to this many bytes per second of produce and of fetch each; None: no limit."""
    command = [str(find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars()}/*"]
    command += ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--alter"]
    command += ["--entity-type", "clients", "--entity-name", client_id]
    if bytes_per_second is None:
        command += ["--delete-config", ",".join(_RATES)]
    else:
        command += ["--add-config", ",".join(f"{rate}={bytes_per_second}" for rate in _RATES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
