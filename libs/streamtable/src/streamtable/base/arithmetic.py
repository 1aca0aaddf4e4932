"""The numbers of aggregates: the result is the same in whatever order the records come, but for the rounding of floats.

None is no number, and is skipped, as SQL skips NULL. NaN is greater than any other number, and a sum with NaN, or with
infinities of both signs, is NaN: so does Spark.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from itertools import compress
from math import nan
from typing import Any, TypeVar

T = TypeVar("T")

# The operators round to the digits of the thread's context, which are 28, and the sum would depend on the order.
_EXACT = Context(prec=1_000, traps=[Inexact, InvalidOperation])
_KINDS = (Decimal, int)
_JOINED = frozenset({str, bytes, list, tuple})


def plus(one: Any, other: Any) -> Any:
    """Return the sum of two numbers. Raises `ValueError` for decimals whose sum has more than 1,000 digits."""
    made = one + other
    if type(made) is Decimal:
        made = _exact(_EXACT.add, one, other, made)
    return made if made == made else nan  # noqa: PLR0124 - NaN alone differs from itself; one NaN, as its bits depend on the order


def minus(one: Any, other: Any) -> Any:
    """Return the difference of two numbers. Raises like `plus`."""
    made = one - other
    return _exact(_EXACT.subtract, one, other, made) if type(made) is Decimal else made


def _exact(operation: Callable[[Any, Any], Decimal], one: Any, other: Any, made: Decimal) -> Decimal:
    """Return what an operator has made of two numbers with all digits; as it is for a class with an operator of its own."""
    try:
        return operation(one, other) if isinstance(one, _KINDS) and isinstance(other, _KINDS) else made
    except Inexact:
        raise ValueError("a sum of decimals has more than 1,000 digits: round the numbers first") from None


def alone(number: Any) -> Any:
    """Return the sum of one number: of a boolean 0 or 1, of an enum its number, as if it were added to another number.

    Raises:
        TypeError: It is a text or a list, which `+` would join with the next one.
    """
    if type(number) in _JOINED:
        raise TypeError(
            f"a sum of a {type(number).__name__}, {number!r:.100}: take a number from the value, as by int() or Decimal()"
        )
    return int(number) if isinstance(number, int) else number  # also of an enum's member


def least(one: Any, other: Any) -> Any:
    """Return the lesser of two values; NaN is greater than any number."""
    return other if other < one or one != one else one  # noqa: PLR0124 - NaN alone differs from itself


def greatest(one: Any, other: Any) -> Any:
    """Return the greater of two values; NaN is greater than any number."""
    return other if other > one or other != other else one  # noqa: PLR0124 - the same


def numbers_only(found: Iterable[Any], beside: Sequence[T]) -> tuple[list[Any], Sequence[T]]:
    """Return the numbers among these, and the items beside them: None is skipped."""
    numbers = list(found)
    if set(map(type, numbers)) == {int}:  # mostly
        return numbers, beside
    numbers = [each if each == each else nan for each in numbers]  # noqa: PLR0124 - the same
    if None not in numbers:
        return numbers, beside
    there = [each is not None for each in numbers]
    return list(compress(numbers, there)), list(compress(beside, there))
