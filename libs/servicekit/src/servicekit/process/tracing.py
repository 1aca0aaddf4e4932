"""Whether a service sends traces, and where to: the standard variables of OpenTelemetry.

`servicekit.process.otel` sends them. It is imported only where the environment names a collector, so that a service
without traces is as small and as fast as if tracing did not exist.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from servicekit.tracing import ServerTracer
from streamtable.errors import ConfigurationError

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
SAMPLERS: Final = frozenset(
    f"{parent}{root}"
    for parent in ("", "parentbased_")
    for root in ("always_on", "always_off", "traceidratio")
)
_PROTOCOL: Final = "grpc"


@dataclass(frozen=True)
class TraceSettings:
    """Where traces go, and how many: standard variables of OpenTelemetry.

    Attributes:
        endpoint: of a collector that takes OTLP over gRPC: `http://collector:4317`, `https://...` over TLS.
        service: what the process is called in traces.
        instance: tells apart its replicas.
        sampler: one of `SAMPLERS`. With `parentbased_` whoever calls decides for requests that come with a context.
        ratio: of the traces that begin here, how many are kept, 0 to 1; for `traceidratio`.
    """

    endpoint: str
    service: str
    instance: str
    sampler: str = "parentbased_always_on"
    ratio: float = 1.0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], service: str, instance: str) -> Self | None:
        """Read the settings; None if there are to be no traces.

        Args:
            environ: variables; those of the exporter itself, as its headers and certificates, it reads by itself.
            service: its name, unless OTEL_SERVICE_NAME says another.
            instance: of this process.

        Raises:
            ConfigurationError: lists what is wrong.
        """
        endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get(ENDPOINT)
        exporter = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
        if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
            return None
        protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL"
        )
        sampler = environ.get("OTEL_TRACES_SAMPLER") or cls.sampler
        ratio = environ.get("OTEL_TRACES_SAMPLER_ARG") or "1"
        problems = []
        if not endpoint.startswith(("http://", "https://")):
            problems.append(
                f"{ENDPOINT}={endpoint!r}: expected http://host:port, or https://host:port for TLS"
            )
        if exporter != "otlp":
            problems.append(f"OTEL_TRACES_EXPORTER={exporter!r}: expected otlp or none")
        if protocol not in {None, "", _PROTOCOL}:
            problems.append(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: expected grpc")
        if sampler not in SAMPLERS:
            problems.append(f"OTEL_TRACES_SAMPLER={sampler!r}: expected {', '.join(sorted(SAMPLERS))}")
        if not 0 <= _number(ratio) <= 1:
            problems.append(f"OTEL_TRACES_SAMPLER_ARG={ratio!r}: expected a number from 0 to 1")
        if problems:
            raise ConfigurationError("\n".join(["settings are wrong; nothing was started:", *problems]))
        return cls(endpoint, environ.get("OTEL_SERVICE_NAME") or service, instance, sampler, _number(ratio))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@contextmanager
def tracing(settings: TraceSettings | None) -> Iterator[ServerTracer | None]:
    """A tracer for the block; None without settings. At the end it sends what it has, for a few seconds at most.

    Raises:
        ConfigurationError: what sends traces is not installed.
    """
    if settings is None:
        yield None
        return
    try:
        from servicekit.process.otel import OpenTelemetry  # noqa: PLC0415 - for those who want traces only
    except ImportError as error:
        raise ConfigurationError(
            f"{ENDPOINT} is set, but what sends traces is not installed: pip install 'servicekit[tracing]', or "
            f"unset it ({error})"
        ) from error
    tracer = OpenTelemetry(settings)
    try:
        yield tracer
    finally:
        tracer.close()
