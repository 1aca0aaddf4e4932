"""Maps from names to numbers, each of any size, in rows of bounded size: tries over the names' hashes.

A small map is one row. A row that has become too large is split into sixteen, by the next hexadecimal digit of the hash
of each name; so the rows of a map, in the order of their keys, are in the order of the hashes, and two maps over the
same names are cut alike. Rows are never joined again.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, Protocol, TypeVar

from contracts.records import ReachPiece

R = TypeVar("R")
Leaf = dict[str, int]

ENTRIES_MAX: Final = 256
CHARACTERS_MAX: Final = 16_384
_DIGITS: Final = "0123456789abcdef"
_HASH_DIGITS: Final = 16
_LOOK: Final = 256  # rows that a scan asks for at a time


class Rows(Protocol[R]):
    """Rows of a central store, as a batch sees them."""

    def get_many(self, keys: Iterable[str], /) -> Mapping[str, R]:
        """Those that are there, with what this batch has written."""
        ...

    def put(self, key: str, value: R, /) -> None: ...

    def delete_many(self, keys: Iterable[str], /) -> None: ...


def name_of(*parts: str) -> str:
    """A short name for what may be long, the same everywhere: 128 bits of a hash, in hexadecimal digits."""
    hashed = blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        hashed.update(len(data).to_bytes(4))
        hashed.update(data)
    return hashed.hexdigest()


class Maps:
    """The maps that one batch works on. What it has changed is written by `save`.

    Args:
        rows: where the maps are; the name of a map has no slash.
    """

    def __init__(self, rows: Rows[ReachPiece]) -> None:
        self._rows = rows
        self._leaves: dict[str, Leaf | None] = {}  # by the row's key; None: it is split
        self._changed: set[str] = set()
        self._places: dict[str, str] = {}

    def load(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Read the rows of these names of these maps together: one round trip for each level of the deepest one."""
        waiting = [(name_of_map, self._place(name)) for name_of_map, name in wanted]
        depth = 0
        while waiting:
            keys = [f"{name_of_map}/{place[:depth]}" for name_of_map, place in waiting]
            self._fetch(keys)
            waiting = [one for one, key in zip(waiting, keys, strict=True) if self._leaves[key] is None]
            depth += 1

    def load_first(self, maps: Iterable[str]) -> None:
        """Read the first row of each of these maps together: of a small map, all."""
        self._fetch([f"{name_of_map}/" for name_of_map in maps])

    def get(self, name_of_map: str, name: str) -> int | None:
        """The number of a name; None: it is not in the map."""
        return self._leaf(name_of_map, name)[1].get(name)

    def put(self, name_of_map: str, name: str, number: int | None) -> None:
        """Set it; None takes the name out of the map."""
        key, leaf = self._leaf(name_of_map, name)
        if number is None:
            if leaf.pop(name, None) is None:
                return
        else:
            leaf[name] = number
        self._changed.add(key)

    def scan(self, name_of_map: str, begin: str, names: int) -> tuple[list[tuple[str, int]], str | None]:
        """Entries in the order of their rows.

        Args:
            name_of_map: which map. What was put is to be saved before.
            begin: "" at the first time, later the cursor that the call before has returned.
            names: end after the row with which there are so many, at most one row more.

        Returns:
            The entries; where to go on, None: there are no more.
        """
        entries: list[tuple[str, int]] = []
        todo = [""]
        while todo:
            look, rest = todo[:_LOOK], todo[_LOOK:]
            self._fetch([f"{name_of_map}/{prefix}" for prefix in look])
            later: list[str] = []
            for prefix in look:
                leaf = self._leaves[f"{name_of_map}/{prefix}"]
                if leaf is None:
                    later += [
                        prefix + digit
                        for digit in _DIGITS
                        if (prefix + digit).ljust(_HASH_DIGITS, "f") >= begin
                    ]
                elif later:
                    later.append(prefix)  # what comes before it is not read yet
                else:
                    entries += leaf.items()
                    if len(entries) >= names:
                        return entries, _after(prefix)
            todo = later + rest
        return entries, None

    def save(self) -> None:
        """Write the rows that were changed, split where they are too large."""
        gone: list[str] = []
        for key in sorted(self._changed):
            leaf = self._leaves[key]
            assert leaf is not None
            if leaf:
                self._write(key, leaf)
            else:
                gone.append(key)
        if gone:
            self._rows.delete_many(gone)
        self._changed.clear()

    def _write(self, key: str, leaf: Leaf) -> None:
        if len(leaf) <= 1 or (len(leaf) <= ENTRIES_MAX and sum(map(len, leaf)) <= CHARACTERS_MAX):
            self._rows.put(key, ReachPiece(split=False, names=list(leaf), numbers=list(leaf.values())))
            return
        depth = len(key) - key.rindex("/") - 1
        assert depth < _HASH_DIGITS, "more equal hashes than a row holds names"
        parts: dict[str, Leaf] = {digit: {} for digit in _DIGITS}
        for name, number in leaf.items():
            parts[self._place(name)[depth]][name] = number
        self._leaves[key] = None
        self._rows.put(key, ReachPiece(split=True, names=[], numbers=[]))
        for digit, part in parts.items():
            self._leaves[key + digit] = part
            if part:
                self._write(key + digit, part)

    def _leaf(self, name_of_map: str, name: str) -> tuple[str, Leaf]:
        key, place = f"{name_of_map}/", self._place(name)
        for digit in place:
            if key not in self._leaves:
                self._fetch([key])
            leaf = self._leaves[key]
            if leaf is not None:
                return key, leaf
            key += digit
        raise AssertionError("a row was split beyond the last digit")

    def _fetch(self, keys: Iterable[str]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._leaves]
        found = self._rows.get_many(missing) if missing else {}
        for key in missing:
            piece = found.get(key)
            if piece is None:
                self._leaves[key] = {}
            elif piece["split"]:
                self._leaves[key] = None
            else:
                self._leaves[key] = dict(zip(piece["names"], piece["numbers"], strict=True))

    def _place(self, name: str) -> str:
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = blake2b(name.encode(), digest_size=_HASH_DIGITS // 2).hexdigest()
        return place


def _after(prefix: str) -> str | None:
    """Where the rows begin that come after the one of this prefix."""
    behind = int(prefix or "0", 16) + 1
    return None if behind == 16 ** len(prefix) else f"{behind:0{len(prefix)}x}"
