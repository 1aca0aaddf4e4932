"""A small data set with known results, tweets and followers, for the demo and for tests.

The names and numbers come from the example ReachTopology of Apache Storm (storm-starter, Apache-2.0).
"""

from collections.abc import Mapping, Sequence
from typing import Final

TWEETED_BY: Final[Mapping[str, Sequence[str]]] = {
    "foo.com/blog/1": ("sally", "bob", "tim", "george", "nathan"),
    "engineering.twitter.com/blog/5": ("adam", "david", "sally", "nathan"),
    "tech.backtype.com/blog/123": ("tim", "mike", "john"),
}
"""URLs with the authors who tweet them."""

FOLLOWED_BY: Final[Mapping[str, Sequence[str]]] = {
    "adam": ("david", "carissa"),
    "bob": ("sally", "nathan", "jim", "mary", "david", "vivian"),
    "john": ("alice", "nathan", "jim", "mike", "bob"),
    "mike": ("john", "bob"),
    "nathan": ("sally", "bob", "adam", "harry", "chris", "vivian", "emily", "jordan"),
    "sally": ("bob", "tim", "alice", "adam", "jim", "chris", "jai"),
    "tim": ("alex",),
}
"""Authors with their followers; all others have none."""

REACHES: Final[Mapping[str, int]] = {
    "foo.com/blog/1": 16,
    "engineering.twitter.com/blog/5": 14,
    "tech.backtype.com/blog/123": 7,
    "notaurl.com": 0,
}
"""The results; the last URL is not tweeted."""
