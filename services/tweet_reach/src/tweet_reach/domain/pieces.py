"""Maps from names to numbers, each of any size, in rows of bounded size: tries over the names' hashes.

A small map is one row. A row that becomes too large is split into sixteen, by the next hexadecimal digit of the hash
of each name; so the rows of a map, in the order of their keys, are in the order of the hashes, and two maps over the
same names are split at the same prefixes. Rows are never merged.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, Protocol, TypeAlias, TypeVar

R = TypeVar("R")
Piece: TypeAlias = dict[str, int]
"""Numbers by name; empty: the row is split, and its entries are in the sixteen rows with one more digit."""

ENTRIES_MAX: Final = 256
CHARACTERS_MAX: Final = 16_384
_DIGITS: Final = "0123456789abcdef"
_HASH_DIGITS: Final = 16
_LOOK: Final = 256  # the number of rows that a scan reads at a time


class Rows(Protocol[R]):
    """Rows of a central store, as a batch sees them."""

    def get_many(self, keys: Iterable[str], /) -> Mapping[str, R]:
        """Return the existing rows, including the writes of this batch."""
        ...

    def put(self, key: str, value: R, /) -> None: ...

    def delete_many(self, keys: Iterable[str], /) -> None: ...


def name_of(*parts: str) -> str:
    """Return a short, deterministic name for long text: 128 bits of a hash, in hexadecimal digits."""
    encoded = [part.encode() for part in parts]
    whole = b"".join([len(data).to_bytes(4) + data for data in encoded])
    return blake2b(whole, digest_size=16).hexdigest()


class Map:
    """One of `Maps`, with the rows that a batch has read."""

    def __init__(self, name: str, maps: "Maps") -> None:
        self._name = name
        self._maps = maps
        # By the prefix of their names' hashes, "" for the first row; None: the row is split.
        self._leaves: dict[str, Piece | None] = {}
        self._changed: set[str] = set()

    def get(self, name: str) -> int | None:
        """Return the number of a name; None: it is not in the map."""
        first = self._leaves.get("")
        return (first if first is not None else self._leaf(name)[1]).get(name)

    def put(self, name: str, number: int | None) -> None:
        """Set the number of a name; None removes the name from the map."""
        prefix, leaf = self._leaf(name)
        if number is None:
            if leaf.pop(name, None) is None:
                return
        else:
            leaf[name] = number
        self._changed.add(prefix)

    @property
    def empty(self) -> bool:
        """Whether it never had entries, or lost all before it was split."""
        return self._known("") == {}

    def scan(self, begin: str, names: int) -> tuple[list[tuple[str, int]], str | None]:
        """Return entries in the order of their rows.

        Args:
            begin: "" for the first call, then the cursor that the previous call returned. Changes must be saved
                before.
            names: The number of entries after which to stop, at the end of a row.

        Returns:
            The entries, and the cursor for the next call; None: there are no more.
        """
        entries: list[tuple[str, int]] = []
        todo = [""]
        while todo:
            look, rest = todo[:_LOOK], todo[_LOOK:]
            unknown = [(self, prefix) for prefix in look if prefix not in self._leaves]
            if unknown:
                self._maps.fetch(unknown)
            later: list[str] = []
            for prefix in look:
                leaf = self._leaves[prefix]
                if leaf is None:
                    parts = [prefix + digit for digit in _DIGITS]
                    later += [part for part in parts if part.ljust(_HASH_DIGITS, "f") >= begin]
                elif later:
                    later.append(prefix)  # its parent rows are not read yet
                else:
                    entries += leaf.items()
                    if len(entries) >= names:
                        return entries, _after(prefix)
            todo = later + rest
        return entries, None

    # ---- for `Maps` -------------------------------------------------------------------------------------------------

    def knows(self, prefix: str) -> bool:
        return prefix in self._leaves

    def key(self, prefix: str) -> str:
        """Return the key of the row with this prefix."""
        return f"{self._name}/{prefix}"

    def take(self, prefix: str, piece: Piece | None) -> None:
        """Add a row as read from the store; None: it does not exist."""
        self._leaves[prefix] = {} if piece is None else piece or None

    def below(self, prefix: str, names: Iterable[str]) -> dict[str, list[str]]:
        """Return which of these names, all with this prefix, are in deeper rows, by the prefix of the next row."""
        found: dict[str, list[str]] = {}
        if self._leaves[prefix] is None:
            digits, place = len(prefix) + 1, self._maps.place
            for name in names:
                found.setdefault(place(name)[:digits], []).append(name)
        return found

    def changed(self) -> tuple[dict[str, Piece], list[str]]:
        """Return the rows to write, split if too large, and the keys to delete; call it once."""
        rows: dict[str, Piece] = {}
        gone: list[str] = []
        for prefix in sorted(self._changed):
            leaf = self._leaves[prefix]
            assert leaf is not None
            if leaf:
                self._cut(prefix, leaf, rows)
            else:
                gone.append(self.key(prefix))
        self._changed.clear()
        return rows, gone

    def _cut(self, prefix: str, leaf: Piece, rows: dict[str, Piece]) -> None:
        if len(leaf) <= 1 or (len(leaf) <= ENTRIES_MAX and sum(map(len, leaf)) <= CHARACTERS_MAX):
            rows[self.key(prefix)] = leaf
            return
        depth = len(prefix)
        assert depth < _HASH_DIGITS, "more equal hashes than a row holds names"
        parts: dict[str, Piece] = {digit: {} for digit in _DIGITS}
        place = self._maps.place
        for name, number in leaf.items():
            parts[place(name)[depth]][name] = number
        self._leaves[prefix] = None
        rows[self.key(prefix)] = {}
        for digit, part in parts.items():
            self._leaves[prefix + digit] = part
            if part:
                self._cut(prefix + digit, part, rows)

    def _leaf(self, name: str) -> tuple[str, Piece]:
        leaf = self._known("")
        if leaf is not None:
            return "", leaf
        place = self._maps.place(name)
        for digits in range(1, _HASH_DIGITS + 1):
            prefix = place[:digits]
            leaf = self._known(prefix)
            if leaf is not None:
                return prefix, leaf
        raise AssertionError("a row was split beyond the last digit")

    def _known(self, prefix: str) -> Piece | None:
        try:
            return self._leaves[prefix]
        except KeyError:
            self._maps.fetch([(self, prefix)])
            return self._leaves[prefix]


class Maps:
    """The maps that one batch uses. `save` writes the changes.

    Args:
        rows: The rows of the maps; the name of a map has no slash.
    """

    def __init__(self, rows: Rows[Piece]) -> None:
        self._rows = rows
        self._maps: dict[str, Map] = {}
        self._places: dict[str, str] = {}

    def of(self, name_of_map: str) -> Map:
        found = self._maps.get(name_of_map)
        if found is None:
            found = self._maps[name_of_map] = Map(name_of_map, self)
        return found

    def load(self, requested: Iterable[tuple[Map, Iterable[str]]]) -> None:
        """Read the rows of these names of these maps together: one round trip for each level of the deepest one."""
        waiting = [(each, "", names) for each, names in requested]
        while waiting:
            self.fetch([(each, prefix) for each, prefix, _ in waiting])
            waiting = [
                (each, longer, part)
                for each, prefix, names in waiting
                for longer, part in each.below(prefix, names).items()
            ]

    def save(self) -> None:
        """Write the rows that were changed."""
        gone: list[str] = []
        for each in self._maps.values():
            rows, emptied = each.changed()
            for key, piece in rows.items():
                self._rows.put(key, piece)
            gone += emptied
        if gone:
            self._rows.delete_many(gone)

    # ---- for `Map` --------------------------------------------------------------------------------------------------

    def fetch(self, requested: Iterable[tuple[Map, str]]) -> None:
        """Read rows that were not read yet, in one round trip."""
        missing = {each.key(prefix): (each, prefix) for each, prefix in requested if not each.knows(prefix)}
        if missing:
            found = self._rows.get_many(missing)
            for key, (each, prefix) in missing.items():
                each.take(prefix, found.get(key))

    def place(self, name: str) -> str:
        """Return the name's hash, in hexadecimal digits."""
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = blake2b(name.encode(), digest_size=_HASH_DIGITS // 2).hexdigest()
        return place


def _after(prefix: str) -> str | None:
    """Return the prefix of the next row after the one with this prefix; None: it is the last."""
    behind = int(prefix or "0", 16) + 1
    return None if behind == 16 ** len(prefix) else f"{behind:0{len(prefix)}x}"
