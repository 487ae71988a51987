"""JavaScript families over text, numbers, dates and plain arrays."""

from workshop.experience.javascript.records import javascript_task

FAMILIES = (
    javascript_task(
        "title_case",
        (
            "writes the first letter of every word in upper case and the rest in lower case",
            "converts a text to title case",
        ),
        """
        function <<fn>>(text) {
          <<doc>>
          return text
            .split(" ")
            .map((word) => word.charAt(0).toUpperCase() + word.slice(1).toLowerCase())
            .join(" ");
        }
        """,
        """
        <<fn>>(<<sentence1>>) ==>
        <<fn>>("") ==>
        """,
        pick={"fn": ["titleCase", "capitalizeWords", "toTitle", "headline", "properCase", "capWords"]},
        bugs=[
            ("index of empty text", "word.charAt(0).toUpperCase()", "word[0].toUpperCase()"),
            ("joins with commas", '.join(" ")', ".join()"),
            ("method name", ".toLowerCase()", ".lower()"),
        ],
    ),
    javascript_task(
        "count_letters",
        (
            "counts the letters of a text in a Map, ignoring case and other characters, sorted by letter",
            "returns sorted [letter, count] pairs of a text; only a to z count",
        ),
        """
        function <<fn>>(text) {
          <<doc>>
          const counts = new Map();
          for (const letter of text.toLowerCase().match(/[a-z]/g) ?? []) {
            counts.set(letter, (counts.get(letter) ?? 0) + 1);
          }
          return [...counts].sort(([a], [b]) => a.localeCompare(b));
        }
        """,
        """
        <<fn>>("<<s>>") ==>
        <<fn>>("42") ==>
        """,
        pick={
            "fn": ["letterCounts", "countLetters", "histogram", "letterTable", "frequency", "tally"],
            "s": ["Banana", "Mississippi", "Letter by letter", "Kayak!", "Noon moon", "Cocoa"],
        },
        bugs=[
            ("match of nothing", " ?? []) {", ") {"),
            (
                "Map as object",
                "counts.set(letter, (counts.get(letter) ?? 0) + 1);",
                "counts[letter] = (counts[letter] ?? 0) + 1;",
            ),
            ("not a number", "(counts.get(letter) ?? 0) + 1", "counts.get(letter) + 1"),
        ],
    ),
    javascript_task(
        "camel_case",
        ("turns a name in <<from>> into camelCase", "converts `<<ex>>` style names to camelCase"),
        """
        function <<fn>>(name) {
          <<doc>>
          return name
            .toLowerCase()
            .split("<<sep>>")
            .map((part, index) => (index === 0 ? part : part[0].toUpperCase() + part.slice(1)))
            .join("");
        }
        """,
        """
        <<fn>>("<<thing>><<sep>><<group>><<sep>>id") ==>
        <<fn>>("<<thing>>") ==>
        """,
        pick={
            "fn": ["toCamelCase", "camelize", "camelCase", "toCamel", "joinCamel", "asCamel"],
            "from|ex|sep": [
                ("snake_case", "first_name", "_"),
                ("kebab-case", "first-name", "-"),
                ("dotted form", "first.name", "."),
            ],
        },
        bugs=[
            ("missing parenthesis", "part.slice(1)))", "part.slice(1))"),
            ("loses the rest", "part[0].toUpperCase() + part.slice(1)", "part[0].toUpperCase()"),
            ("regex for text", '.split("<<sep>>")', ".split(/[^a-z.]/)[1]"),
        ],
    ),
    javascript_task(
        "parse_query",
        (
            "parses a query string such as `a=1&b=two` into an object; repeated keys become arrays",
            "reads a URL query into an object, with an array for keys that occur more than once",
        ),
        """
        function <<fn>>(query) {
          <<doc>>
          const result = {};
          for (const [key, value] of new URLSearchParams(query)) {
            result[key] = key in result ? [].concat(result[key], value) : value;
          }
          return result;
        }
        """,
        """
        <<fn>>("<<label>>=<<i>>&<<group>>=a%20b&<<group>>=c") ==>
        <<fn>>("") ==>
        """,
        pick={"fn": ["parseQuery", "readQuery", "queryToObject", "searchParams", "decodeQuery", "getParams"]},
        bugs=[
            ("overwrites", "key in result ? [].concat(result[key], value) : value", "value"),
            ("object is not iterable", "new URLSearchParams(query)", "{ query }"),
            ("push returns the length", "[].concat(result[key], value)", "[result[key]].push(value)"),
        ],
    ),
    javascript_task(
        "mask_text",
        (
            "replaces all but the last <<k>> characters of a text by `<<mark>>`",
            "masks a code with `<<mark>>`, leaving its last <<k>> characters readable",
        ),
        """
        function <<fn>>(text) {
          <<doc>>
          const hidden = Math.max(text.length - <<k>>, 0);
          return "<<mark>>".repeat(hidden) + text.slice(hidden);
        }
        """,
        """
        <<fn>>("<<s>>") ==>
        <<fn>>("7") ==>
        """,
        pick={
            "fn": ["mask", "hideCode", "redact", "maskText", "conceal", "obscure"],
            "mark": ["*", "#", "x"],
            "s": ["4929123412349876", "AB-1200-XY", "token9981", "DE00123456", "secretword", "0049 171 555"],
        },
        bugs=[
            ("negative count", "Math.max(text.length - <<k>>, 0)", "text.length - <<k>>"),
            ("keeps the start", "text.slice(hidden)", "text.slice(0, hidden)"),
            ("text times number", '"<<mark>>".repeat(hidden)', '"<<mark>>" * hidden'),
        ],
    ),
    javascript_task(
        "roman",
        ("writes a number from 1 to 3999 as a Roman numeral", "converts an integer to Roman numerals"),
        """
        function <<fn>>(number) {
          <<doc>>
          const symbols = [[1000, "M"], [900, "CM"], [500, "D"], [400, "CD"], [100, "C"], [90, "XC"],
            [50, "L"], [40, "XL"], [10, "X"], [9, "IX"], [5, "V"], [4, "IV"], [1, "I"]];
          let numeral = "";
          for (const [value, symbol] of symbols) {
            while (number >= value) {
              numeral += symbol;
              number -= value;
            }
          }
          return numeral;
        }
        """,
        """
        <<fn>>(<<year>>) ==>
        <<fn>>(<<j>>) ==>
        """,
        pick={"fn": ["toRoman", "roman", "romanNumeral", "asRoman", "writeRoman", "numeralOf"]},
        bugs=[
            ("assigns a constant", 'let numeral = "";', 'const numeral = "";'),
            ("if for while", "while (number >= value) {", "if (number >= value) {"),
            (
                "unpacks a number",
                "for (const [value, symbol] of symbols) {",
                "for (const [value, symbol] of symbols[0]) {",
            ),
        ],
    ),
    javascript_task(
        "chunk_array",
        ("cuts an array into chunks of `size` items", "splits an array in pieces of `size`; the last may be shorter"),
        """
        function <<fn>>(items, size) {
          <<doc>>
          const chunks = [];
          for (let start = 0; start < items.length; start += size) {
            chunks.push(items.slice(start, start + size));
          }
          return chunks;
        }
        """,
        """
        <<fn>>(<<ints1>>, <<c>>) ==>
        <<fn>>([], 2) ==>
        """,
        pick={"fn": ["chunk", "inChunks", "batches", "splitArray", "groupsOf", "paginate"], "c": ["2", "3"]},
        bugs=[
            ("constant in a loop", "for (let start = 0;", "for (const start = 0;"),
            ("splice changes the array", "items.slice(start, start + size)", "items.splice(start, size)"),
            ("step of one", "start += size", "start += 1"),
        ],
    ),
    javascript_task(
        "range_generator",
        (
            "yields the numbers from `start` up to but without `end` in steps of `step`",
            "is a generator like Python's range(start, end, step)",
        ),
        """
        function* <<fn>>(start, end, step = <<k>>) {
          <<doc>>
          for (let value = start; value < end; value += step) {
            yield value;
          }
        }
        """,
        """
        [...<<fn>>(0, <<j>>)] ==>
        Array.from(<<fn>>(5, 5)) ==>
        """,
        pick={"fn": ["range", "steps", "numbersBetween", "counting", "sequence", "stride"]},
        bugs=[
            ("no generator", "function* <<fn>>", "function <<fn>>"),
            ("return for yield", "yield value;", "return value;"),
            ("endless or late end", "value < end;", "value <= end;"),
        ],
    ),
    javascript_task(
        "flatten_deep",
        ("flattens nested arrays of any depth with recursion", "returns all leaves of nested arrays in one array"),
        """
        function <<fn>>(items) {
          <<doc>>
          return items.reduce(
            (flat, item) => (Array.isArray(item) ? [...flat, ...<<fn>>(item)] : [...flat, item]),
            []
          );
        }
        """,
        """
        <<fn>>([<<i>>, [<<j>>, [<<k>>, []]], "x"]) ==>
        <<fn>>([]) ==>
        """,
        pick={"fn": ["flattenDeep", "leaves", "unnest", "deepFlat", "flattenAll", "spreadOut"]},
        bugs=[
            ("spreads a number", "[...flat, item]", "[...flat, ...item]"),
            ("typeof array", "Array.isArray(item)", 'typeof item === "array"'),
            ("no initial value", "[...flat, item]),\n    []\n", "[...flat, item])\n"),
        ],
    ),
    javascript_task(
        "matrix",
        ("<<does>> a matrix given as an array of rows", "takes an array of rows and <<does>> the matrix"),
        """
        function <<fn>>(rows) {
          <<doc>>
          return <<expr>>;
        }
        """,
        "<<fn>>([[1, <<i>>, 3], [<<j>>, 5, 6]]) ==>",
        pick={
            "fn|does|expr": [
                ("transpose", "transposes", "rows[0].map((_, column) => rows.map((row) => row[column]))"),
                ("flipRows", "turns upside down", "[...rows].reverse()"),
                ("mirror", "mirrors each row of", "rows.map((row) => [...row].reverse())"),
                ("rowSums", "adds up each row of", "rows.map((row) => row.reduce((sum, cell) => sum + cell, 0))"),
                ("scaleByTen", "multiplies by ten every cell of", "rows.map((row) => row.map((cell) => 10 * cell))"),
                (
                    "columnSums",
                    "adds up each column of",
                    "rows[0].map((_, column) => rows.reduce((sum, row) => sum + row[column], 0))",
                ),
            ]
        },
        bugs=[
            ("wrong variable", "return <<expr>>;", "return <<expr>>.concat(matrix);"),
            ("no return", "return <<expr>>;", "<<expr>>;"),
        ],
    ),
    javascript_task(
        "prime_test",
        ("tells whether a number is prime", "returns true for prime numbers only"),
        """
        function <<fn>>(number) {
          <<doc>>
          if (number < 2) return false;
          for (let divisor = 2; divisor * divisor <= number; divisor++) {
            if (number % divisor === 0) return false;
          }
          return true;
        }
        """,
        """
        [1, 2, 9, <<i>>, <<j>>, 97].map((n) => <<fn>>(n)) ==>
        """,
        pick={"fn": ["isPrime", "prime", "checkPrime", "primeTest", "indivisible", "hasNoDivisor"]},
        bugs=[
            ("squares missed", "divisor * divisor <= number", "divisor * divisor < number"),
            ("one is prime", "  if (number < 2) return false;\n", ""),
            (
                "missing semicolon part",
                "for (let divisor = 2; divisor * divisor <= number; divisor++) {",
                "for (let divisor = 2, divisor * divisor <= number; divisor++) {",
            ),
        ],
    ),
    javascript_task(
        "binary_search",
        (
            "searches a sorted array for a value by halving and returns its index or -1",
            "finds the index of `wanted` in a sorted array with binary search (-1 if absent)",
        ),
        """
        function <<fn>>(values, wanted) {
          <<doc>>
          let [low, high] = [0, values.length - 1];
          while (low <= high) {
            const middle = Math.floor((low + high) / 2);
            if (values[middle] === wanted) return middle;
            if (values[middle] < wanted) low = middle + 1;
            else high = middle - 1;
          }
          return -1;
        }
        """,
        """
        const values = [...<<ints1>>, <<big>>].sort((a, b) => a - b);
        <<fn>>(values, <<big>>) ==>
        <<fn>>(values, -1) ==>
        """,
        pick={"fn": ["binarySearch", "findSorted", "indexOfSorted", "locate", "bisect", "searchSorted"]},
        bugs=[
            ("method name", "Math.floor(", "Math.Floor("),
            ("assigns a constant", "let [low, high]", "const [low, high]"),
            ("misses the last one", "while (low <= high)", "while (low < high)"),
        ],
    ),
    javascript_task(
        "debounce_dates",
        (
            "returns the number of days between two ISO dates",
            "computes the whole days from one ISO date to another, always positive",
        ),
        """
        function <<fn>>(from, to) {
          <<doc>>
          const day = 24 * 60 * 60 * 1000;
          return Math.abs(Date.parse(to) - Date.parse(from)) / day;
        }
        """,
        """
        <<fn>>("<<year>>-01-<<d>>", "<<year>>-03-<<d>>") ==>
        <<fn>>("<<year>>-12-31", "<<year>>-12-<<d>>") ==>
        """,
        pick={
            "fn": ["daysBetween", "dayCount", "daysApart", "spanInDays", "dateDistance", "elapsedDays"],
            "d": ["02", "07", "11", "16", "21", "26"],
        },
        bugs=[
            ("not a number", "Date.parse(to) - Date.parse(from)", "to - from"),
            ("sign lost", "Math.abs(Date.parse(to) - Date.parse(from))", "(Date.parse(from) - Date.parse(to))"),
            ("method of Date", "Date.parse(to)", "Date.read(to)"),
        ],
    ),
    javascript_task(
        "format_number",
        (
            "formats an amount with two decimals, groups of three digits separated by `<<sep>>`, and the sign `<<cur>>`",
            "writes an amount such as 1234.5 with `<<sep>>` between thousands, two decimals and `<<cur>>`",
        ),
        """
        function <<fn>>(amount) {
          <<doc>>
          const [whole, cents] = amount.toFixed(2).split(".");
          const grouped = whole.replace(/\\B(?=(\\d{3})+$)/g, "<<sep>>");
          return `${grouped}.${cents} <<cur>>`;
        }
        """,
        """
        <<fn>>(<<big>><<j>>.5) ==>
        <<fn>>(<<i>>) ==>
        """,
        pick={
            "fn": ["formatAmount", "money", "priceText", "showAmount", "asMoney", "formatPrice"],
            "sep|cur": [(",", "USD"), (" ", "EUR"), ("'", "CHF")],
        },
        bugs=[
            ("template without backticks", "`${grouped}.${cents} <<cur>>`", '"${grouped}.${cents} <<cur>>"'),
            ("split of a number", "amount.toFixed(2).split", "amount.split"),
            ("name not declared", "`${grouped}.", "`${group}."),
        ],
    ),
    javascript_task(
        "validate_text",
        ("checks a <<what>> with a regular expression", "returns whether a text is a valid <<what>>"),
        """
        function <<fn>>(text) {
          <<doc>>
          return /<<regex>>/.test(text);
        }
        """,
        """
        <<fn>>("<<good>>") ==>
        <<fn>>("<<bad>>") ==>
        <<fn>>("") ==>
        """,
        pick={
            "what|fn|regex|good|bad": [
                ("time from 00:00 to 23:59", "isTime", "^([01]\\d|2[0-3]):[0-5]\\d$", "23:15", "24:00"),
                ("hex colour like #a0b1c2", "isColor", "^#[0-9a-f]{6}$", "#00ffa1", "#00ffag"),
                ("version like 1.20.3", "isVersion", "^\\d+\\.\\d+\\.\\d+$", "1.20.3", "1.20"),
                ("plate of two letters and four digits", "isPlate", "^[A-Z]{2}\\d{4}$", "AB1234", "A12345"),
                ("lower-case identifier", "isName", "^[a-z_][a-z0-9_]*$", "row_1", "1row"),
                ("ISO date", "isIsoDate", "^\\d{4}-\\d{2}-\\d{2}$", "2026-10-01", "1.10.2026"),
            ]
        },
        bugs=[
            ("anchors and method", ".test(text)", ".match(text)"),
            ("inverted", "return /<<regex>>/", "return !/<<regex>>/"),
        ],
    ),
    javascript_task(
        "wrap_words",
        (
            "breaks a text into lines of at most `width` characters at spaces",
            "wraps words greedily so that no line is longer than `width`",
        ),
        """
        function <<fn>>(text, width) {
          <<doc>>
          const lines = [];
          let line = "";
          for (const word of text.split(" ")) {
            if (line && line.length + 1 + word.length > width) {
              lines.push(line);
              line = word;
            } else {
              line = line ? `${line} ${word}` : word;
            }
          }
          if (line) lines.push(line);
          return lines;
        }
        """,
        "<<fn>>(<<sentence1>>, <<width>>) ==>",
        pick={
            "fn": ["wrapLines", "wrapText", "foldLines", "breakLines", "fitLines", "reflow"],
            "width": ["14", "18", "20", "24", "16", "22"],
        },
        bugs=[
            ("last line lost", "  if (line) lines.push(line);\n", ""),
            ("assigns a constant", 'let line = "";', 'const line = "";'),
            ("missing brace", "    } else {\n", "    else {\n"),
        ],
    ),
)
