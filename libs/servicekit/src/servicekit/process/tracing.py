"""The tracing settings of a service: the standard variables of OpenTelemetry.

`servicekit.process.otel` sends them. It is imported only where the environment names a collector, so that a service
without traces is as small and as fast as if tracing did not exist.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Annotated, ClassVar, Final

from servicekit.tracing import ServerTracer
from streamtable.base.environment import EnvironmentSettings, number, one_of
from streamtable.errors import ConfigurationError

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
SAMPLERS: Final = frozenset(
    f"{parent}{root}"
    for parent in ("", "parentbased_")
    for root in ("always_on", "always_off", "traceidratio")
)


def _endpoint(value: object) -> object:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        raise ValueError("http://host:port, or https://host:port for TLS")
    return value


class TraceSettings(EnvironmentSettings):
    """The collector and the sampling of traces, from the standard variables of OpenTelemetry.

    Attributes:
        endpoint: A collector that accepts OTLP over gRPC: `http://collector:4317`, `https://...` over TLS.
        service: The name of the process in traces.
        instance: Distinguishes the replicas of a service.
        sampler: One of `SAMPLERS`. With `parentbased_` the caller decides for requests that carry a context.
        ratio: The share of the traces begun here that is kept, 0 to 1; for `traceidratio`.
        exporter: Only `otlp` is supported.
        protocol: Only `grpc` is supported.
    """

    env_ignore_empty: ClassVar[bool] = True

    endpoint: Annotated[str, _endpoint] = field(
        metadata={"variables": ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ENDPOINT)}
    )
    service: str = field(metadata={"variables": ("OTEL_SERVICE_NAME",)})
    instance: str
    sampler: Annotated[str, one_of(*sorted(SAMPLERS))] = field(
        default="parentbased_always_on", metadata={"variables": ("OTEL_TRACES_SAMPLER",)}
    )
    ratio: Annotated[float, number(0, 1, "a number from 0 to 1")] = field(
        default=1.0, metadata={"variables": ("OTEL_TRACES_SAMPLER_ARG",)}
    )
    exporter: Annotated[str, one_of("otlp", "none")] = field(
        default="otlp", metadata={"variables": ("OTEL_TRACES_EXPORTER",)}
    )
    protocol: Annotated[str, one_of("grpc")] = field(
        default="grpc",
        metadata={"variables": ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")},
    )


def trace_settings(environ: Mapping[str, str], service: str, instance: str) -> TraceSettings | None:
    """Return the settings; None if no traces are to be sent.

    Args:
        environ: The variables. The exporter reads its own, such as those of headers and certificates, by itself.
        service: The name of the service, unless OTEL_SERVICE_NAME gives another.
        instance: The instance id of this process.

    Raises:
        ConfigurationError: A variable is invalid; the message lists all invalid ones.
    """
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get(ENDPOINT)
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not endpoint or disabled or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    return TraceSettings.from_environment(environ, service=service, instance=instance)


@contextmanager
def tracing(settings: TraceSettings | None) -> Iterator[ServerTracer | None]:
    """Yield a tracer for the block; None without settings. At the end it sends remaining spans for a few seconds.

    Raises:
        ConfigurationError: The packages for tracing are not installed.
    """
    if settings is None:
        yield None
        return
    try:
        from servicekit.process.otel import OpenTelemetry  # noqa: PLC0415 - imported only if traces are sent
    except ImportError as error:
        raise ConfigurationError(
            f"{ENDPOINT} is set, but the packages for tracing are not installed: pip install 'streamtable-servicekit[tracing]', or "
            f"unset it ({error})"
        ) from error
    tracer = OpenTelemetry(settings.endpoint, settings.service, settings.instance)
    try:
        yield tracer
    finally:
        tracer.close()
