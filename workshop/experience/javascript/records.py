"""JavaScript families over arrays of objects: reduce, Map, Set, destructuring, sorting."""

from collections.abc import Sequence

from capibara_assets.domains import Domain
from workshop.experience.families import Cell, Family, Picks, block, bugs_of


def javascript_task(
    name: str,
    statement: str | tuple[str, ...],
    code: str,
    check: str,
    pick: Picks | None = None,
    bugs: Sequence[tuple[str, str, str]] = (),
) -> Family:
    """A family of one JavaScript cell."""
    cell = Cell(statement, block(code), block(check))
    return Family(name, Domain.JAVASCRIPT, "javascript", (cell,), pick or {}, bugs_of(bugs))


FAMILIES = (
    javascript_task(
        "sum_by_group",
        (
            "adds up `<<number>>` of the <<things>> per `<<group>>` into a plain object",
            "reduces <<things>> to an object from <<group>> to the total <<number>>",
        ),
        """
        function sum<<Number>>By<<Group>>(<<things>>) {
          <<doc>>
          return <<things>>.reduce((totals, { <<group>>, <<number>> }) => {
            totals[<<group>>] = (totals[<<group>>] ?? 0) + <<number>>;
            return totals;
          }, {});
        }
        """,
        """
        const <<things>> = <<rows>>;
        sum<<Number>>By<<Group>>(<<things>>) ==>
        sum<<Number>>By<<Group>>([]) ==>
        """,
        bugs=[
            ("accumulator not returned", "    return totals;\n", ""),
            ("no initial value", "  }, {});", "  });"),
            ("undefined plus number", "(totals[<<group>>] ?? 0) + <<number>>", "totals[<<group>>] + <<number>>"),
        ],
    ),
    javascript_task(
        "group_into_map",
        (
            "groups the <<label>>s of <<things>> by <<group>> in a Map and returns its entries",
            "collects <<label>>s per <<group>> with a Map, as an array of [<<group>>, <<label>>s] pairs",
        ),
        """
        function <<things>>By<<Group>>(<<things>>) {
          <<doc>>
          const groups = new Map();
          for (const { <<group>>, <<label>> } of <<things>>) {
            if (!groups.has(<<group>>)) groups.set(<<group>>, []);
            groups.get(<<group>>).push(<<label>>);
          }
          return [...groups.entries()];
        }
        """,
        "<<things>>By<<Group>>(<<rows>>) ==>",
        bugs=[
            ("get of undefined", "    if (!groups.has(<<group>>)) groups.set(<<group>>, []);\n", ""),
            ("for in over objects", "} of <<things>>)", "} in <<things>>)"),
            ("Map without new", "new Map()", "Map()"),
        ],
    ),
    javascript_task(
        "filter_map_names",
        (
            "returns the upper-case <<label>>s of all <<things>> with `<<number>>` <<words>> `limit`",
            "keeps <<things>> whose <<number>> is <<words>> the limit and maps them to upper-case <<label>>s",
        ),
        """
        function loud<<Things>>(<<things>>, limit) {
          <<doc>>
          return <<things>>
            .filter((<<thing>>) => <<thing>>.<<number>> <<op>> limit)
            .map((<<thing>>) => <<thing>>.<<label>>.toUpperCase());
        }
        """,
        """
        const <<things>> = <<rows>>;
        loud<<Things>>(<<things>>, <<j>>) ==>
        """,
        pick={"words|op": [("above", ">"), ("below", "<"), ("at least", ">="), ("at most", "<=")]},
        bugs=[
            ("method name", ".toUpperCase()", ".toUppercase()"),
            (
                "braces without return",
                "=> <<thing>>.<<number>> <<op>> limit)",
                "=> { <<thing>>.<<number>> <<op>> limit; })",
            ),
            ("property typo", "<<thing>>.<<label>>.toUpperCase", "<<thing>>.<<label>>Text.toUpperCase"),
        ],
    ),
    javascript_task(
        "sort_by_two",
        (
            "sorts <<things>> by <<group>> and then by descending <<number>> without changing the input, and returns the <<label>>s",
            "returns <<label>>s ordered by <<group>>, ties by larger <<number>> first, on a copy",
        ),
        """
        function sorted<<Things>>(<<things>>) {
          <<doc>>
          return [...<<things>>]
            .sort((a, b) => a.<<group>>.localeCompare(b.<<group>>) || b.<<number>> - a.<<number>>)
            .map(({ <<label>> }) => <<label>>);
        }
        """,
        """
        const <<things>> = <<rows>>;
        const before = JSON.stringify(<<things>>);
        sorted<<Things>>(<<things>>) ==>
        JSON.stringify(<<things>>) === before ==>
        """,
        bugs=[
            ("sorts the input", "[...<<things>>]", "<<things>>"),
            ("subtracts text", "a.<<group>>.localeCompare(b.<<group>>)", "a.<<group>> - b.<<group>>"),
            ("sort direction", "b.<<number>> - a.<<number>>)", "a.<<number>> - b.<<number>>)"),
        ],
    ),
    javascript_task(
        "largest_thing",
        (
            "returns the <<label>> of the <<thing>> with the <<most>> <<number>>, or null for an empty array",
            "finds the <<thing>> of <<most>> <<number>> and returns its <<label>> (null when there are none)",
        ),
        """
        function <<most>><<Thing>>(<<things>>) {
          <<doc>>
          if (<<things>>.length === 0) return null;
          const best = <<things>>.reduce((a, b) => (b.<<number>> <<op>> a.<<number>> ? b : a));
          return best.<<label>>;
        }
        """,
        """
        <<most>><<Thing>>(<<rows>>) ==>
        <<most>><<Thing>>([]) ==>
        """,
        pick={"most|op": [("largest", ">"), ("smallest", "<")]},
        bugs=[
            ("reduce of nothing", "  if (<<things>>.length === 0) return null;\n", ""),
            (
                "reassigns a constant",
                "const best = <<things>>.reduce(",
                "const best = null;\n  best = <<things>>.reduce(",
            ),
            ("returns the object", "return best.<<label>>;", "return best;"),
        ],
    ),
    javascript_task(
        "count_values",
        (
            "counts how often each <<group>> occurs among the <<things>>, as [<<group>>, count] pairs, most frequent first",
            "returns the <<group>>s of the <<things>> with their counts, in descending order",
        ),
        """
        function count<<Group>>s(<<things>>) {
          <<doc>>
          const counts = {};
          for (const <<thing>> of <<things>>) {
            counts[<<thing>>.<<group>>] = (counts[<<thing>>.<<group>>] || 0) + 1;
          }
          return Object.entries(counts).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
        }
        """,
        "count<<Group>>s(<<rows>>) ==>",
        bugs=[
            ("object is no array", "Object.entries(counts).sort", "counts.sort"),
            ("not a number", "(counts[<<thing>>.<<group>>] || 0) + 1", "counts[<<thing>>.<<group>>] + 1"),
            ("undeclared variable", "const counts = {};", '"use strict"; count = {};'),
        ],
    ),
    javascript_task(
        "index_by_key",
        (
            "turns an array of <<things>> into an object keyed by <<label>>",
            "indexes <<things>> by their <<label>> with Object.fromEntries",
        ),
        """
        function index<<Things>>(<<things>>) {
          <<doc>>
          return Object.fromEntries(<<things>>.map((<<thing>>) => [<<thing>>.<<label>>, <<thing>>]));
        }
        """,
        """
        const index = index<<Things>>(<<rows3>>);
        Object.keys(index).sort() ==>
        index[<<n1>>]?.<<number>> === undefined || index[<<n1>>].<<number>> > 0 ==>
        """,
        bugs=[
            ("no pairs", "[<<thing>>.<<label>>, <<thing>>]", "<<thing>>.<<label>>"),
            ("wrong function", "Object.fromEntries(", "Object.toEntries("),
        ],
    ),
    javascript_task(
        "update_immutably",
        (
            "returns new <<things>> in which the one with the given <<label>> has its <<number>> changed by `delta`",
            "changes the <<number>> of one <<thing>> by `delta` without touching the original objects",
        ),
        """
        function adjust<<Number>>(<<things>>, <<label>>, delta) {
          <<doc>>
          return <<things>>.map((<<thing>>) =>
            <<thing>>.<<label>> === <<label>> ? { ...<<thing>>, <<number>>: <<thing>>.<<number>> + delta } : <<thing>>
          );
        }
        """,
        """
        const <<things>> = [{ <<label>>: "x1", <<number>>: <<i>> }, { <<label>>: "x2", <<number>>: <<j>> }];
        adjust<<Number>>(<<things>>, "x2", <<k>>) ==>
        <<things>>[1].<<number>> ==>
        """,
        bugs=[
            (
                "changes the original",
                "{ ...<<thing>>, <<number>>: <<thing>>.<<number>> + delta }",
                "Object.assign(<<thing>>, { <<number>>: <<thing>>.<<number>> + delta })",
            ),
            ("assignment in condition", "<<thing>>.<<label>> === <<label>> ?", "<<thing>>.<<label>> = <<label>> ?"),
            ("forEach returns nothing", "return <<things>>.map(", "return <<things>>.forEach("),
        ],
    ),
    javascript_task(
        "pick_fields",
        (
            "copies only the listed fields of each <<thing>>",
            "projects <<things>> onto the given field names; fields that are missing are left out",
        ),
        """
        function pickFields(<<things>>, fields) {
          <<doc>>
          return <<things>>.map((<<thing>>) =>
            Object.fromEntries(fields.filter((field) => field in <<thing>>).map((field) => [field, <<thing>>[field]]))
          );
        }
        """,
        """
        pickFields(<<rows3>>, ["<<label>>", "<<amount>>"]) ==>
        pickFields([{}], ["<<label>>"]) ==>
        """,
        bugs=[
            ("dot for a variable key", "[field, <<thing>>[field]]", "[field, <<thing>>.field]"),
            ("wrong test", "field in <<thing>>", "field in fields"),
        ],
    ),
    javascript_task(
        "unique_values",
        (
            "lists the different <<group>>s of the <<things>> in alphabetical order",
            "returns the unique values of <<group>>, sorted",
        ),
        """
        function unique<<Group>>s(<<things>>) {
          <<doc>>
          return [...new Set(<<things>>.map(({ <<group>> }) => <<group>>))].sort();
        }
        """,
        """
        unique<<Group>>s(<<rows>>) ==>
        unique<<Group>>s([]).length ==>
        """,
        bugs=[
            (
                "Set has no sort",
                "[...new Set(<<things>>.map(({ <<group>> }) => <<group>>))].sort()",
                "new Set(<<things>>.map(({ <<group>> }) => <<group>>)).sort()",
            ),
            ("missing new", "new Set(", "Set("),
        ],
    ),
    javascript_task(
        "average_of",
        (
            "computes the mean <<number>> of the <<things>>, rounded to <<k>> decimals, and 0 for none",
            "returns the average <<number>> with <<k>> decimals (0 for an empty array)",
        ),
        """
        function mean<<Number>>(<<things>>) {
          <<doc>>
          if (!<<things>>.length) return 0;
          const total = <<things>>.reduce((sum, <<thing>>) => sum + <<thing>>.<<number>>, 0);
          return Number((total / <<things>>.length).toFixed(<<k>>));
        }
        """,
        """
        mean<<Number>>(<<rows>>) ==>
        mean<<Number>>([]) ==>
        """,
        bugs=[
            ("object plus number", ", 0);\n", ");\n"),
            (
                "text instead of a number",
                "Number((total / <<things>>.length).toFixed(<<k>>))",
                "(total / <<things>>.length).toFixed(<<k>>)",
            ),
            ("size for length", "(total / <<things>>.length)", "(total / <<things>>.size)"),
        ],
    ),
    javascript_task(
        "partition",
        (
            "splits <<things>> in two arrays of <<label>>s: those for which the test holds, and the others",
            "partitions <<things>> by a predicate and returns both lists of <<label>>s",
        ),
        """
        function partition<<Things>>(<<things>>, test) {
          <<doc>>
          const [yes, no] = [[], []];
          <<things>>.forEach((<<thing>>) => (test(<<thing>>) ? yes : no).push(<<thing>>.<<label>>));
          return [yes, no];
        }
        """,
        """
        const <<things>> = <<rows>>;
        partition<<Things>>(<<things>>, (<<thing>>) => <<thing>>.<<number>> >= <<j>>) ==>
        partition<<Things>>(<<things>>, () => false)[0] ==>
        """,
        bugs=[
            ("test not called", "(test(<<thing>>) ? yes : no)", "(test ? yes : no)"),
            ("object destructuring", "const [yes, no] = [[], []];", "const { yes, no } = [[], []];"),
            ("comma returns the last", "return [yes, no];", "return (yes, no);"),
        ],
    ),
    javascript_task(
        "join_tables",
        (
            "adds the `<<what>>` of each <<thing>>'s <<group>> from a lookup object, with a default for unknown ones",
            "joins <<things>> with an object from <<group>> to <<what>>; unknown <<group>>s get the default",
        ),
        """
        function with<<What>>(<<things>>, lookup, fallback = <<def>>) {
          <<doc>>
          return <<things>>.map((<<thing>>) => ({ ...<<thing>>, <<what>>: lookup[<<thing>>.<<group>>] ?? fallback }));
        }
        """,
        """
        const joined = with<<What>>(<<rows3>>, { [<<g1>>]: <<v>> });
        joined.map(({ <<what>> }) => <<what>>) ==>
        """,
        pick={
            "what|What|def|v": [
                ("contact", "Contact", '"nobody"', '"Irma"'),
                ("discount", "Discount", "0", "15"),
                ("office", "Office", '"unknown"', '"B12"'),
                ("tax", "Tax", "0", "0.2"),
                ("manager", "Manager", '"vacant"', '"Otto"'),
                ("bonus", "Bonus", "0", "7"),
            ]
        },
        bugs=[
            (
                "block instead of object",
                "=> ({ ...<<thing>>, <<what>>: lookup[<<thing>>.<<group>>] ?? fallback }));",
                "=> { ...<<thing>>, <<what>>: lookup[<<thing>>.<<group>>] ?? fallback });",
            ),
            ("no fallback", " ?? fallback", ""),
            ("default after use", "fallback = <<def>>)", "fallback)"),
        ],
    ),
    javascript_task(
        "nested_access",
        (
            "reads a dotted path such as `<<group>>.<<label>>` from a nested <<thing>>, or returns the fallback",
            "returns the value at a path like `a.b.c` in an object, `fallback` where the path ends early",
        ),
        """
        function <<fn>>(object, path, fallback = null) {
          <<doc>>
          return path.split(".").reduce((value, key) => value?.[key], object) ?? fallback;
        }
        """,
        """
        const <<thing>> = { <<group>>: { <<label>>: <<n1>>, sizes: [<<i>>, <<j>>] } };
        <<fn>>(<<thing>>, "<<group>>.<<label>>") ==>
        <<fn>>(<<thing>>, "<<group>>.sizes.1") ==>
        <<fn>>(<<thing>>, "owner.name", "none") ==>
        """,
        pick={"fn": ["getPath", "readPath", "deepGet", "valueAt", "lookUp", "dig"]},
        bugs=[
            ("property of undefined", "value?.[key]", "value[key]"),
            ("dot for a variable key", "value?.[key]", "value?.key"),
            ("fallback lost", " ?? fallback", ""),
        ],
    ),
    javascript_task(
        "table_text",
        (
            "formats <<things>> as lines with the <<label>> padded to <<w>> characters and the <<number>> right-aligned in 5",
            "renders a text table of <<label>> (width <<w>>) and <<number>> (width 5), one <<thing>> a line",
        ),
        """
        function <<thing>>Table(<<things>>) {
          <<doc>>
          return <<things>>
            .map(({ <<label>>, <<number>> }) => <<label>>.padEnd(<<w>>, ".") + String(<<number>>).padStart(5))
            .join("\\n");
        }
        """,
        "<<thing>>Table(<<rows3>>) ==>",
        pick={"w": ["12", "14", "16", "18", "20", "24"]},
        bugs=[
            ("number has no pad", "String(<<number>>).padStart(5)", "<<number>>.padStart(5)"),
            ("join missing", '\n    .join("\\n")', ""),
        ],
    ),
)
