"""SQL families with windows, common table expressions, recursion and writes."""

from workshop.experience.sql.reading import sql_task

FAMILIES = (
    sql_task(
        "rank_in_parent",
        "pe",
        (
            "Rank the <<e>> of each <<p1>> by <<amt>>, and show the top two of each.",
            "For every <<p1>>, give its two <<e>> with the largest <<amt>> and their rank.",
        ),
        """
        WITH ranked AS (
          SELECT <<a>>.name, <<c>>.<<amt>>,
                 ROW_NUMBER() OVER (PARTITION BY <<a>>.id ORDER BY <<c>>.<<amt>> DESC) AS place
          FROM <<p>> AS <<a>>
          JOIN <<e>> AS <<c>> ON <<c>>.<<pk>> = <<a>>.id
        )
        SELECT name, <<amt>>, place
        FROM ranked
        WHERE place <= 2
        ORDER BY name, place;
        """,
        bugs=[
            (
                "column not in the CTE",
                "SELECT name, <<amt>>, place\nFROM ranked",
                "SELECT name, <<amt>>, position\nFROM ranked",
            ),
            ("missing OVER", "ROW_NUMBER() OVER (PARTITION", "ROW_NUMBER() (PARTITION"),
            ("CTE name", "FROM ranked", "FROM ranking"),
        ],
    ),
    sql_task(
        "running_total",
        "e",
        (
            "Show the running total of <<amt>> of the '<<state1>>' <<e>> over time.",
            "Accumulate the <<amt>> of '<<state1>>' <<e>> by <<day>>.",
        ),
        """
        SELECT <<day>>, <<amt>>,
               SUM(<<amt>>) OVER (ORDER BY <<day>>, id) AS running_total
        FROM <<e>>
        WHERE <<status>> = '<<state1>>'
        ORDER BY <<day>>, id;
        """,
        bugs=[
            ("window without parentheses", "OVER (ORDER BY <<day>>, id)", "OVER ORDER BY <<day>>, id"),
            ("window in WHERE", "WHERE <<status>> = '<<state1>>'", "WHERE SUM(<<amt>>) OVER (ORDER BY <<day>>) > 0"),
        ],
    ),
    sql_task(
        "difference_to_previous",
        "e",
        (
            "By how much does the <<amt>> of each '<<state1>>' <<e1>> differ from the one before?",
            "For the '<<state1>>' <<e>> in order of <<day>>, show the change of <<amt>> since the previous one.",
        ),
        """
        SELECT <<day>>, <<amt>>,
               <<amt>> - LAG(<<amt>>) OVER (ORDER BY <<day>>, id) AS change
        FROM <<e>>
        WHERE <<status>> = '<<state1>>'
        ORDER BY <<day>>, id;
        """,
        bugs=[
            ("LAG without window", "LAG(<<amt>>) OVER (ORDER BY <<day>>, id)", "LAG(<<amt>>)"),
            ("unknown function", "LAG(<<amt>>)", "PREVIOUS(<<amt>>)"),
        ],
    ),
    sql_task(
        "best_month",
        "e",
        (
            "In which month was the total <<amt>> of <<e>> the largest?",
            "Find the month with the highest sum of <<amt>>.",
        ),
        """
        WITH monthly AS (
          SELECT strftime('%Y-%m', <<day>>) AS month, SUM(<<amt>>) AS total
          FROM <<e>>
          GROUP BY month
        )
        SELECT month, total
        FROM monthly
        WHERE total = (SELECT MAX(total) FROM monthly);
        """,
        bugs=[
            ("missing WITH", "WITH monthly AS (", "monthly AS ("),
            ("aggregate in WHERE", "(SELECT MAX(total) FROM monthly)", "MAX(total)"),
            ("unclosed CTE", "  GROUP BY month\n)", "  GROUP BY month\n"),
        ],
    ),
    sql_task(
        "share_of_total",
        "pe",
        (
            "What is the sum of <<amt>> of each <<p1>>, and its share of the total in percent (1 digit)?",
            "Per <<p1>>: sum of <<amt>> and its percentage of the grand total, rounded to 1 digit.",
        ),
        """
        WITH totals AS (
          SELECT <<pk>>, SUM(<<amt>>) AS total
          FROM <<e>>
          GROUP BY <<pk>>
        )
        SELECT <<a>>.name, t.total, ROUND(100.0 * t.total / (SELECT SUM(total) FROM totals), 1) AS percent
        FROM totals AS t
        JOIN <<p>> AS <<a>> ON <<a>>.id = t.<<pk>>
        ORDER BY percent DESC;
        """,
        bugs=[
            ("column not in the CTE", "SELECT <<pk>>, SUM(<<amt>>) AS total", "SELECT SUM(<<amt>>) AS total"),
            ("percent sign", "ROUND(100.0 * t.total", "ROUND(100% * t.total"),
        ],
    ),
    sql_task(
        "top_of_category",
        "p",
        (
            "Who has the largest <<num>> in each <<cat>>?",
            "For each <<cat>>, name the one of the <<p>> with the highest <<num>>.",
        ),
        """
        SELECT <<cat>>, name, <<num>>
        FROM (
          SELECT *, RANK() OVER (PARTITION BY <<cat>> ORDER BY <<num>> DESC) AS place
          FROM <<p>>
        ) AS ranked
        WHERE place = 1
        ORDER BY <<cat>>;
        """,
        bugs=[
            ("window in WHERE", "WHERE place = 1", "WHERE RANK() OVER (ORDER BY <<num>>) = 1"),
            ("other dialect: QUALIFY", "WHERE place = 1", "QUALIFY place = 1"),
            ("PARTITION typo", "PARTITION BY <<cat>>", "PARTITIONED BY <<cat>>"),
        ],
    ),
    sql_task(
        "quarters_by_tile",
        "p",
        (
            "Divide the <<p>> into <<tiles>> groups of equal size by <<num>>.",
            "Assign every one of the <<p>> to one of <<tiles>> tiles, by ascending <<num>>.",
        ),
        """
        SELECT name, <<num>>, NTILE(<<tiles>>) OVER (ORDER BY <<num>>) AS tile
        FROM <<p>>
        ORDER BY <<num>>;
        """,
        pick={"tiles": ["2", "3"]},
        bugs=[
            ("no argument", "NTILE(<<tiles>>)", "NTILE()"),
            ("order clause", "OVER (ORDER BY <<num>>)", "OVER (SORT BY <<num>>)"),
        ],
    ),
    sql_task(
        "calendar",
        "e",
        (
            "For each of the <<n>> days from <<from_day>>, how many <<e>> were there (0 included)?",
            "Build a calendar of <<n>> days starting <<from_day>> with the number of <<e>> per day.",
        ),
        """
        WITH RECURSIVE calendar(day, number) AS (
          SELECT '<<from_day>>', 1
          UNION ALL
          SELECT DATE(day, '+1 day'), number + 1 FROM calendar WHERE number < <<n>>
        )
        SELECT calendar.day, COUNT(<<e>>.id) AS <<e>>
        FROM calendar
        LEFT JOIN <<e>> ON <<e>>.<<day>> = calendar.day
        GROUP BY calendar.day
        ORDER BY calendar.day;
        """,
        bugs=[
            ("column counts differ", "SELECT '<<from_day>>', 1", "SELECT '<<from_day>>'"),
            (
                "other dialect: generate_series",
                "FROM calendar\nLEFT",
                "FROM generate_series(1, <<n>>) AS calendar\nLEFT",
            ),
        ],
    ),
    sql_task(
        "multiplication",
        "",
        (
            "Without any table, produce the numbers 1 to <<n>> with their squares and cubes.",
            "Write a recursive query for 1 to <<n>> and the square and cube of each.",
        ),
        """
        WITH RECURSIVE numbers(number) AS (
          SELECT 1
          UNION ALL
          SELECT number + 1 FROM numbers WHERE number < <<n>>
        )
        SELECT number, number * number AS square, number * number * number AS cube
        FROM numbers;
        """,
        pick={"n": ["4", "5", "6", "7", "8", "9", "10", "12"]},
        bugs=[
            ("missing table", "FROM numbers;", "FROM number;"),
            ("power operator", "number * number AS square", "number ^ 2 AS square"),
        ],
    ),
    sql_task(
        "raise_amounts",
        "e",
        (
            "Raise the <<amt>> of all '<<state1>>' <<e>> by <<percent>> percent, to 2 digits; then show their number and new total.",
            "Increase <<amt>> by <<percent>>% where <<status>> is '<<state1>>', rounded to 2 digits; report how many and the sum.",
        ),
        """
        UPDATE <<e>>
        SET <<amt>> = ROUND(<<amt>> * (1 + <<percent>> / 100.0), 2)
        WHERE <<status>> = '<<state1>>';

        SELECT COUNT(*) AS changed, ROUND(SUM(<<amt>>), 2) AS total
        FROM <<e>>
        WHERE <<status>> = '<<state1>>';
        """,
        bugs=[
            ("missing SET", "SET <<amt>> = ROUND", "<<amt>> = ROUND"),
            ("UPDATE FROM", "UPDATE <<e>>\n", "UPDATE FROM <<e>>\n"),
            ("UPDATE TABLE", "UPDATE <<e>>\n", "UPDATE TABLE <<e>>\n"),
        ],
    ),
    sql_task(
        "insert_parent",
        "p",
        (
            "Add a new <<p1>> named '<<new>>' with <<cat>> '<<cat1>>' and <<num>> <<high>>, then count the <<p>> per <<cat>>.",
            "Insert '<<new>>' ('<<cat1>>', <<high>>) into <<p>> and show how many <<p>> each <<cat>> has.",
        ),
        """
        INSERT INTO <<p>> (name, <<cat>>, <<num>>)
        VALUES ('<<new>>', '<<cat1>>', <<high>>);

        SELECT <<cat>>, COUNT(*) AS number
        FROM <<p>>
        GROUP BY <<cat>>
        ORDER BY <<cat>>;
        """,
        pick={"new": ["Yara", "Zenon", "Ximena", "Walther", "Ulrike", "Viggo"]},
        bugs=[
            ("too few values", "('<<new>>', '<<cat1>>', <<high>>)", "('<<new>>', '<<cat1>>')"),
            ("NOT NULL constraint", "VALUES ('<<new>>', ", "VALUES (NULL, "),
            (
                "primary key taken",
                "INSERT INTO <<p>> (name, <<cat>>, <<num>>)\nVALUES ('<<new>>',",
                "INSERT INTO <<p>> (id, name, <<cat>>, <<num>>)\nVALUES (1, '<<new>>',",
            ),
        ],
    ),
    sql_task(
        "delete_old",
        "e",
        (
            "Delete the '<<state1>>' <<e>> before <<to_day>> and tell how many <<e>> are left per <<status>>.",
            "Remove '<<state1>>' <<e>> older than <<to_day>>; then count the rest by <<status>>.",
        ),
        """
        DELETE FROM <<e>>
        WHERE <<status>> = '<<state1>>' AND <<day>> < '<<to_day>>';

        SELECT <<status>>, COUNT(*) AS remaining
        FROM <<e>>
        GROUP BY <<status>>
        ORDER BY <<status>>;
        """,
        bugs=[
            ("DELETE with star", "DELETE FROM <<e>>", "DELETE * FROM <<e>>"),
            ("missing quotes", "<<day>> < '<<to_day>>'", "<<day>> < <<to_day>>T"),
        ],
    ),
    sql_task(
        "delete_parent",
        "pe",
        (
            "Delete the <<p1>> with id 1 together with its <<e>>, then count both tables.",
            "Remove <<p1>> 1 and all <<e>> that refer to it; report how many rows are left.",
        ),
        """
        DELETE FROM <<e>> WHERE <<pk>> = 1;
        DELETE FROM <<p>> WHERE id = 1;

        SELECT (SELECT COUNT(*) FROM <<p>>) AS <<p>>, (SELECT COUNT(*) FROM <<e>>) AS <<e>>;
        """,
        bugs=[
            (
                "foreign key broken",
                "DELETE FROM <<e>> WHERE <<pk>> = 1;\nDELETE FROM <<p>> WHERE id = 1;",
                "DELETE FROM <<p>> WHERE id IN (SELECT <<pk>> FROM <<e>>);",
            ),
            (
                "two tables at once",
                "DELETE FROM <<e>> WHERE <<pk>> = 1;\nDELETE FROM <<p>> WHERE id = 1;",
                "DELETE FROM <<p>>, <<e>> WHERE <<p>>.id = 1 AND <<pk>> = 1;",
            ),
        ],
    ),
    sql_task(
        "view",
        "pe",
        (
            "Create a view `<<e>>_with_names` that adds the <<p1>>'s name to each of the <<e>>, and show its first <<n>> rows.",
            "Define the view <<e>>_with_names (day, <<p1>>, <<amt>>) and select <<n>> rows by day.",
        ),
        """
        DROP VIEW IF EXISTS <<e>>_with_names;
        CREATE VIEW <<e>>_with_names AS
        SELECT <<c>>.<<day>> AS day, <<a>>.name AS <<p1>>, <<c>>.<<amt>>
        FROM <<e>> AS <<c>>
        JOIN <<p>> AS <<a>> ON <<a>>.id = <<c>>.<<pk>>;

        SELECT * FROM <<e>>_with_names ORDER BY day, <<p1>> LIMIT <<n>>;
        """,
        bugs=[
            ("missing AS", "_with_names AS\n", "_with_names\n"),
            ("renamed column", "ORDER BY day, <<p1>>", "ORDER BY <<day>>, <<p1>>"),
            ("wrong view name", "FROM <<e>>_with_names ORDER", "FROM <<e>>_names ORDER"),
        ],
    ),
    sql_task(
        "summary_table",
        "e",
        (
            "Store the number and total <<amt>> of <<e>> per <<status>> in a new table `<<e>>_summary` and show it.",
            "Create a table <<e>>_summary with one row per <<status>> (count, total <<amt>>) out of <<e>>; then list it.",
        ),
        """
        DROP TABLE IF EXISTS <<e>>_summary;
        CREATE TABLE <<e>>_summary AS
        SELECT <<status>>, COUNT(*) AS number, SUM(<<amt>>) AS total
        FROM <<e>>
        GROUP BY <<status>>;

        SELECT * FROM <<e>>_summary ORDER BY total DESC;
        """,
        bugs=[
            (
                "other dialect: SELECT INTO",
                "CREATE TABLE <<e>>_summary AS\nSELECT <<status>>, COUNT(*) AS number, SUM(<<amt>>) AS total\nFROM",
                "SELECT <<status>>, COUNT(*) AS number, SUM(<<amt>>) AS total\nINTO <<e>>_summary\nFROM",
            ),
            ("table exists not", "FROM <<e>>_summary ORDER", "FROM <<e>>_summaries ORDER"),
        ],
    ),
    sql_task(
        "upsert",
        "p",
        (
            "Keep a table `<<stock>>`(<<p1>>, number): insert or add to the count of '<<p_name>>' three times.",
            "Count with an upsert: table `<<stock>>` with primary key <<p1>>; add 1, 1 and <<n>> for '<<p_name>>'.",
        ),
        """
        DROP TABLE IF EXISTS <<stock>>;
        CREATE TABLE <<stock>> (<<p1>> TEXT PRIMARY KEY, number INTEGER NOT NULL);

        INSERT INTO <<stock>> VALUES ('<<p_name>>', 1);
        INSERT INTO <<stock>> VALUES ('<<p_name>>', 1), ('<<p_name>>', <<n>>)
        ON CONFLICT (<<p1>>) DO UPDATE SET number = number + excluded.number;

        SELECT <<p1>>, number FROM <<stock>>;
        """,
        pick={"stock": ["tally", "counter", "stock", "hits", "usage", "requests"]},
        bugs=[
            ("primary key taken", "\nON CONFLICT (<<p1>>) DO UPDATE SET number = number + excluded.number;", ";"),
            ("other dialect: ON DUPLICATE KEY", "ON CONFLICT (<<p1>>) DO UPDATE SET", "ON DUPLICATE KEY UPDATE"),
            ("conflict target", "ON CONFLICT (<<p1>>)", "ON CONFLICT (number)"),
        ],
    ),
    sql_task(
        "constraints",
        "",
        (
            "Create a table `<<t>>` with a unique name and a positive `<<v>>`; add three rows and show them by `<<v>>`.",
            "Define `<<t>>`(id, name unique, <<v>> greater than 0), insert three rows and list them.",
        ),
        """
        DROP TABLE IF EXISTS <<t>>;
        CREATE TABLE <<t>> (
          id INTEGER PRIMARY KEY,
          name TEXT NOT NULL UNIQUE,
          <<v>> INTEGER CHECK (<<v>> > 0)
        );

        INSERT INTO <<t>> (name, <<v>>) VALUES ('<<x>>', <<low>>), ('<<y>>', <<n>>), ('<<z>>', <<high>>);

        SELECT id, name, <<v>> FROM <<t>> ORDER BY <<v>>;
        """,
        pick={
            "t|v|x|y|z": [
                ("tools", "weight", "saw", "file", "clamp"),
                ("spices", "grams", "anise", "cumin", "sumac"),
                ("lamps", "watts", "desk", "floor", "wall"),
                ("ropes", "meters", "hemp", "nylon", "silk"),
                ("kites", "area", "delta", "sled", "box"),
                ("jars", "volume", "jam", "honey", "pickle"),
                ("paints", "liters", "ochre", "cobalt", "umber"),
                ("drums", "width", "snare", "bass", "tom"),
            ]
        },
        bugs=[
            ("check fails", "('<<y>>', <<n>>)", "('<<y>>', -<<n>>)"),
            ("unique fails", "('<<z>>', <<high>>)", "('<<x>>', <<high>>)"),
            ("type before name", "name TEXT NOT NULL UNIQUE", "TEXT name NOT NULL UNIQUE,,"),
        ],
    ),
    sql_task(
        "add_column",
        "p",
        (
            "Add a column `<<col>>` to <<p>>, set it to <<expr_words>>, and show name and <<col>>.",
            "Extend <<p>> by `<<col>>` (<<expr_words>>) and list it by name.",
        ),
        """
        ALTER TABLE <<p>> ADD COLUMN <<col>> INTEGER DEFAULT 0;
        UPDATE <<p>> SET <<col>> = <<expr>>;
        SELECT name, <<col>> FROM <<p>> ORDER BY name;
        """,
        pick={
            "col|expr_words|expr": [
                ("double_value", "twice the <<num>>", "2 * <<num>>"),
                ("name_length", "the length of the name", "LENGTH(name)"),
                ("is_first", "1 for <<cat>> '<<cat1>>', else 0", "<<cat>> = '<<cat1>>'"),
                ("half", "half the <<num>>", "<<num>> / 2"),
                ("capped", "the <<num>>, at most <<high>>", "MIN(<<num>>, <<high>>)"),
                ("rounded", "the <<num>> in tens", "<<num>> / 10 * 10"),
            ]
        },
        bugs=[
            ("column not added", "ALTER TABLE <<p>> ADD COLUMN <<col>> INTEGER DEFAULT 0;\n", ""),
            (
                "wrong syntax",
                "ALTER TABLE <<p>> ADD COLUMN <<col>> INTEGER DEFAULT 0;",
                "ALTER <<p>> ADD <<col>> INTEGER;",
            ),
        ],
    ),
)
