"""The writer of a record without a loop over its fields: its source is made from the schema, as dataclasses make theirs.

A loop costs a call for each field. Most are texts and whole numbers, which need none: a record of four takes half the time.
"""

from collections.abc import Callable, Sequence
from typing import Any

from exactavro.schema import Node, kind, logical

Write = Callable[[Any], bytes]

_TWO_BYTES, _FOUR_BYTES, _SIX_BYTES = 1 << 13, 1 << 27, 1 << 41
"""Numbers from 0 to below these limits take at most 2, 4 and 6 bytes in zigzag. Six hold milliseconds since 1970 until 2039."""
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
    """A function that writes a record.

    Args:
        fields: name, schema and writer of each.
        write_long: Writes negative numbers, and those that take more than six bytes.
        last: The varints of the numbers below 2**14.
        more: The two bytes of 14 bits that are not a varint's last ones.
        errors: The exceptions that the writers of fields raise.
        otherwise: takes what is no plain dict of these fields, or holds a value that is not exactly of its type.
        prefix: The bytes in front of each record, which `otherwise` writes too. To put them there afterwards copies it.
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
                # One comparison with 0: a chain like `0 <= v < limit` costs more than two comparisons, for each limit.
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
    exec("\n".join(lines), names)  # noqa: S102 - of the schema only the fields' names are in it, as literals
    made: Write = names["write_record"]
    return made
