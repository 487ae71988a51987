"""SQL families that read one or two tables: filters, orders, dates, nulls, CASE, subqueries."""

from collections.abc import Sequence

from capibara_assets.domains import Domain
from workshop.experience.families import Cell, Family, Picks, block, bugs_of


def sql_task(
    name: str,
    tables: str,
    statement: str | tuple[str, ...],
    code: str,
    pick: Picks | None = None,
    bugs: Sequence[tuple[str, str, str]] = (),
) -> Family:
    """A family of one SQL cell; `tables` names the tables its task shows (letters p, q, e of `Database`)."""
    statements = (statement,) if isinstance(statement, str) else statement
    shown = "\nTables: " + ", ".join(f"<<schema_{table}>>" for table in tables) if tables else ""
    cell = Cell(tuple(f"{text}{shown}" for text in statements), "<<doc>>\n" + block(code))
    return Family(name, Domain.SQL, "sql", (cell,), pick or {}, bugs_of(bugs))


FAMILIES = (
    sql_task(
        "events_by_state",
        "e",
        (
            "List the id, <<day>> and <<amt>> of all <<e>> with <<status>> '<<state1>>', the latest first.",
            "Which <<e>> are '<<state1>>'? Show id, <<day>>, <<amt>>, newest <<day>> first.",
        ),
        """
        SELECT id, <<day>>, <<amt>>
        FROM <<e>>
        WHERE <<status>> = '<<state1>>'
        ORDER BY <<day>> DESC, id;
        """,
        bugs=[
            ("misspelled column", "SELECT id, <<day>>, <<amt>>", "SELECT id, <<day>>, <<amt>>s_"),
            ("double equal names", "'<<state1>>'", '"<<state1>>'),
            (
                "clause order",
                "WHERE <<status>> = '<<state1>>'\nORDER BY <<day>> DESC, id;",
                "ORDER BY <<day>> DESC, id\nWHERE <<status>> = '<<state1>>';",
            ),
        ],
    ),
    sql_task(
        "largest_events",
        "e",
        ("What are the <<n>> <<e>> with the largest <<amt>>?", "Show the top <<n>> <<e>> by <<amt>> (id and <<amt>>)."),
        """
        SELECT id, <<amt>>
        FROM <<e>>
        ORDER BY <<amt>> DESC, id
        LIMIT <<n>>;
        """,
        bugs=[
            (
                "other dialect: TOP",
                "SELECT id, <<amt>>\nFROM <<e>>\nORDER BY <<amt>> DESC, id\nLIMIT <<n>>;",
                "SELECT TOP <<n>> id, <<amt>>\nFROM <<e>>\nORDER BY <<amt>> DESC, id;",
            ),
            ("other dialect: FETCH FIRST", "LIMIT <<n>>;", "FETCH FIRST <<n>> ROWS ONLY;"),
        ],
    ),
    sql_task(
        "parents_of_category",
        "p",
        (
            "Which <<p>> of <<cat>> '<<cat1>>' have a <<num>> above <<high>>?",
            "Names of all '<<cat1>>' <<p>> whose <<num>> is larger than <<high>>, by name.",
        ),
        """
        SELECT name, <<num>>
        FROM <<p>>
        WHERE <<cat>> = '<<cat1>>' AND <<num>> > <<high>>
        ORDER BY name;
        """,
        bugs=[
            ("singular table", "FROM <<p>>", "FROM <<p1>>"),
            ("comma for AND", "'<<cat1>>' AND <<num>>", "'<<cat1>>', <<num>>"),
            ("unquoted text", "'<<cat1>>' AND", "<<cat1>> AND"),
        ],
    ),
    sql_task(
        "count_by_state",
        "e",
        ("How many <<e>> are there of each <<status>>?", "Count the <<e>> per <<status>>, most frequent first."),
        """
        SELECT <<status>>, COUNT(*) AS <<e>>_count
        FROM <<e>>
        GROUP BY <<status>>
        ORDER BY <<e>>_count DESC, <<status>>;
        """,
        bugs=[
            ("wrong alias", "ORDER BY <<e>>_count DESC", "ORDER BY count_<<e>> DESC"),
            ("keyword typo", "GROUP BY", "GROUPBY"),
            ("no table", "FROM <<e>>\n", ""),
        ],
    ),
    sql_task(
        "distinct_categories",
        "p",
        (
            "Which different values of <<cat>> do the <<p>> have, and what is the largest <<num>> of each?",
            "For each <<cat>> of <<p>>, give the highest and lowest <<num>>.",
        ),
        """
        SELECT <<cat>>, MIN(<<num>>) AS lowest, MAX(<<num>>) AS highest
        FROM <<p>>
        GROUP BY <<cat>>
        ORDER BY <<cat>>;
        """,
        bugs=[
            ("missing comma", "MIN(<<num>>) AS lowest, MAX", "MIN(<<num>>) AS lowest MAX"),
            ("unknown function", "MAX(<<num>>)", "LARGEST(<<num>>)"),
        ],
    ),
    sql_task(
        "events_between",
        "e",
        (
            "Which <<e>> fall between <<from_day>> and <<to_day>>?",
            "List id, <<day>> and <<status>> of <<e>> from <<from_day>> to <<to_day>>, oldest first.",
        ),
        """
        SELECT id, <<day>>, <<status>>
        FROM <<e>>
        WHERE <<day>> BETWEEN '<<from_day>>' AND '<<to_day>>'
        ORDER BY <<day>>, id;
        """,
        bugs=[
            ("between with comma", "BETWEEN '<<from_day>>' AND '<<to_day>>'", "BETWEEN ('<<from_day>>', '<<to_day>>')"),
            ("date literal", "BETWEEN '<<from_day>>' AND", "BETWEEN DATE '<<from_day>>' AND"),
        ],
    ),
    sql_task(
        "overall_totals",
        "e",
        (
            "What is the number of '<<state1>>' <<e>>, their total and their average <<amt>> (2 digits)?",
            "Summarise the '<<state1>>' <<e>>: count, sum and mean of <<amt>> with 2 digits.",
        ),
        """
        SELECT COUNT(*) AS number, SUM(<<amt>>) AS total, ROUND(AVG(<<amt>>), 2) AS average
        FROM <<e>>
        WHERE <<status>> = '<<state1>>';
        """,
        bugs=[
            ("wrong function name", "AVG(", "AVERAGE("),
            ("missing parenthesis", "ROUND(AVG(<<amt>>), 2)", "ROUND(AVG(<<amt>>, 2)"),
            ("cast of another dialect", "ROUND(AVG(<<amt>>), 2)", "AVG(<<amt>>)::numeric"),
        ],
    ),
    sql_task(
        "names_like",
        "p",
        (
            "Which <<p>> have a name that starts with <<letter>>?",
            "Find all <<p>> whose name begins with the letter <<letter>>.",
        ),
        """
        SELECT id, name
        FROM <<p>>
        WHERE name LIKE '<<letter>>%'
        ORDER BY id;
        """,
        bugs=[
            ("other dialect: ILIKE", "LIKE", "ILIKE"),
            ("unquoted pattern", "'<<letter>>%'", "<<letter>>%"),
            ("unknown function", "name LIKE '<<letter>>%'", "STARTS_WITH(name, '<<letter>>')"),
        ],
    ),
    sql_task(
        "missing_scores",
        "e",
        ("Which <<e>> have no <<score>>?", "List the <<e>> (id, <<day>>) where <<score>> is missing."),
        """
        SELECT id, <<day>>
        FROM <<e>>
        WHERE <<score>> IS NULL
        ORDER BY id;
        """,
        bugs=[("wrong null test", "IS NULL", "IS NONE"), ("null function", "<<score>> IS NULL", "ISNULL(<<score>>)")],
    ),
    sql_task(
        "buckets",
        "e",
        (
            "Sort the <<e>> into 'small' (<<amt>> below <<low>>), 'medium' and 'large' (<<high>> or more) and count each.",
            "How many <<e>> are small (under <<low>>), medium, or large (at least <<high>>) by <<amt>>?",
        ),
        """
        SELECT
          CASE
            WHEN <<amt>> < <<low>> THEN 'small'
            WHEN <<amt>> < <<high>> THEN 'medium'
            ELSE 'large'
          END AS size,
          COUNT(*) AS number
        FROM <<e>>
        GROUP BY size
        ORDER BY number DESC, size;
        """,
        bugs=[
            ("missing END", "  END AS size,", "  AS size,"),
            ("missing THEN", "< <<low>> THEN 'small'", "< <<low>> 'small'"),
            ("other dialect: IF", "ELSE 'large'", "ELSEIF 'large'"),
        ],
    ),
    sql_task(
        "default_for_null",
        "e",
        (
            "Show every '<<state1>>' row of <<e>> with its <<score>>, 0 where there is none.",
            "List id and <<score>> of the '<<state1>>' <<e>>; a missing <<score>> counts as 0.",
        ),
        """
        SELECT id, COALESCE(<<score>>, 0) AS <<score>>
        FROM <<e>>
        WHERE <<status>> = '<<state1>>'
        ORDER BY id;
        """,
        bugs=[
            ("other dialect: NVL", "COALESCE(", "NVL("),
            ("one argument", "COALESCE(<<score>>, 0)", "COALESCE(<<score>>)"),
            ("other dialect: ISNULL", "COALESCE(", "ISNULL("),
        ],
    ),
    sql_task(
        "label_text",
        "p",
        (
            "Give each of the <<p>> a label of the form name (<<cat>>), in alphabetical order.",
            "Build the text 'name (<<cat>>)' for all <<p>>.",
        ),
        """
        SELECT name || ' (' || <<cat>> || ')' AS label
        FROM <<p>>
        ORDER BY label;
        """,
        bugs=[
            ("plus for text", "name || ' (' || <<cat>> || ')'", "name + ' (' + <<cat>>_ + ')'"),
            ("unclosed quote", "|| ')' AS", "|| ') AS"),
        ],
    ),
    sql_task(
        "months",
        "e",
        (
            "How many <<e>> and how much <<amt>> are there per month?",
            "Report the number of <<e>> and the sum of <<amt>> for each month.",
        ),
        """
        SELECT strftime('%Y-%m', <<day>>) AS month, COUNT(*) AS number, SUM(<<amt>>) AS total
        FROM <<e>>
        GROUP BY month
        ORDER BY month;
        """,
        bugs=[
            ("other dialect: DATE_TRUNC", "strftime('%Y-%m', <<day>>)", "DATE_TRUNC('month', <<day>>)"),
            ("other dialect: EXTRACT", "strftime('%Y-%m', <<day>>)", "EXTRACT(MONTH FROM <<day>>)"),
            ("other dialect: TO_CHAR", "strftime('%Y-%m', <<day>>)", "TO_CHAR(<<day>>, 'YYYY-MM')"),
        ],
    ),
    sql_task(
        "weekdays",
        "e",
        (
            "On which weekdays do the <<e>> fall? Count them (0 is Sunday).",
            "Number of <<e>> per day of the week, Sunday as 0.",
        ),
        """
        SELECT CAST(strftime('%w', <<day>>) AS INTEGER) AS weekday, COUNT(*) AS number
        FROM <<e>>
        GROUP BY weekday
        ORDER BY weekday;
        """,
        bugs=[
            ("other dialect: DAYOFWEEK", "CAST(strftime('%w', <<day>>) AS INTEGER)", "DAYOFWEEK(<<day>>)"),
            ("cast without type", "AS INTEGER) AS", "INTEGER) AS"),
        ],
    ),
    sql_task(
        "recent_events",
        "e",
        (
            "Which <<e>> lie in the last <<days>> days before the newest one?",
            "Show the <<e>> of the <<days>> days up to the latest <<day>>.",
        ),
        """
        SELECT id, <<day>>, <<amt>>
        FROM <<e>>
        WHERE <<day>> > (SELECT DATE(MAX(<<day>>), '-<<days>> days') FROM <<e>>)
        ORDER BY <<day>> DESC, id;
        """,
        bugs=[
            (
                "other dialect: INTERVAL",
                "DATE(MAX(<<day>>), '-<<days>> days')",
                "MAX(<<day>>) - INTERVAL '<<days>> days'",
            ),
            (
                "aggregate in WHERE",
                "(SELECT DATE(MAX(<<day>>), '-<<days>> days') FROM <<e>>)",
                "DATE(MAX(<<day>>), '-<<days>> days')",
            ),
            ("other dialect: DATE_SUB", "DATE(MAX(<<day>>), '-<<days>> days')", "DATE_SUB(MAX(<<day>>), <<days>>)"),
        ],
    ),
    sql_task(
        "above_average",
        "e",
        (
            "In which '<<state1>>' <<e>> is the <<amt>> above the average of all <<e>>?",
            "Find the '<<state1>>' <<e>> above the overall mean of <<amt>>.",
        ),
        """
        SELECT id, <<amt>>
        FROM <<e>>
        WHERE <<status>> = '<<state1>>'
          AND <<amt>> > (SELECT AVG(<<amt>>) FROM <<e>>)
        ORDER BY <<amt>> DESC;
        """,
        bugs=[
            ("aggregate in WHERE", "(SELECT AVG(<<amt>>) FROM <<e>>)", "AVG(<<amt>>)"),
            ("unclosed subquery", "FROM <<e>>)\n", "FROM <<e>>\n"),
            ("subquery without table", "(SELECT AVG(<<amt>>) FROM <<e>>)", "(SELECT AVG(<<amt>>_) FROM <<e>>)"),
        ],
    ),
    sql_task(
        "second_largest",
        "p",
        (
            "What is the second largest <<num>> of the <<p>>, and whose is it?",
            "Name the one of the <<p>> with the second highest <<num>>.",
        ),
        """
        SELECT name, <<num>>
        FROM <<p>>
        ORDER BY <<num>> DESC
        LIMIT 1 OFFSET 1;
        """,
        bugs=[
            ("offset before limit", "LIMIT 1 OFFSET 1;", "OFFSET 1 LIMIT 1;"),
            ("function as order", "ORDER BY <<num>> DESC", "ORDER <<num>> DESC"),
        ],
    ),
    sql_task(
        "share_without_score",
        "e",
        (
            "What percentage of the <<e>> has no <<score>>, per <<status>>, rounded to 1 digit?",
            "Per <<status>>, give the share of <<e>> without <<score>> in percent (1 digit).",
        ),
        """
        SELECT <<status>>, ROUND(100.0 * SUM(<<score>> IS NULL) / COUNT(*), 1) AS percent_missing
        FROM <<e>>
        GROUP BY <<status>>
        ORDER BY <<status>>;
        """,
        bugs=[
            ("FILTER without aggregate", "SUM(<<score>> IS NULL)", "(<<score>> IS NULL) FILTER"),
            ("too many arguments", "SUM(<<score>> IS NULL)", "SUM(<<score>>, NULL)"),
        ],
    ),
    sql_task(
        "either_category",
        "p",
        (
            "List the <<p>> whose <<cat>> is '<<cat1>>' or '<<cat2>>', with the largest <<num>> first.",
            "Which <<p>> are '<<cat1>>' or '<<cat2>>'? Order by <<num>>, descending.",
        ),
        """
        SELECT name, <<cat>>, <<num>>
        FROM <<p>>
        WHERE <<cat>> IN ('<<cat1>>', '<<cat2>>')
        ORDER BY <<num>> DESC;
        """,
        bugs=[
            ("list without parentheses", "IN ('<<cat1>>', '<<cat2>>')", "IN '<<cat1>>', '<<cat2>>'"),
            ("array of another dialect", "IN ('<<cat1>>', '<<cat2>>')", "= ANY(ARRAY['<<cat1>>', '<<cat2>>'])"),
        ],
    ),
    sql_task(
        "first_and_last",
        "e",
        (
            "When were the first and the last of the '<<state1>>' <<e>>, and how many days lie between them?",
            "For the '<<state1>>' <<e>>: first <<day>>, last <<day>>, days between.",
        ),
        """
        SELECT MIN(<<day>>) AS first, MAX(<<day>>) AS last,
               CAST(julianday(MAX(<<day>>)) - julianday(MIN(<<day>>)) AS INTEGER) AS days
        FROM <<e>>
        WHERE <<status>> = '<<state1>>';
        """,
        bugs=[
            (
                "other dialect: DATEDIFF",
                "CAST(julianday(MAX(<<day>>)) - julianday(MIN(<<day>>)) AS INTEGER)",
                "DATEDIFF(MAX(<<day>>), MIN(<<day>>))",
            ),
            (
                "alias in the same list",
                "julianday(MAX(<<day>>)) - julianday(MIN(<<day>>))",
                "julianday(last) - julianday(first)",
            ),
        ],
    ),
)
