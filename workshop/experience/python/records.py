"""Python families over lists of records: totals, groups, filters, joins, rankings."""

from collections.abc import Sequence

from capibara_assets.domains import Domain
from workshop.experience.families import Cell, Family, Picks, block, bugs_of


def python_task(
    name: str,
    statement: str | tuple[str, ...],
    code: str,
    check: str,
    pick: Picks | None = None,
    bugs: Sequence[tuple[str, str, str]] = (),
) -> Family:
    """A family of one Python cell."""
    cell = Cell(statement, block(code), block(check))
    return Family(name, Domain.PYTHON, "python", (cell,), pick or {}, bugs_of(bugs))


FAMILIES = (
    python_task(
        "total_per_group",
        (
            "adds up the <<number_words>> of the <<things>> of each <<group_words>>",
            "returns, for every <<group_words>>, the sum of <<number_words>> over its <<things>>",
        ),
        """
        def <<number>>_by_<<group>>(<<things>>):
            <<doc>>
            totals = {}
            for <<thing>> in <<things>>:
                key = <<thing>>["<<group>>"]
                totals[key] = totals.get(key, 0) + <<thing>>["<<number>>"]
            return totals
        """,
        """
        <<things>> = <<rows>>
        <<number>>_by_<<group>>(<<things>>) ==>
        <<number>>_by_<<group>>([]) ==>
        """,
        bugs=[
            ("missing default", "totals.get(key, 0)", "totals[key]"),
            ("forgotten return", "    return totals", "    totals"),
            ("overwrites", "totals.get(key, 0) + ", ""),
        ],
    ),
    python_task(
        "group_labels",
        (
            "groups the <<label>>s of <<things>> by <<group_words>>, each list in alphabetical order",
            "maps each <<group_words>> to the sorted <<label>>s of the <<things>> in it",
        ),
        """
        from collections import defaultdict

        def <<things>>_by_<<group>>(<<things>>):
            <<doc>>
            grouped = defaultdict(list)
            for item in <<things>>:
                grouped[item["<<group>>"]].append(item["<<label>>"])
            return {key: sorted(names) for key, names in grouped.items()}
        """,
        """
        <<things>> = <<rows>>
        <<things>>_by_<<group>>(<<things>>) ==>
        """,
        bugs=[
            ("missing import", "from collections import defaultdict\n\n", ""),
            ("wrong method", ".append(item", ".add(item"),
            ("wrong key", 'item["<<label>>"]', 'item["label_"]'),
        ],
    ),
    python_task(
        "best_of_all",
        (
            "returns the <<label>> of the <<thing>> with the <<most>> <<number_words>>, or None when there are no <<things>>",
            "finds the <<thing>> whose <<number_words>> is the <<most>> and gives back its <<label>> (None for an empty list)",
        ),
        """
        def <<most>>_<<thing>>(<<things>>):
            <<doc>>
            if not <<things>>:
                return None
            chosen = <<pickf>>(<<things>>, key=lambda <<thing>>: <<thing>>["<<number>>"])
            return chosen["<<label>>"]
        """,
        """
        <<things>> = <<rows>>
        <<most>>_<<thing>>(<<things>>) ==>
        <<most>>_<<thing>>([]) ==>
        """,
        pick={"most|pickf": [("highest", "max"), ("lowest", "min")]},
        bugs=[
            ("empty input", "    if not <<things>>:\n        return None\n", ""),
            ("returns the record", 'return chosen["<<label>>"]', "return chosen"),
            ("typo in name", "return chosen[", "return choosen["),
        ],
    ),
    python_task(
        "filter_above",
        (
            "keeps the <<things>> whose <<number_words>> is <<word>> the given limit and returns their <<label>>s",
            "returns the <<label>>s of all <<things>> with a <<number_words>> <<word>> `limit`, in their order",
        ),
        """
        def <<things>>_<<word>>(<<things>>, limit):
            <<doc>>
            return [item["<<label>>"] for item in <<things>> if item["<<number>>"] <<op>> limit]
        """,
        """
        <<things>> = <<rows>>
        <<things>>_<<word>>(<<things>>, <<j>>) ==>
        <<things>>_<<word>>(<<things>>, 0) ==>
        """,
        pick={"word|op": [("above", ">"), ("below", "<")]},
        bugs=[
            ("string key as attribute", 'item["<<number>>"] <<op>> limit', "item.<<number>> <<op>> limit"),
            ("wrong variable", '[item["<<label>>"] for', '[record["<<label>>"] for'),
        ],
    ),
    python_task(
        "count_groups",
        (
            "counts how many <<things>> each <<group_words>> has, most frequent first and ties by name",
            "returns (<<group_words>>, count) pairs for the <<things>>, the largest count first, equal counts by name",
        ),
        """
        from collections import Counter

        def count_<<group>>s(<<things>>):
            <<doc>>
            counts = Counter(<<thing>>["<<group>>"] for <<thing>> in <<things>>)
            return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        """,
        """
        <<things>> = <<rows>>
        count_<<group>>s(<<things>>) ==>
        """,
        bugs=[
            ("missing import", "from collections import Counter\n\n", ""),
            ("sort direction", "(-pair[1], pair[0])", "(pair[1], pair[0])"),
            ("sorts a mapping", "counts.items(), key", "counts, key"),
        ],
    ),
    python_task(
        "mean_of_field",
        (
            "computes the average <<number_words>> of the <<things>>, rounded to <<k>> digits, and 0.0 for none",
            "returns the mean <<number_words>> over all <<things>> with <<k>> digits (0.0 for an empty list)",
        ),
        """
        def average_<<number>>(<<things>>):
            <<doc>>
            values = [<<thing>>["<<number>>"] for <<thing>> in <<things>>]
            if not values:
                return 0.0
            return round(sum(values) / len(values), <<k>>)
        """,
        """
        average_<<number>>(<<rows>>) ==>
        average_<<number>>([]) ==>
        """,
        bugs=[
            ("division by zero", "    if not values:\n        return 0.0\n", ""),
            ("sum of records", "sum(values)", "sum(<<things>>)"),
            (
                "missing parenthesis",
                "return round(sum(values) / len(values), <<k>>)",
                "return round(sum(values) / len(values), <<k>>",
            ),
        ],
    ),
    python_task(
        "index_by_label",
        (
            "builds a dictionary from <<label>> to <<thing>>; a repeated <<label>> raises ValueError",
            "indexes the <<things>> by their <<label>> and raises ValueError when a <<label>> occurs twice",
        ),
        """
        def index_<<things>>(<<things>>):
            <<doc>>
            index = {}
            for <<thing>> in <<things>>:
                <<label>> = <<thing>>["<<label>>"]
                if <<label>> in index:
                    raise ValueError(f"duplicate <<label>>: {<<label>>}")
                index[<<label>>] = <<thing>>
            return index
        """,
        """
        <<things>> = <<rows3>>
        sorted(index_<<things>>(<<things>>)) ==>
        try:
            index_<<things>>(<<things>> + <<things>>[:1])
            message = "accepted"
        except ValueError as error:
            message = str(error)
        message.split(":")[0] ==>
        """,
        bugs=[
            ("wrong exception", "raise ValueError(", "raise KeyError("),
            (
                "check after insert",
                '        if <<label>> in index:\n            raise ValueError(f"duplicate <<label>>: {<<label>>}")\n        index[<<label>>] = <<thing>>\n',
                '        index[<<label>>] = <<thing>>\n        if <<label>> in index:\n            raise ValueError(f"duplicate <<label>>: {<<label>>}")\n',
            ),
        ],
    ),
    python_task(
        "join_lookup",
        (
            "adds to each <<thing>> the <<what>> of its <<group_words>>, taken from a lookup table, with a default for unknown ones",
            "returns copies of the <<things>> with a new key <<what>>, looked up by <<group_words>> (`default` where missing)",
        ),
        """
        def add_<<what>>(<<things>>, <<what>>s, default=<<def>>):
            <<doc>>
            return [
                {**<<thing>>, "<<what>>": <<what>>s.get(<<thing>>["<<group>>"], default)}
                for <<thing>> in <<things>>
            ]
        """,
        """
        <<things>> = <<rows3>>
        <<what>>s = {<<g1>>: <<v>>}
        [row["<<what>>"] for row in add_<<what>>(<<things>>, <<what>>s)] ==>
        "<<what>>" in <<things>>[0] ==>
        """,
        pick={
            "what|def|v": [
                ("contact", '"nobody"', '"Irma"'),
                ("discount", "0", "15"),
                ("office", '"unknown"', '"B12"'),
                ("tax", "0.0", "0.2"),
                ("manager", '"vacant"', '"Otto"'),
                ("bonus", "0", "7"),
            ]
        },
        bugs=[
            ("missing default", '.get(<<thing>>["<<group>>"], default)', '[<<thing>>["<<group>>"]]'),
            (
                "changes its input",
                '{**<<thing>>, "<<what>>": <<what>>s.get(<<thing>>["<<group>>"], default)}',
                '<<thing>>.update(<<what>>=<<what>>s.get(<<thing>>["<<group>>"], default))',
            ),
        ],
    ),
    python_task(
        "sort_two_keys",
        (
            "sorts the <<things>> by <<group_words>> and, within it, by <<number_words>> from <<from_to>>, and returns the <<label>>s",
            "returns the <<label>>s of the <<things>> ordered by <<group_words>>, then <<number_words>> (<<from_to>>)",
        ),
        """
        def ordered_<<things>>(<<things>>):
            <<doc>>
            ranked = sorted(<<things>>, key=lambda row: (row["<<group>>"], <<sign>>row["<<number>>"]))
            return [row["<<label>>"] for row in ranked]
        """,
        """
        <<things>> = <<rows>>
        ordered_<<things>>(<<things>>) ==>
        """,
        pick={"from_to|sign": [("high to low", "-"), ("low to high", "")]},
        bugs=[
            ("sort returns None", "ranked = sorted(<<things>>, key=", "ranked = <<things>>.sort(key="),
            ("negates text", '(row["<<group>>"], <<sign>>row', '(-row["<<group>>"], <<sign>>row'),
        ],
    ),
    python_task(
        "merge_counts",
        (
            "merges two dictionaries of counts per <<group_words>> by adding the values of common keys",
            "adds up two <<group_words>> counters; keys of either one are kept",
        ),
        """
        def merge_<<things>>(first, second):
            <<doc>>
            merged = dict(first)
            for <<group>>, count in second.items():
                merged[<<group>>] = merged.get(<<group>>, 0) + count
            return merged
        """,
        """
        merge_<<things>>({<<g1>>: <<i>>, <<g2>>: 1}, {<<g2>>: <<k>>, <<g3>>: <<j>>}) ==>
        merge_<<things>>({}, {<<g1>>: <<i>>}) ==>
        """,
        bugs=[
            ("iterates keys only", "in second.items():", "in second:"),
            ("overwrites", "merged.get(<<group>>, 0) + count", "count"),
            ("key error", "merged.get(<<group>>, 0) + count", "merged[<<group>>] + count"),
        ],
    ),
    python_task(
        "partition_records",
        (
            "splits the <<things>> into two lists of <<label>>s: those with at least `limit` <<number_words>> and the others",
            "returns a pair of <<label>> lists: <<things>> whose <<number_words>> reaches `limit`, and the rest",
        ),
        """
        def split_<<things>>(<<things>>, limit=<<j>>):
            <<doc>>
            reached, missed = [], []
            for <<thing>> in <<things>>:
                target = reached if <<thing>>["<<number>>"] >= limit else missed
                target.append(<<thing>>["<<label>>"])
            return reached, missed
        """,
        """
        <<things>> = <<rows>>
        split_<<things>>(<<things>>) ==>
        split_<<things>>(<<things>>, 0)[1] ==>
        """,
        bugs=[
            ("shared list", "reached, missed = [], []", "reached = missed = []"),
            ("compares to text", ">= limit else", '>= "limit" else'),
            ("returns one list", "return reached, missed", "return reached"),
        ],
    ),
    python_task(
        "cheapest_bundle",
        (
            "picks <<things>> greedily, smallest <<number_words>> first, while their sum stays within a budget",
            "returns the <<label>>s of as many <<things>> as fit a budget of <<number_words>>, taking the smallest first",
        ),
        """
        def within_budget(<<things>>, budget):
            <<doc>>
            chosen, spent = [], 0
            for <<thing>> in sorted(<<things>>, key=lambda item: item["<<number>>"]):
                if spent + <<thing>>["<<number>>"] > budget:
                    break
                spent += <<thing>>["<<number>>"]
                chosen.append(<<thing>>["<<label>>"])
            return chosen, spent
        """,
        """
        <<things>> = <<rows>>
        within_budget(<<things>>, <<j>>) ==>
        within_budget([{"<<label>>": "a", "<<number>>": 2}, {"<<label>>": "b", "<<number>>": 90}, {"<<label>>": "c", "<<number>>": 1}], 3) ==>
        """,
        bugs=[
            ("unsorted", 'sorted(<<things>>, key=lambda item: item["<<number>>"])', "<<things>>[::-1]"),
            ("stale total", '        spent += <<thing>>["<<number>>"]\n', ""),
            ("dict is not ordered", 'sorted(<<things>>, key=lambda item: item["<<number>>"])', "sorted(<<things>>)"),
        ],
    ),
    python_task(
        "pivot_counts",
        (
            "builds a nested dictionary <<group_words>> -> <<label>> -> <<amount_words>> from <<things>>",
            "turns a flat list of <<things>> into {<<group_words>>: {<<label>>: <<amount_words>>}}",
        ),
        """
        def nest_<<things>>(<<things>>):
            <<doc>>
            nested = {}
            for row in <<things>>:
                inner = nested.setdefault(row["<<group>>"], {})
                inner[row["<<label>>"]] = row["<<amount>>"]
            return nested
        """,
        """
        <<things>> = <<rows3>>
        nest_<<things>>(<<things>>) ==>
        """,
        bugs=[
            ("get does not store", "nested.setdefault(", "nested.get("),
            ("list as key", 'inner[row["<<label>>"]]', 'inner[[row["<<label>>"]]]'),
        ],
    ),
    python_task(
        "validate_record",
        (
            "checks a <<thing>> record: <<label>> must be a non-empty string and <<number_words>> a non-negative integer; returns the list of problems",
            "lists what is wrong with a <<thing>>: an empty <<label>>, or a <<number_words>> that is missing or negative",
        ),
        """
        def check_<<thing>>(<<thing>>):
            <<doc>>
            problems = []
            <<label>> = <<thing>>.get("<<label>>")
            if not isinstance(<<label>>, str) or not <<label>>.strip():
                problems.append("<<label>> is empty")
            <<number>> = <<thing>>.get("<<number>>")
            if not isinstance(<<number>>, int) or <<number>> < 0:
                problems.append("<<number>> must be a non-negative integer")
            return problems
        """,
        """
        check_<<thing>>({"<<label>>": <<n1>>, "<<number>>": <<i>>}) ==>
        check_<<thing>>({"<<label>>": " ", "<<number>>": -1}) ==>
        check_<<thing>>({}) ==>
        """,
        bugs=[
            ("none has no method", "not isinstance(<<label>>, str) or ", ""),
            ("compares None", "not isinstance(<<number>>, int) or ", ""),
            ("key error", '<<thing>>.get("<<number>>")', '<<thing>>["<<number>>"]'),
        ],
    ),
    python_task(
        "top_n",
        (
            "returns the <<label>>s of the `count` <<things>> with the largest <<number_words>>",
            "gives the <<label>>s of the top `count` <<things>> by <<number_words>>, the largest first",
        ),
        """
        import heapq

        def top_<<things>>(<<things>>, count=<<k>>):
            <<doc>>
            best = heapq.nlargest(count, <<things>>, key=lambda <<thing>>: <<thing>>["<<number>>"])
            return [<<thing>>["<<label>>"] for <<thing>> in best]
        """,
        """
        <<things>> = <<rows>>
        top_<<things>>(<<things>>) ==>
        top_<<things>>(<<things>>, count=1) ==>
        """,
        bugs=[
            ("missing import", "import heapq\n\n", ""),
            ("argument order", "heapq.nlargest(count, <<things>>,", "heapq.nlargest(<<things>>, count,"),
            ("wrong function", "heapq.nlargest(", "heapq.largest("),
        ],
    ),
    python_task(
        "rename_fields",
        (
            "renames the keys of each <<thing>> by a mapping and drops keys whose new name is None",
            "returns the <<things>> with renamed fields; a field that is mapped to None is left out",
        ),
        """
        def rename_fields(<<things>>, names):
            <<doc>>
            renamed = []
            for <<thing>> in <<things>>:
                row = {names.get(key, key): value for key, value in <<thing>>.items()}
                row.pop(None, None)
                renamed.append(row)
            return renamed
        """,
        """
        <<things>> = <<rows3>>
        rename_fields(<<things>>, {"<<label>>": "<<new>>", "<<amount>>": None})[0] ==>
        """,
        pick={"new": ["id", "key", "caption", "tag", "heading", "identifier"]},
        bugs=[
            ("pop without default", "row.pop(None, None)", 'row.pop("")'),
            ("unpacks keys", "in <<thing>>.items()}", "in <<thing>>}"),
        ],
    ),
)
