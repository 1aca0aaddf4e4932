"""The first stage by itself."""

from contracts.records import Follow, Tweet, Tweeted
from tweet_reach.domain.authors import FACT_COST, AuthorRows, StageOutput, fold_authors
from tweet_reach.domain.pieces import CHARACTERS_MAX, ENTRIES_MAX, Piece
from tweet_reach.domain.rules import CHUNK_NAMES_MAX
from tweet_reach.testing import MemoryRows

COST_MAX = 5000


def tweet(identity: str, url: str | None, author: str = "ann") -> Tweet:
    return Tweet(id=identity, author=author, url=url, text="", at=0)


def follow(follower: str, *, yes: bool = True, at: int = 0, author: str = "ann") -> Follow:
    return Follow(id="", author=author, follower=follower, follows=yes, at=at)


def rows_in_memory() -> AuthorRows:
    return AuthorRows(MemoryRows[Tweeted](), MemoryRows[Piece]())


def names(output: StageOutput) -> int:
    return sum(len(fact["added"]) + len(fact["removed"]) for _, fact in output.facts)


def famous(rows: AuthorRows, followers: int) -> None:
    for n in range(0, followers, 10_000):
        fold_authors([], [follow(f"user-{k}") for k in range(n, n + 10_000)], [], rows)


def test_a_second_tweet_of_a_url_tells_only_that_there_is_one_more() -> None:
    rows = rows_in_memory()
    fold_authors([tweet("1", "foo.com")], [follow("bob")], [], rows)
    (output,) = fold_authors([tweet("2", "foo.com")], [], [], rows).facts
    assert output == ("foo.com", {"author": "ann", "tweets": 2, "added": [], "removed": []})


def test_what_was_there_before_is_not_reported_again() -> None:
    rows = rows_in_memory()
    fold_authors([tweet("1", "foo.com")], [follow("bob", at=5)], [], rows)
    again = fold_authors(
        [tweet("1", "foo.com")], [follow("bob", at=5), follow("bob", yes=False, at=4)], [], rows
    )
    assert again == StageOutput()


def test_what_is_taken_back_within_a_batch_is_not_reported() -> None:
    output = fold_authors([tweet("1", "foo.com"), tweet("1", None)], [], [], rows_in_memory())
    assert output == StageOutput()


def test_many_changes_of_an_author_are_one_fact_for_each_url() -> None:
    rows = rows_in_memory()
    fold_authors([tweet("1", "foo.com"), tweet("2", "bar.org")], [], [], rows)
    output = fold_authors([], [follow(f"user-{n}") for n in range(CHUNK_NAMES_MAX)], [], rows)
    assert sorted(url for url, _ in output.facts) == ["bar.org", "foo.com"]


def test_a_follower_who_left_while_a_deletion_was_being_reported_is_reported_after_the_url_is_tweeted_again() -> (
    None
):
    rows = rows_in_memory()
    famous(rows, 20_000)
    fold_authors([tweet("1", "foo.com")], [], [], rows)
    deleting = fold_authors([tweet("1", None)], [], [], rows, cost_max=2000)
    gone = {name for _, fact in deleting.facts for name in fact["removed"]}
    leaving = next(f"user-{n}" for n in range(20_000) if f"user-{n}" not in gone)
    fold_authors([], [follow(leaving, yes=False, at=1)], [], rows)
    output = fold_authors([tweet("2", "foo.com")], [], deleting.tasks, rows)
    assert leaving in {name for _, fact in output.facts for name in fact["removed"]}
    assert sum(len(fact["added"]) for _, fact in output.facts) >= 19_999


def test_an_author_with_very_many_followers_is_reported_in_bounded_batches_and_does_not_stall_others() -> (
    None
):
    rows = rows_in_memory()
    famous(rows, 50_000)
    others = [follow("me", author=f"author-{n}") for n in range(20)]
    fold_authors([tweet("1", "small.org", author=f"author-{n}") for n in range(20)], others, [], rows)
    output = fold_authors([tweet("1", "foo.com")], [], [], rows, cost_max=COST_MAX)
    sent_of_famous = names(output)
    for n in range(40):
        one = follow("you", author=f"author-{n % 20}", at=n)
        output = fold_authors([], [one], output.tasks, rows, cost_max=COST_MAX)
        assert len(output.facts) * FACT_COST + names(output) <= COST_MAX + ENTRIES_MAX + 100
        assert all(len(fact["added"]) <= CHUNK_NAMES_MAX for _, fact in output.facts)
        if n < 20:
            assert output.facts[0] == (
                "small.org",
                {"author": f"author-{n}", "tweets": 1, "added": ["you"], "removed": []},
            )
        sent_of_famous += sum(len(fact["added"]) for url, fact in output.facts if url == "foo.com")
        if not output.tasks:
            break
    assert (output.tasks, sent_of_famous) == ([], 50_000)
    pieces = rows.pieces.rows  # type: ignore[attr-defined] # rows in memory
    assert max(map(len, pieces.values())) <= ENTRIES_MAX
    assert max(sum(map(len, piece)) for piece in pieces.values()) <= CHARACTERS_MAX


def test_a_follower_of_an_author_with_very_many_urls_is_reported_in_bounded_batches() -> None:
    rows = rows_in_memory()
    fold_authors([tweet(str(n), f"foo.com/{n}") for n in range(5000)], [], [], rows)
    output = fold_authors([], [follow("bob")], [], rows, cost_max=COST_MAX)
    urls = [url for url, _ in output.facts]
    while output.tasks:
        assert len(output.facts) <= COST_MAX // FACT_COST + ENTRIES_MAX
        output = fold_authors([], [], output.tasks, rows, cost_max=COST_MAX)
        urls += [url for url, _ in output.facts]
    assert sorted(urls) == sorted(f"foo.com/{n}" for n in range(5000))


def test_tasks_that_a_batch_cannot_begin_are_kept_for_the_next() -> None:
    rows = rows_in_memory()
    authors = [f"author-{n}" for n in range(30)]
    output = fold_authors([tweet("1", "foo.com", author) for author in authors], [], [], rows, cost_max=100)
    assert len(output.facts) + len(output.tasks) == 30
    assert output.tasks
    rest = fold_authors([], [], output.tasks, rows)
    assert {fact["author"] for _, fact in [*output.facts, *rest.facts]} == set(authors)
