"""Counting what a computation has done, for whoever shows it."""

from concurrent.futures import ThreadPoolExecutor

from capibara_assets.processes.progress import Count, reporting, tracked


def test_items_are_the_same_and_counted() -> None:
    told: list[tuple[str, int, int | None]] = []
    assert list(tracked("ab", "letters")) == ["a", "b"], "without a reporter, too"
    with reporting(lambda *count: told.append(count)):
        assert list(tracked(iter("ab"), "letters", 2)) == ["a", "b"]
        assert list(tracked((letter for letter in "a"), "unknown")) == ["a"]
        assert list(tracked([], "none")) == []
    list(tracked("ab", "afterwards"))
    assert told == [
        ("letters", 0, 2),
        ("letters", 1, 2),
        ("letters", 2, 2),
        ("unknown", 0, None),
        ("unknown", 1, None),
        ("none", 0, 0),
    ]


def test_threads_count_together() -> None:
    told: list[int] = []
    with reporting(lambda _, done, __: told.append(done)), ThreadPoolExecutor(8) as pool:
        count = Count("pieces", 200)
        list(pool.map(lambda _: count.one(), range(200)))
    assert told == list(range(1, 201))
