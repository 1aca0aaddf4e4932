"""The sum of a number over the rows of a group; rows that change or go are subtracted again.

NaN and infinity cannot be subtracted from a sum of floats. While a group has such numbers, or its sum is too large for a
float, a separate table keeps the count of each such number, and the exact sum of all other numbers.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import inf, isfinite, isnan, nan
from typing import Any, NamedTuple

from streamtable.base.arithmetic import minus, plus
from streamtable.base.decoding import ItemCodec
from streamtable.base.ports import Codec
from streamtable.codec import Avro, Json, Long
from streamtable.errors import DeserializationError, SerializationError
from streamtable.flow.folds.folds import KeepRows
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.graph.state import State
from streamtable.handlers.aggregate_rows import AggregateRows


class ExactSum(NamedTuple):
    """The numbers of a group whose sum is not finite.

    Attributes:
        finite: The exact sum of the finite numbers.
        nans: The number of NaNs.
        plus: The number of positive infinities.
        minus: The number of negative infinities.
    """

    finite: Fraction
    nans: int = 0
    plus: int = 0
    minus: int = 0

    def changed(self, number: Any, *, added: bool) -> "ExactSum":
        """Return the sum with a number added or taken away."""
        sign = 1 if added else -1
        if not isinstance(number, float) or isfinite(number):
            return self._replace(finite=self.finite + sign * Fraction(number))
        if isnan(number):
            return self._replace(nans=self.nans + sign)
        if number > 0:
            return self._replace(plus=self.plus + sign)
        return self._replace(minus=self.minus + sign)

    @property
    def value(self) -> float:
        """The sum as a float."""
        if self.nans or (self.plus and self.minus):
            return nan
        if self.plus or self.minus:
            return inf if self.plus else -inf
        try:
            return float(self.finite)
        except OverflowError:
            return inf if self.finite > 0 else -inf


@dataclass(frozen=True, repr=False, eq=False)
class ExactSumCodec(ItemCodec[ExactSum]):
    """A codec of `ExactSum`: numerator, denominator and the three counts as text."""

    def encode(self, value: ExactSum) -> bytes:
        finite = value.finite
        return b"%x %x %d %d %d" % (finite.numerator, finite.denominator, *value[1:])

    def decode(self, data: bytes) -> ExactSum:
        try:
            numerator, denominator, *counts = data.split()
            nans, plus, minus = map(int, counts)
            return ExactSum(Fraction(int(numerator, 16), int(denominator, 16)), nans, plus, minus)
        except (ValueError, ZeroDivisionError) as error:
            raise DeserializationError(f"no exact sum, but {data[:40]!r}") from error


def holds_floats(codec: Codec[Any]) -> bool:
    """Return whether a codec may have bytes for NaN and infinity."""
    if isinstance(codec, Avro):
        return codec.schema.name not in {"int", "long"}
    return not isinstance(codec, Long | Json)


@dataclass(frozen=True)
class KeepSum(KeepRows):
    """The step that adds numbers of rows to the sums of their groups, or takes them away; each value is (added, number).

    Args:
        state: The table of the sums.
        exact: The table of the exact sums of those that are not finite; None: the codec of the sums has no such numbers.
    """

    exact: State[Any, Any] | None

    def fold(self, scope: Scope, rows: AggregateRows[Any], records: Columns) -> None:
        keys = records.encoded_keys
        sums = rows.changing(keys)
        for key, (added, number) in zip(keys, records.values, strict=True):
            row = sums[key] or 0
            made = row + number if added else row - number
            if type(made) is Decimal:  # as the operators round it
                made = plus(row, number) if added else minus(row, number)
            # Infinity minus itself is NaN.
            finite = made - made == 0
            sums[key] = made if finite else self.not_finite(scope, key, row, number, added=added)

    def not_finite(self, scope: Scope, key: bytes, row: Any, number: Any, *, added: bool) -> Any:
        """Return the sum after a change before or after which it is not finite."""
        if self.exact is None:
            raise SerializationError(f"the sum of {row!r} and {number!r} does not fit {self.state.value!r}")
        kept = scope.table(self.exact).raw
        before = kept.get(key)
        made = (before or ExactSum(Fraction(row))).changed(number, added=added)
        kept.put(key, None if isfinite(made.value) else made)
        return made.value
