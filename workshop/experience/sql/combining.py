"""SQL families that combine tables: joins, grouping over joins, sets, anti-joins."""

from workshop.experience.sql.reading import sql_task

FAMILIES = (
    sql_task(
        "total_per_parent",
        "pe",
        (
            "What is the total <<amt>> of the <<e>> of each <<p1>>, largest first?",
            "For every <<p1>>, add up the <<amt>> of its <<e>> and sort by the total.",
        ),
        """
        SELECT <<a>>.name, SUM(<<c>>.<<amt>>) AS total
        FROM <<p>> AS <<a>>
        JOIN <<e>> AS <<c>> ON <<c>>.<<pk>> = <<a>>.id
        GROUP BY <<a>>.id
        ORDER BY total DESC;
        """,
        bugs=[
            ("wrong key", "<<c>>.<<pk>> = <<a>>.id", "<<c>>.<<pk>> = <<a>>.<<pk>>"),
            ("alias not declared", "JOIN <<e>> AS <<c>>", "JOIN <<e>>"),
            ("missing ON", " ON <<c>>.<<pk>> = <<a>>.id", " <<c>>.<<pk>> = <<a>>.id"),
        ],
    ),
    sql_task(
        "parents_without_events",
        "pe",
        ("Which <<p>> have no <<e>> at all?", "Find the <<p>> that do not occur in <<e>>."),
        """
        SELECT <<a>>.name
        FROM <<p>> AS <<a>>
        LEFT JOIN <<e>> AS <<c>> ON <<c>>.<<pk>> = <<a>>.id
        WHERE <<c>>.id IS NULL;
        """,
        bugs=[
            ("ambiguous column", "WHERE <<c>>.id IS NULL", "WHERE id IS NULL"),
            ("keyword order", "LEFT JOIN", "JOIN LEFT"),
        ],
    ),
    sql_task(
        "others_not_seen",
        "qe",
        ("Which <<q>> have no '<<state1>>' row in <<e>>?", "Name the <<q>> for whom no <<e1>> is '<<state1>>'."),
        """
        SELECT <<b>>.name
        FROM <<q>> AS <<b>>
        WHERE NOT EXISTS (
          SELECT 1
          FROM <<e>> AS <<c>>
          WHERE <<c>>.<<qk>> = <<b>>.id AND <<c>>.<<status>> = '<<state1>>'
        )
        ORDER BY <<b>>.name;
        """,
        bugs=[
            ("wrong alias", "<<c>>.<<qk>> = <<b>>.id", "<<c>>.<<qk>> = x.id"),
            ("unclosed subquery", "'<<state1>>'\n)\n", "'<<state1>>'\n"),
            ("NOT misplaced", "WHERE NOT EXISTS (", "WHERE EXISTS NOT ("),
        ],
    ),
    sql_task(
        "count_with_zero",
        "qe",
        (
            "How many <<e>> does each <<q1>> have, including those with none?",
            "Count the <<e>> per <<q1>>; show 0 where there are none.",
        ),
        """
        SELECT <<b>>.name, COUNT(<<c>>.id) AS number
        FROM <<q>> AS <<b>>
        LEFT JOIN <<e>> AS <<c>> ON <<c>>.<<qk>> = <<b>>.id
        GROUP BY <<b>>.id
        ORDER BY number DESC, <<b>>.name;
        """,
        bugs=[
            ("ambiguous column", "GROUP BY <<b>>.id", "GROUP BY id"),
            ("wrong alias", "SELECT <<b>>.name, COUNT(<<c>>.id)", "SELECT <<q>>.name, COUNT(<<c>>.id)"),
        ],
    ),
    sql_task(
        "average_per_category",
        "pe",
        (
            "What is the average <<amt>> of <<e>> per <<cat>> of the <<p1>>, to 2 digits, the highest first?",
            "Compare the <<cat>> groups of <<p>> by the mean <<amt>> of their <<e>>, rounded to 2 digits.",
        ),
        """
        SELECT <<a>>.<<cat>>, ROUND(AVG(<<c>>.<<amt>>), 2) AS average
        FROM <<e>> AS <<c>>
        JOIN <<p>> AS <<a>> ON <<a>>.id = <<c>>.<<pk>>
        GROUP BY <<a>>.<<cat>>
        ORDER BY average DESC;
        """,
        bugs=[
            ("column of the wrong table", "ROUND(AVG(<<c>>.<<amt>>), 2)", "ROUND(AVG(<<a>>.<<amt>>), 2)"),
            ("USING a column that is missing", "ON <<a>>.id = <<c>>.<<pk>>", "USING (<<pk>>)"),
            ("double dot", "GROUP BY <<a>>.<<cat>>", "GROUP BY <<a>>..<<cat>>"),
        ],
    ),
    sql_task(
        "busy_parents",
        "pe",
        (
            "Which <<p>> have at least <<many>> <<e>>?",
            "Name the <<p>> with <<many>> or more <<e>> and give the number.",
        ),
        """
        SELECT <<a>>.name, COUNT(*) AS number
        FROM <<p>> AS <<a>>
        JOIN <<e>> AS <<c>> ON <<c>>.<<pk>> = <<a>>.id
        GROUP BY <<a>>.id
        HAVING COUNT(*) >= <<many>>
        ORDER BY number DESC, <<a>>.name;
        """,
        bugs=[
            (
                "aggregate in WHERE",
                "GROUP BY <<a>>.id\nHAVING COUNT(*) >= <<many>>",
                "WHERE COUNT(*) >= <<many>>\nGROUP BY <<a>>.id",
            ),
            (
                "HAVING before GROUP BY",
                "GROUP BY <<a>>.id\nHAVING COUNT(*) >= <<many>>",
                "HAVING COUNT(*) >= <<many>>\nGROUP BY <<a>>.id",
            ),
        ],
    ),
    sql_task(
        "big_spenders",
        "qe",
        (
            "Which <<q>> reach a total <<amt>> above <<high>>?",
            "List the <<q>> whose <<e>> add up to more than <<high>> in <<amt>>.",
        ),
        """
        SELECT <<b>>.name, <<b>>.<<place>>, SUM(<<c>>.<<amt>>) AS total
        FROM <<q>> AS <<b>>
        INNER JOIN <<e>> AS <<c>> ON <<c>>.<<qk>> = <<b>>.id
        GROUP BY <<b>>.id, <<b>>.name, <<b>>.<<place>>
        HAVING total > <<high>>
        ORDER BY total DESC;
        """,
        bugs=[
            ("trailing comma", "AS total\nFROM", "AS total,\nFROM"),
            ("HAVING typo", "HAVING", "HAVEING"),
            ("unknown column", "<<b>>.name, <<b>>.<<place>>, SUM", "<<b>>.name, <<b>>.<<cat>>_x, SUM"),
        ],
    ),
    sql_task(
        "best_parent_in_state",
        "pe",
        (
            "Which <<p1>> has the most '<<state1>>' <<e>>?",
            "Find the <<p1>> with the largest number of '<<state1>>' <<e>>.",
        ),
        """
        SELECT <<a>>.name, COUNT(*) AS number
        FROM <<p>> AS <<a>>
        JOIN <<e>> AS <<c>> ON <<c>>.<<pk>> = <<a>>.id
        WHERE <<c>>.<<status>> = '<<state1>>'
        GROUP BY <<a>>.id
        ORDER BY number DESC, <<a>>.name
        LIMIT 1;
        """,
        bugs=[
            (
                "WHERE after GROUP BY",
                "WHERE <<c>>.<<status>> = '<<state1>>'\nGROUP BY <<a>>.id",
                "GROUP BY <<a>>.id\nWHERE <<c>>.<<status>> = '<<state1>>'",
            ),
            (
                "aggregate misused",
                "GROUP BY <<a>>.id\nORDER BY number DESC, <<a>>.name\nLIMIT 1",
                "AND COUNT(*) = MAX(COUNT(*))\nGROUP BY <<a>>.id",
            ),
        ],
    ),
    sql_task(
        "in_subquery",
        "pe",
        (
            "Which <<p>> had a '<<state1>>' <<e1>> in <<month1>>?",
            "Names of the <<p>> with '<<state1>>' <<e>> in the month <<month1>>.",
        ),
        """
        SELECT name
        FROM <<p>>
        WHERE id IN (
          SELECT <<pk>>
          FROM <<e>>
          WHERE <<status>> = '<<state1>>' AND <<day>> LIKE '<<month1>>-%'
        )
        ORDER BY name;
        """,
        bugs=[
            ("two columns in IN", "SELECT <<pk>>\n", "SELECT id, <<pk>>\n"),
            ("other dialect: YEAR", "<<day>> LIKE '<<month1>>-%'", "YEAR(<<day>>) = 2026"),
        ],
    ),
    sql_task(
        "three_way_listing",
        "pqe",
        (
            "Show <<day>>, <<p1>> and <<q1>> of the '<<state1>>' <<e>> by date.",
            "List the '<<state1>>' <<e>> with the names of <<p1>> and <<q1>>, oldest first.",
        ),
        """
        SELECT <<c>>.<<day>>, <<a>>.name AS <<p1>>, <<b>>.name AS <<q1>>
        FROM <<e>> AS <<c>>
        JOIN <<p>> AS <<a>> ON <<a>>.id = <<c>>.<<pk>>
        JOIN <<q>> AS <<b>> ON <<b>>.id = <<c>>.<<qk>>
        WHERE <<c>>.<<status>> = '<<state1>>'
        ORDER BY <<c>>.<<day>>, <<c>>.id;
        """,
        bugs=[
            ("ambiguous column", "<<a>>.name AS <<p1>>", "name AS <<p1>>"),
            ("join missing", "JOIN <<q>> AS <<b>> ON <<b>>.id = <<c>>.<<qk>>\n", ""),
            ("key of the other table", "<<b>>.id = <<c>>.<<qk>>", "<<b>>.<<qk>> = <<c>>.id"),
        ],
    ),
    sql_task(
        "who_met_whom",
        "pqe",
        (
            "Which <<q>> have <<e>> with the <<p1>> <<p_name>>?",
            "Name the <<q>> (and their <<place>>) that appear in <<e>> of <<p_name>>.",
        ),
        """
        SELECT DISTINCT <<b>>.name, <<b>>.<<place>>
        FROM <<q>> AS <<b>>
        JOIN <<e>> AS <<c>> ON <<c>>.<<qk>> = <<b>>.id
        JOIN <<p>> AS <<a>> ON <<a>>.id = <<c>>.<<pk>>
        WHERE <<a>>.name = '<<p_name>>'
        ORDER BY <<b>>.name;
        """,
        bugs=[
            (
                "DISTINCT in the middle",
                "SELECT DISTINCT <<b>>.name, <<b>>.<<place>>",
                "SELECT <<b>>.name, DISTINCT <<b>>.<<place>>",
            ),
            (
                "alias used before it is joined",
                "JOIN <<e>> AS <<c>> ON <<c>>.<<qk>> = <<b>>.id\nJOIN <<p>> AS <<a>> ON <<a>>.id = <<c>>.<<pk>>",
                "JOIN <<p>> AS <<a>> ON <<a>>.id = ev2.<<pk>>\nJOIN <<e>> AS <<c>> ON <<c>>.<<qk>> = <<b>>.id",
            ),
        ],
    ),
    sql_task(
        "pair_counts",
        "pqe",
        (
            "Which <<p1>> and <<place>> of <<q1>> came together at least 2 times, and how often?",
            "Count the <<e>> for every pair of <<p1>> and <<q1>>'s <<place>>, at least 2.",
        ),
        """
        SELECT <<a>>.name, <<b>>.<<place>>, COUNT(*) AS number
        FROM <<e>> AS <<c>>
        JOIN <<p>> AS <<a>> ON <<a>>.id = <<c>>.<<pk>>
        JOIN <<q>> AS <<b>> ON <<b>>.id = <<c>>.<<qk>>
        GROUP BY <<a>>.id, <<b>>.<<place>>
        HAVING COUNT(*) >= 2
        ORDER BY number DESC, <<a>>.name, <<b>>.<<place>>;
        """,
        bugs=[
            (
                "missing comma",
                "SELECT <<a>>.name, <<b>>.<<place>>, COUNT(*)",
                "SELECT <<a>>.name, <<b>>.<<place>> COUNT(*)",
            ),
            ("star outside", "HAVING COUNT(*) >= 2", "HAVING COUNT * >= 2"),
        ],
    ),
    sql_task(
        "above_own_average",
        "pe",
        (
            "Which <<e>> have an <<amt>> above the average of their own <<p1>>? The first <<n>> by id.",
            "Find the first <<n>> <<e>>, in order of id, that exceed the mean <<amt>> of the same <<p1>>.",
        ),
        """
        SELECT <<c>>.id, <<a>>.name, <<c>>.<<amt>>
        FROM <<e>> AS <<c>>
        JOIN <<p>> AS <<a>> ON <<a>>.id = <<c>>.<<pk>>
        WHERE <<c>>.<<amt>> > (
          SELECT AVG(own.<<amt>>) FROM <<e>> AS own WHERE own.<<pk>> = <<c>>.<<pk>>
        )
        ORDER BY <<c>>.id
        LIMIT <<n>>;
        """,
        bugs=[
            ("alias of the subquery", "FROM <<e>> AS own WHERE", "FROM <<e>> WHERE"),
            ("missing parenthesis", "<<pk>> = <<c>>.<<pk>>\n)", "<<pk>> = <<c>>.<<pk>>\n"),
        ],
    ),
    sql_task(
        "latest_per_parent",
        "pe",
        (
            "What was the latest <<e1>> of each <<p1>>?",
            "For every <<p1>>, show the <<day>> and <<status>> of its most recent <<e1>>.",
        ),
        """
        SELECT <<a>>.name, <<c>>.<<day>>, <<c>>.<<status>>
        FROM <<p>> AS <<a>>
        JOIN <<e>> AS <<c>> ON <<c>>.<<pk>> = <<a>>.id
        WHERE <<c>>.<<day>> = (SELECT MAX(<<day>>) FROM <<e>> WHERE <<pk>> = <<a>>.id)
        ORDER BY <<a>>.name;
        """,
        bugs=[
            ("aggregate in WHERE", "(SELECT MAX(<<day>>) FROM <<e>> WHERE <<pk>> = <<a>>.id)", "MAX(<<c>>.<<day>>)"),
            (
                "other dialect: DISTINCT ON",
                "SELECT <<a>>.name, <<c>>.<<day>>",
                "SELECT DISTINCT ON (<<a>>.name) <<a>>.name, <<c>>.<<day>>",
            ),
        ],
    ),
    sql_task(
        "state_columns",
        "pe",
        (
            "Per <<p1>>, how many <<e>> are '<<state1>>' and how many '<<state2>>'? One row each.",
            "Pivot: for every <<p1>> the number of '<<state1>>' and of '<<state2>>' <<e>>.",
        ),
        """
        SELECT <<a>>.name,
               SUM(CASE WHEN <<c>>.<<status>> = '<<state1>>' THEN 1 ELSE 0 END) AS <<state1>>,
               SUM(CASE WHEN <<c>>.<<status>> = '<<state2>>' THEN 1 ELSE 0 END) AS <<state2>>
        FROM <<p>> AS <<a>>
        JOIN <<e>> AS <<c>> ON <<c>>.<<pk>> = <<a>>.id
        GROUP BY <<a>>.id
        ORDER BY <<a>>.name;
        """,
        bugs=[
            ("other dialect: PIVOT", "GROUP BY <<a>>.id\n", "PIVOT (COUNT(*) FOR <<status>>)\n"),
            ("missing END", "'<<state2>>' THEN 1 ELSE 0 END)", "'<<state2>>' THEN 1 ELSE 0)"),
        ],
    ),
    sql_task(
        "union_of_names",
        "pq",
        (
            "Make one list of all names of <<p>> and <<q>> with their kind.",
            "Combine the names of <<p>> and <<q>> into one result with a column `kind`.",
        ),
        """
        SELECT name, '<<p1>>' AS kind FROM <<p>>
        UNION ALL
        SELECT name, '<<q1>>' FROM <<q>>
        ORDER BY name;
        """,
        bugs=[
            ("column counts differ", "SELECT name, '<<q1>>' FROM", "SELECT name FROM"),
            ("ORDER BY inside", "FROM <<p>>\nUNION", "FROM <<p>> ORDER BY name\nUNION"),
        ],
    ),
    sql_task(
        "both_states",
        "qe",
        (
            "Which <<q>> have both '<<state1>>' and '<<state2>>' <<e>>?",
            "Find the <<q>> that occur in '<<state1>>' as well as in '<<state2>>' <<e>>.",
        ),
        """
        SELECT <<b>>.name
        FROM <<q>> AS <<b>>
        WHERE <<b>>.id IN (
          SELECT <<qk>> FROM <<e>> WHERE <<status>> = '<<state1>>'
          INTERSECT
          SELECT <<qk>> FROM <<e>> WHERE <<status>> = '<<state2>>'
        )
        ORDER BY <<b>>.name;
        """,
        bugs=[
            (
                "column counts differ",
                "SELECT <<qk>> FROM <<e>> WHERE <<status>> = '<<state2>>'",
                "SELECT * FROM <<e>> WHERE <<status>> = '<<state2>>'",
            ),
            ("operator typo", "INTERSECT", "INTERSECTION"),
        ],
    ),
    sql_task(
        "only_one_state",
        "qe",
        (
            "Which <<q>> have '<<state1>>' <<e>> but never '<<state2>>' ones?",
            "Ids of <<q>> with '<<state1>>' <<e>>, without those that also have '<<state2>>'.",
        ),
        """
        SELECT <<qk>> FROM <<e>> WHERE <<status>> = '<<state1>>'
        EXCEPT
        SELECT <<qk>> FROM <<e>> WHERE <<status>> = '<<state2>>'
        ORDER BY <<qk>>;
        """,
        bugs=[
            ("other dialect: MINUS", "EXCEPT", "MINUS"),
            ("order by unknown", "ORDER BY <<qk>>;", "ORDER BY name;"),
        ],
    ),
    sql_task(
        "same_category_pairs",
        "p",
        (
            "Which pairs of <<p>> share the same <<cat>>?",
            "List all pairs of different <<p>> of one <<cat>>, each pair once.",
        ),
        """
        SELECT x.name AS first, y.name AS second, x.<<cat>>
        FROM <<p>> AS x
        JOIN <<p>> AS y ON y.<<cat>> = x.<<cat>> AND y.id > x.id
        ORDER BY first, second;
        """,
        bugs=[
            ("no aliases", "x.<<cat>>\nFROM <<p>> AS x", "<<cat>>\nFROM <<p>> AS x"),
            ("alias missing", "JOIN <<p>> AS y ON", "JOIN <<p>> ON"),
        ],
    ),
    sql_task(
        "names_in_a_list",
        "p",
        (
            "Give the names of the <<p>> of each <<cat>> as one comma-separated text.",
            "One row per <<cat>>: all names of its <<p>>, joined by commas.",
        ),
        """
        SELECT <<cat>>, GROUP_CONCAT(name, ', ') AS names
        FROM (SELECT <<cat>>, name FROM <<p>> ORDER BY name)
        GROUP BY <<cat>>
        ORDER BY <<cat>>;
        """,
        bugs=[
            ("other dialect: ARRAY_AGG", "GROUP_CONCAT(name, ', ')", "ARRAY_AGG(name)"),
            ("other dialect: SEPARATOR", "GROUP_CONCAT(name, ', ')", "GROUP_CONCAT(name SEPARATOR ', ')"),
            ("other dialect: LISTAGG", "GROUP_CONCAT(name, ', ')", "LISTAGG(name, ', ')"),
        ],
    ),
    sql_task(
        "compare_places",
        "qe",
        (
            "How do the values of <<place>> compare by number of <<e>>, average <<amt>> (1 digit) and number of <<q>>?",
            "For each <<place>> of <<q>>: count of <<e>>, average <<amt>> to 1 digit, number of different <<q>>.",
        ),
        """
        SELECT <<b>>.<<place>>, COUNT(<<c>>.id) AS number, ROUND(AVG(<<c>>.<<amt>>), 1) AS average,
               COUNT(DISTINCT <<b>>.id) AS <<q>>
        FROM <<q>> AS <<b>>
        JOIN <<e>> AS <<c>> ON <<c>>.<<qk>> = <<b>>.id
        GROUP BY <<b>>.<<place>>
        ORDER BY number DESC, <<b>>.<<place>>;
        """,
        bugs=[
            ("DISTINCT misplaced", "COUNT(DISTINCT <<b>>.id)", "DISTINCT COUNT(<<b>>.id)"),
            ("reserved alias", "ROUND(AVG(<<c>>.<<amt>>), 1) AS average", "ROUND(AVG(<<c>>.<<amt>>), 1) AS order"),
        ],
    ),
)
