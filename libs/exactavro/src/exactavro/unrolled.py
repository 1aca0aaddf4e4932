"""Writers of records without a loop over the fields: their source is generated from the schema, as in dataclasses.

A loop costs a call per field, which texts and whole numbers do not need: a record of four fields takes half the time.
"""

from collections.abc import Callable, Sequence
from typing import Any

from exactavro.schema import Node, kind, logical

Write = Callable[[Any], bytes]

_TWO_BYTES, _FOUR_BYTES, _SIX_BYTES = 1 << 13, 1 << 27, 1 << 41
"""Numbers from 0 to below these limits take at most 2, 4 and 6 bytes in zigzag; 6 bytes hold Unix milliseconds until 2039."""
_LOW, _PIECE = _TWO_BYTES - 1, (1 << 14) - 1


def unrolled(
    fields: Sequence[tuple[str, Node, Write]],
    *,
    write_long: Write,
    last: Sequence[bytes],
    more: Sequence[bytes],
    errors: tuple[type[Exception], ...],
    otherwise: Write,
    prefix: bytes,
) -> Write:
    """Return a function that writes a record.

    Args:
        fields: The name, schema and writer of each field.
        write_long: Writes negative numbers, and those that take more than six bytes.
        last: The varints of the numbers below 2**14.
        more: The two bytes of each 14-bit group that is not the last of a varint.
        errors: The exceptions that the writers of fields raise.
        otherwise: The writer for values that are not plain dicts of exactly these fields and types.
        prefix: The bytes before each record, which `otherwise` writes too; adding them afterwards would copy the record.
    """
    names: dict[str, Any] = {
        "write_long": write_long,
        "last": last,
        "more": more,
        "errors": errors,
        "otherwise": otherwise,
        "join": b"".join,
    }
    gets: list[str] = []
    checks = [f"len(row) == {len(fields)}"]
    encodes: list[str] = []
    parts = [repr(prefix)] if prefix else []
    for at, (name, node, write) in enumerate(fields):
        gets.append(f"v{at} = row[{name!r}]")
        match None if logical(node) else kind(node):
            case "string":
                checks.append(f"type(v{at}) is str")
                encodes.append(f"r{at} = v{at}.encode(); n{at} = len(r{at})")
                parts += f"last[n{at} << 1] if n{at} < {_TWO_BYTES} else write_long(n{at})", f"r{at}"
            case "long":
                checks.append(f"type(v{at}) is int")
                # One comparison with 0: a chain like `0 <= v < limit` per limit costs more than two comparisons.
                parts.append(
                    f"write_long(v{at}) if v{at} < 0 else last[v{at} << 1] if v{at} < {_TWO_BYTES} else"
                    f" more[(v{at} & {_LOW}) << 1] + last[v{at} >> 13] if v{at} < {_FOUR_BYTES} else"
                    f" more[(v{at} & {_LOW}) << 1] + more[v{at} >> 13 & {_PIECE}] + last[v{at} >> 27]"
                    f" if v{at} < {_SIX_BYTES} else write_long(v{at})"
                )
            case _:
                names[f"write{at}"] = write
                parts.append(f"write{at}(v{at})")
    body = [*encodes, f"return join(({''.join(f'{part}, ' for part in parts)}))"]
    lines = [
        "def write_record(row):",
        " if type(row) is dict:",
        "  try:",
        *(f"   {each}" for each in gets),
        f"   if {' and '.join(checks)}:",
        *(f"    {each}" for each in body),
        "  except errors: pass",
        " return otherwise(row)",
    ]
    exec("\n".join(lines), names)  # noqa: S102 - from the schema it contains only field names, as literals
    made: Write = names["write_record"]
    return made
