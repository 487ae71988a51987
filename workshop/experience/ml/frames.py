"""ML families of several cells: data frames with pandas."""

from workshop.experience.families import Cell, block
from workshop.experience.ml.metrics import cell, ml_session

_ASK_FRAME = (
    "Put these <<things>> into a pandas DataFrame `df` and show it.",
    "Create a DataFrame `df` of <<things>> with the columns <<label>>, <<group>>, <<number>>, <<amount>>.",
)


def _frame(make: str) -> Cell:
    """The first cell of a session: a frame of things, made in one of several ways."""
    return cell(_ASK_FRAME, "import pandas as pd\n\n" + make)


_FROM_RECORDS = _frame("<<things>> = <<rows>>\ndf = pd.DataFrame(<<things>>)\ndf")
_FROM_COLUMNS = _frame(
    block("""
    df = pd.DataFrame({
        "<<label>>": <<labels>>,
        "<<group>>": [<<g1>>, <<g2>>, <<g2>>, <<g1>>, <<g3>>],
        "<<number>>": [<<i>>, <<j>>, <<k>>, 41, 18],
        "<<amount>>": [3, <<k>>, 1, 7, <<i>>],
    })
    print(df.dtypes)
    """)
)
_FROM_CSV = _frame(
    block("""
    from io import StringIO

    text = \"\"\"<<label>>,<<group>>,<<number>>,<<amount>>
    alpha,east,<<i>>,2
    beta,west,<<j>>,<<k>>
    gamma,east,44,5
    delta,west,29,1\"\"\"
    df = pd.read_csv(StringIO(text))
    df
    """)
)
_FROM_TUPLES = _frame(
    block("""
    rows = [(<<n1>>, <<g1>>, <<i>>, 4), (<<n2>>, <<g2>>, <<j>>, 2), (<<n3>>, <<g1>>, <<k>>, 9), (<<n4>>, <<g2>>, 33, <<k>>)]
    df = pd.DataFrame(rows, columns=["<<label>>", "<<group>>", "<<number>>", "<<amount>>"])
    df.head()
    """)
)
_FROM_INDEX = _frame(
    block("""
    df = pd.DataFrame.from_dict(
        {<<n1>>: [<<g1>>, <<i>>, 6], <<n2>>: [<<g2>>, <<j>>, 1], <<n3>>: [<<g2>>, 27, <<k>>], <<n5>>: [<<g1>>, <<k>>, 8]},
        orient="index", columns=["<<group>>", "<<number>>", "<<amount>>"],
    ).rename_axis("<<label>>").reset_index()
    df
    """)
)

FAMILIES = (
    ml_session(
        "group_statistics",
        (
            _FROM_RECORDS,
            cell(
                (
                    "Per <<group>>: number of <<things>>, mean <<number>> and total <<amount>>.",
                    "Summarise <<number>> (mean) and <<amount>> (sum) by <<group>>, with the count.",
                ),
                """
                summary = df.groupby("<<group>>").agg(
                    count=("<<label>>", "size"), mean_<<number>>=("<<number>>", "mean"), total_<<amount>>=("<<amount>>", "sum")
                ).round(2)
                summary
                """,
                'summary["count"].to_dict() ==>',
            ),
            cell(
                (
                    "Which <<group>> has the highest mean <<number>>?",
                    "Name the <<group>> with the largest average <<number>>.",
                ),
                'best = summary["mean_<<number>>"].idxmax()\nbest',
                "str(best) ==>",
            ),
        ),
        bugs=[
            ("wrong column", '("<<number>>", "mean")', '("<<number>>_", "mean")'),
            ("named aggregation", 'count=("<<label>>", "size")', 'count="size"'),
            ("groupby without a key", 'df.groupby("<<group>>")', "df.groupby()"),
        ],
        bug_cell=1,
    ),
    ml_session(
        "missing_values",
        (
            cell(
                (
                    "Build a DataFrame of <<things>> in which some <<number>> values are missing, and count them per column.",
                    "Make `df` with gaps in <<number>> and show the number of missing values.",
                ),
                """
                import numpy as np
                import pandas as pd

                df = pd.DataFrame({
                    "<<label>>": <<labels>>,
                    "<<group>>": [<<g1>>, <<g2>>, <<g1>>, <<g2>>, <<g1>>],
                    "<<number>>": [<<i>>, np.nan, <<j>>, <<big>>, np.nan],
                })
                df.isna().sum()
                """,
            ),
            cell(
                (
                    "Fill the missing <<number>> with the <<how>> of the same <<group>>.",
                    "Impute <<number>> by the <<how>> per <<group>>.",
                ),
                """
                df["<<number>>"] = df.groupby("<<group>>")["<<number>>"].transform(lambda column: column.fillna(column.<<how>>()))
                df
                """,
                """
                int(df["<<number>>"].isna().sum()) ==>
                df["<<number>>"].tolist() ==>
                """,
            ),
        ),
        pick={"how": ["mean", "median", "max", "min"]},
        bugs=[
            ("wrong method", "column.fillna(", "column.fill_na("),
            ("lengths differ", ".transform(lambda column: column.fillna(column.<<how>>()))", ".<<how>>().values"),
        ],
    ),
    ml_session(
        "merge_frames",
        (
            _FROM_COLUMNS,
            cell(
                (
                    "Join `df` with a table of <<group>> managers and keep <<things>> without one.",
                    "Merge the managers per <<group>> into `df` with a left join.",
                ),
                """
                managers = pd.DataFrame({"<<group>>": [<<g1>>, <<g2>>], "manager": ["<<m1>>", "<<m2>>"]})
                merged = df.merge(managers, on="<<group>>", how="left")
                merged[["<<label>>", "manager"]]
                """,
                "len(merged) == len(df) ==>",
            ),
            cell(
                (
                    "How many <<things>> does each manager have? Count missing ones as '<<nobody>>'.",
                    "Count the <<things>> per manager, with '<<nobody>>' for none.",
                ),
                'counts = merged["manager"].fillna("<<nobody>>").value_counts().sort_index()\ncounts',
                "counts.to_dict() ==>",
            ),
        ),
        pick={
            "m1|m2": [
                ("Ines", "Karl"),
                ("Lena", "Mats"),
                ("Nico", "Olga"),
                ("Pal", "Rosa"),
                ("Sven", "Tara"),
                ("Ugo", "Vera"),
            ],
            "nobody": ["nobody", "vacant", "none", "open", "unassigned", "tbd"],
        },
        bugs=[
            ("key missing", 'on="<<group>>"', 'on="group_name"'),
            (
                "inner join loses rows",
                'merged = df.merge(managers, on="<<group>>", how="left")',
                'merged = df.merge(managers.iloc[:1], on="<<group>>")',
            ),
            ("brackets", 'merged[["<<label>>", "manager"]]', 'merged["<<label>>", "manager"]'),
        ],
        bug_cell=1,
    ),
    ml_session(
        "time_series",
        (
            cell(
                (
                    "Make a daily series of <<number_words>> for <<days>> days from <<year>>-01-01.",
                    "Create a pandas Series `<<number>>` with a daily index (<<days>> days, start <<year>>-01-01).",
                ),
                """
                import numpy as np
                import pandas as pd

                index = pd.date_range("<<year>>-01-01", periods=<<days>>, freq="D")
                <<number>> = pd.Series(np.arange(<<days>>) % <<i>> + <<k>>, index=index, name="<<number>>")
                <<number>>.head(3)
                """,
            ),
            cell(
                ("Add up <<number_words>> per month.", "Resample to monthly totals."),
                'monthly = <<number>>.resample("MS").sum()\nmonthly',
                "monthly.tolist() ==>",
            ),
            cell(
                (
                    "Compute a rolling mean over <<w>> days and show its last value.",
                    "Smooth the series with a <<w>>-day moving average.",
                ),
                "smooth = <<number>>.rolling(<<w>>).mean()\nprint(round(float(smooth.iloc[-1]), 3), int(smooth.isna().sum()))",
                "int(smooth.notna().sum()) ==>",
            ),
        ),
        pick={"days": ["60", "75", "90", "100", "120"], "w": ["7", "14", "5", "10", "3"]},
        bugs=[
            ("aggregation missing", '.resample("MS").sum()', '.resample("MS").total()'),
            ("unknown frequency", '"MS"', '"MONTH"'),
        ],
        bug_cell=1,
    ),
    ml_session(
        "outliers",
        (
            cell(
                (
                    "Collect these <<number_words>> values in a Series and describe them.",
                    "Make a Series of <<number_words>> with a few extreme values and show its statistics.",
                ),
                """
                import pandas as pd

                <<number>> = pd.Series(<<ints1>> + <<ints2>> + [<<big>>, -<<big>>], name="<<number>>")
                <<number>>.describe().round(2)
                """,
            ),
            cell(
                (
                    "Find outliers by the <<f>> IQR rule and drop them.",
                    "Remove values outside <<f>> interquartile ranges and say how many there were.",
                ),
                """
                q1, q3 = <<number>>.quantile([0.25, 0.75])
                margin = <<f>> * (q3 - q1)
                inside = <<number>>.between(q1 - margin, q3 + margin)
                clean = <<number>>[inside]
                print(f"{(~inside).sum()} outliers removed, {len(clean)} left")
                """,
                "int(clean.max()) < <<big>> ==>",
            ),
        ),
        pick={"f": ["1.5", "2.0", "3.0"]},
        bugs=[
            (
                "and between series",
                "<<number>>.between(q1 - margin, q3 + margin)",
                "<<number>> > q1 - margin and <<number>> < q3 + margin",
            ),
            ("not on a boolean", "(~inside).sum()", "(not inside).sum()"),
            ("percent as fraction", "[0.25, 0.75]", "[25, 75]"),
        ],
    ),
    ml_session(
        "bins",
        (
            _FROM_CSV,
            cell(
                (
                    "Cut <<number>> into the classes low, middle and high at 20 and 40 and count them.",
                    "Bin <<number>> (up to 20, up to 40, above) and give the frequencies.",
                ),
                """
                df["class"] = pd.cut(df["<<number>>"], bins=[0, 20, 40, 100], labels=["low", "middle", "high"])
                df["class"].value_counts(sort=False)
                """,
                'df["class"].astype(str).tolist() ==>',
            ),
            cell(
                ("Encode <<group>> as dummy columns.", "One-hot encode the <<group>> column with pandas."),
                'dummies = pd.get_dummies(df["<<group>>"], prefix="<<group>>", dtype=int)\ndummies',
                "dummies.sum().to_dict() ==>",
            ),
        ),
        bugs=[
            ("labels do not match bins", 'labels=["low", "middle", "high"]', 'labels=["low", "high"]'),
            ("bins out of order", "bins=[0, 20, 40, 100]", "bins=[0, 40, 20, 100]"),
        ],
        bug_cell=1,
    ),
    ml_session(
        "rank_within_groups",
        (
            _FROM_TUPLES,
            cell(
                (
                    "Show the best <<thing>> of each <<group>> by <<number>>.",
                    "For each <<group>>, keep the row with the largest <<number>>.",
                ),
                """
                best = df.loc[df.groupby("<<group>>")["<<number>>"].idxmax()].sort_values("<<group>>")
                best[["<<group>>", "<<label>>", "<<number>>"]]
                """,
                'best["<<label>>"].tolist() ==>',
            ),
            cell(
                (
                    "Add each <<thing>>'s share of the <<group>> total of <<number>> in percent.",
                    "Compute what percentage of its <<group>>'s <<number>> each <<thing>> has.",
                ),
                """
                df["share"] = (100 * df["<<number>>"] / df.groupby("<<group>>")["<<number>>"].transform("sum")).round(1)
                df.sort_values("share", ascending=False)
                """,
                'df["share"].tolist() ==>',
            ),
        ),
        bugs=[
            ("sum per group has another index", '.transform("sum")).round(1)', ".agg(sum_)).round(1)"),
            ("parenthesis", '.transform("sum")).round(1)', '.transform("sum").round(1)'),
        ],
    ),
    ml_session(
        "changes",
        (
            cell(
                (
                    "Put monthly <<number_words>> of <<year>> into a Series indexed by month.",
                    "Create a Series of six monthly <<number_words>> values for <<year>>.",
                ),
                """
                import pandas as pd

                months = pd.period_range("<<year>>-01", periods=6, freq="M").astype(str)
                <<number>> = pd.Series([<<i>>, <<j>>, <<big>>, <<k>>, <<j>> + 5, <<i>> * 4], index=months)
                <<number>>
                """,
            ),
            cell(
                (
                    "Compute the change in percent from month to month, with one digit.",
                    "Give the monthly growth of <<number_words>> in percent.",
                ),
                "growth = (<<number>>.pct_change() * 100).round(1)\ngrowth",
                "growth.dropna().tolist() ==>",
            ),
            cell(
                (
                    "Show the cumulative total and the month in which it passes half of the sum.",
                    "When does the running total reach half of the year's <<number_words>>?",
                ),
                "running = <<number>>.cumsum()\nhalf = running[running >= running.iloc[-1] / 2].index[0]\nprint(running.tolist(), half)",
                "str(half) ==>",
            ),
        ),
        bugs=[
            ("wrong method", "<<number>>.cumsum()", "<<number>>.cumulative_sum()"),
            ("position as label", "running.iloc[-1]", "running.loc[-1]"),
        ],
    ),
    ml_session(
        "clean_text_column",
        (
            cell(
                (
                    "Load these messy <<label>>s into a DataFrame.",
                    "Make a DataFrame with untidy <<label>> and <<number>> text columns.",
                ),
                """
                import pandas as pd

                df = pd.DataFrame({"<<label>>": [" Alpha", "beta ", "ALPHA", None], "<<number>>": ["<<i>>", "<<j>> pcs", "n/a", "<<k>>"]})
                df
                """,
            ),
            cell(
                (
                    "Normalise the <<label>>s (strip, lower case, missing as 'unknown') and turn <<number>> into numbers.",
                    "Clean both columns: tidy <<label>>, numeric <<number>> with NaN where there is none.",
                ),
                """
                df["<<label>>"] = df["<<label>>"].fillna("unknown").str.strip().str.lower()
                df["<<number>>"] = pd.to_numeric(df["<<number>>"].str.extract(r"(\\d+)")[0])
                df
                """,
                """
                df["<<label>>"].tolist() ==>
                float(df["<<number>>"].sum()) ==>
                """,
            ),
        ),
        bugs=[
            ("series has no strip", ".str.strip().str.lower()", ".strip().lower()"),
            (
                "text not numeric",
                'pd.to_numeric(df["<<number>>"].str.extract(r"(\\d+)")[0])',
                'df["<<number>>"].astype(float)',
            ),
            ("no capture group", '(r"(\\d+)")[0]', '(r"\\d+")[0]'),
        ],
    ),
    ml_session(
        "cross_table",
        (
            _FROM_INDEX,
            cell(
                (
                    "Cross-tabulate <<group>> against whether <<number>> is above its median.",
                    "Make a crosstab of <<group>> and `<<number>> > median`.",
                ),
                """
                above = df["<<number>>"] > df["<<number>>"].median()
                table = pd.crosstab(df["<<group>>"], above.rename("above_median"))
                table
                """,
                "int(table.to_numpy().sum()) == len(df) ==>",
            ),
            cell(
                (
                    "What is the correlation of <<number>> and <<amount>>, rounded to 3 digits?",
                    "Compute Pearson's correlation between <<number>> and <<amount>>.",
                ),
                'correlation = df["<<number>>"].corr(df["<<amount>>"])\nround(float(correlation), 3)',
                "-1 <= correlation <= 1 ==>",
            ),
        ),
        bugs=[
            ("function name", "pd.crosstab(", "pd.cross_tab("),
            ("missing quotes", 'df["<<number>>"].median()', "df[<<number>>].median()"),
        ],
        bug_cell=1,
    ),
    ml_session(
        "wide_and_long",
        (
            cell(
                (
                    "Make a wide DataFrame of <<number_words>> per <<label>> with one column per year.",
                    "Create `wide`: rows are <<label>>s, columns 2024, 2025 and 2026.",
                ),
                """
                import pandas as pd

                wide = pd.DataFrame({"<<label>>": [<<n1>>, <<n2>>], "2024": [<<i>>, <<j>>], "2025": [<<k>>, 8], "2026": [<<big>>, 3]})
                wide
                """,
            ),
            cell(
                (
                    "Reshape it to long form with columns <<label>>, year, <<number>>.",
                    "Melt `wide` into one row per <<label>> and year.",
                ),
                """
                long = wide.melt(id_vars="<<label>>", var_name="year", value_name="<<number>>")
                long
                """,
                "long.shape ==>",
            ),
            cell(
                ("Pivot back to one row per year.", "Make a pivot table with years as rows and <<label>>s as columns."),
                'pivoted = long.pivot(index="year", columns="<<label>>", values="<<number>>")\npivoted',
                "pivoted.sum(axis=1).tolist() ==>",
            ),
        ),
        bugs=[
            ("keyword", 'id_vars="<<label>>"', 'id="<<label>>"'),
            ("column missing", 'id_vars="<<label>>"', 'id_vars="<<label>>s"'),
        ],
        bug_cell=1,
    ),
)
