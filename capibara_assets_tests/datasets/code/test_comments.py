"""Comments above queries: requests in noun phrases, and remarks on a query that an author noted."""

import pytest

from capibara_assets.datasets.code.comments import asks_for, asks_for_rows, is_task, without_history

LOANS = (
    "SELECT m.name, COUNT(l.id) AS loans FROM members m LEFT JOIN loans l ON l.member = m.id "
    "WHERE l.due < '2025-03-01' OR l.id IS NULL GROUP BY m.id ORDER BY loans DESC"
)


@pytest.mark.parametrize(
    "text",
    [
        "number of loans per member",
        "Loans of each member, members without any included, most first.",
        "Q: loans per member before March",
        "Question 4: members by their loans (those without count as 0)",
        "members whose loans were due before March",
        "share of members with loans",
        "who has loans that are due",
    ],
)
def test_a_noun_phrase_asks_for_rows(text: str) -> None:
    assert asks_for_rows(text, LOANS) and asks_for(text, LOANS, "sql")
    assert not asks_for_rows(text, "DELETE FROM loans"), "rows are asked for, and it shows none"
    assert not asks_for_rows(text, "SELECT pier, berth FROM boats"), "of something else"


@pytest.mark.parametrize(
    "text",
    [
        "a member without loans has no row in an inner join",
        "loans were counted twice: the members repeat",
        "NULL loans count as one, use COUNT(l.id)",
        "the loans table has no member column",
        "fixed: group by member, not loans",
        "that was wrong, members without loans went missing",
        "A: members have 3 loans at most",
        "demo of members and loans",
        "members, loans:",
        "counting loans by member drops members without any; use a left join",
        "= never holds for loans without member",
    ],
)
def test_a_remark_asks_for_nothing(text: str) -> None:
    assert not asks_for_rows(text, LOANS) and not asks_for(text, LOANS, "sql")


def test_a_question_about_the_query_is_none_for_its_rows() -> None:
    assert not asks_for("Empty, though two members have none: what does the subquery hold?", LOANS, "sql")
    assert asks_for("For each member: how many loans?", LOANS, "sql")
    assert asks_for("What would a window function over loans give each member?", LOANS, "sql")


def test_a_label_is_no_part_of_a_request() -> None:
    assert is_task("Q: which member has most loans?") and is_task("Task 2 - count the loans of each member")
    assert not is_task("limit: 3 loans") and not asks_for("number of loans per member", "count(loans)", "python")


@pytest.mark.parametrize(
    ("code", "language", "bare"),
    [
        ("if x > c:  # was >=: one that fills it boards\n    t = 1", "python", "if x > c:\n    t = 1"),
        ("# fixed: counts from 0\nn = 0", "python", "n = 0"),
        ("let n = 0; // previously 1\nf(n);", "javascript", "let n = 0;\nf(n);"),
        ("SELECT 1 -- instead of 2\nFROM a", "sql", "SELECT 1\nFROM a"),
        ("n = 0  # wasted seats", "python", None),
        ("s = '# was 1'", "python", None),
        ('s = """\n# was 1\n"""', "python", None),
        ("n = 0  # was it full? then 1", "python", "n = 0"),
    ],
)
def test_a_comment_on_what_stood_there_before_goes(code: str, language: str, bare: str | None) -> None:
    assert without_history(code, language) == (code if bare is None else bare)


@pytest.mark.parametrize(
    "text", ["apply works down the columns by default", "sort is stable", "gold uses integers", "Join keeps all rows"]
)
def test_what_a_sentence_says_of_its_subject_is_no_request(text: str) -> None:
    assert not is_task(text) and not asks_for(text, "SELECT integers, rows FROM gold", "sql")
    assert is_task("Apply the works discount") and is_task("Which lakes have a name?")
