"""Sequences whose values are decoded when they are read: a handler that only counts never decodes them."""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeVar, overload

T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence of known length whose values are made when first read.

    Args:
        size: The number of values.
        make: Makes all values; called once.
        make_field: Reads one field of each value, without making the values.
    """

    __hash__ = None  # type: ignore[assignment] # compared by its values, which may be changed in place

    def __init__(
        self, size: int, make: Callable[[], list[T]], make_field: Callable[[str], list[Any]] | None = None
    ) -> None:
        self._size = size
        self._make: Callable[[], list[T]] | None = make
        self._make_field = make_field
        self._made: list[T] = []

    def field(self, name: str) -> list[Any]:
        """See `ports.Fields`."""
        if self._make is not None and self._make_field is not None:
            return self._make_field(name)
        values: list[Any] = self._values()
        return list(map(itemgetter(name), values))

    def _values(self) -> list[T]:
        if self._make is not None:
            self._made = self._make()
            self._make = self._make_field = None  # and with them the bytes
        return self._made

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._values()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._values())

    def __eq__(self, other: object) -> bool:
        return self._values() == (other._values() if isinstance(other, Lazy) else other)

    def __repr__(self) -> str:
        return repr(self._values())
