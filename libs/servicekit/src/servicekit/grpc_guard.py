"""What a gRPC call may ask for, and that every error is an error of ours."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
import structlog

from streamtable.errors import RetryLater

log = structlog.get_logger()
_SLACK: Final = 1.05  # a deadline travels rounded up


class Refused(Exception):
    """A call that is answered with an error.

    Args:
        code: of gRPC.
        details: what is wrong and what to do, in words that were written beforehand.
    """

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


Handler = Callable[[Any, grpc.ServicerContext], Any]
_MAKERS: Final[dict[tuple[bool, bool], tuple[Callable[..., Any], str]]] = {
    (False, False): (grpc.unary_unary_rpc_method_handler, "unary_unary"),
    (False, True): (grpc.unary_stream_rpc_method_handler, "unary_stream"),
    (True, False): (grpc.stream_unary_rpc_method_handler, "stream_unary"),
    (True, True): (grpc.stream_stream_rpc_method_handler, "stream_stream"),
}


class CallGuard(grpc.ServerInterceptor):  # type: ignore[type-arg] # it is generic in the stubs only
    """Refuses unary calls without a deadline or with one too far away; maps exceptions to codes and fixed texts.

    Left to itself, grpcio sends the text of an exception to the caller.

    Args:
        deadline_seconds_max: the farthest deadline of a unary call. Streams may have any or none: their servicers
            take them from `servicekit.streams.Streams`, which bounds them.
    """

    def __init__(self, deadline_seconds_max: float) -> None:
        self._deadline_seconds_max = deadline_seconds_max

    def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Wrap the method's handler."""
        found = continuation(handler_call_details)
        if found is None:
            return None
        make, inner = _MAKERS[found.request_streaming, found.response_streaming]
        handler: Handler = getattr(found, inner)
        guarded = self._stream(handler) if found.response_streaming else self._unary(handler)
        made: grpc.RpcMethodHandler[Any, Any] = make(
            guarded, found.request_deserializer, found.response_serializer
        )
        return made

    def _unary(self, inner: Handler) -> Handler:
        def guarded(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                self._check_deadline(context)
                return inner(request, context)
            except Exception as error:  # noqa: BLE001 it is logged, and the caller gets a fixed text
                refused = _refusal(error)
            return context.abort(refused.code, refused.details)

        return guarded

    def _stream(self, inner: Handler) -> Handler:
        def guarded(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                yield from inner(request, context)
            except Exception as error:  # noqa: BLE001 it is logged, and the caller gets a fixed text
                refused = _refusal(error)
            else:
                return
            context.abort(refused.code, refused.details)

        return guarded

    def _check_deadline(self, context: grpc.ServicerContext) -> None:
        left = context.time_remaining()  # centuries where none is set
        if left > self._deadline_seconds_max * _SLACK:
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"set a deadline of at most {self._deadline_seconds_max:g} seconds",
            )


def _refusal(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, RetryLater):
        return Refused(grpc.StatusCode.UNAVAILABLE, "the service cannot answer at the moment; ask again")
    log.error("call failed", exc_info=error)
    return Refused(grpc.StatusCode.INTERNAL, "the service failed")
