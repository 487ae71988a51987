"""Sound examples made by hand: each base is asked to be written, repaired, explained and predicted."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.datasets.faults.cases import Case


@dataclass(frozen=True)
class Base:
    """A small task with its solution.

    Attributes:
        call: an expression (SQL: a query; shell: a command) that uses the solution, and `value`, what it gives.
        wrong: text of the solution and the mistake that stands for it in failing code.
        says: an explanation of the solution.
    """

    language: str
    name: str
    task: str
    code: str
    call: str
    value: str
    wrong: tuple[str, str]
    says: str

    @property
    def failing(self) -> str:
        assert self.wrong[0] in self.code
        return self.code.replace(*self.wrong, 1)


TITLES = {"python": "Python", "javascript": "JavaScript", "sql": "SQL", "bash": "Bash"}
COMMENT = {"python": "#", "javascript": "//", "sql": "--", "bash": "#"}


def test_of(base: Base) -> str:
    """The line of a test that failed."""
    if base.language == "python":
        return f"assert {base.call} == {base.value}\nAssertionError"
    if base.language == "javascript":
        return f"assert.deepStrictEqual({base.call}, {base.value});\nAssertionError: not deep-equal"
    if base.language == "sql":
        return "OperationalError: near the end: syntax error"
    return f"expected {base.value}, the command printed something else"


def solve(base: Base) -> Case:
    return Case(f"{base.name}-solve", base.language, "solve", asked(base), base.code)


def asked(base: Base) -> str:
    return f"Write {TITLES[base.language]} code.\n{base.task}"


def repair(base: Base, *, task: bool = True) -> Case:
    head = f"Fix this {TITLES[base.language]} code.\n" + (f"{base.task}\n" if task else "")
    prompt = f"{head}\nCode:\n{base.failing}\n\nError:\n{test_of(base)}"
    return Case(f"{base.name}-repair", base.language, "repair", prompt, base.code)


def explain(base: Base) -> Case:
    prompt = f"Explain this {TITLES[base.language]} code.\n\n```\n{base.code}\n```"
    return Case(f"{base.name}-explain", base.language, "explain", prompt, base.says)


def diagnose(base: Base) -> Case:
    """Why failing code fails; a base whose mistake spans lines names its first."""
    prompt = f"Explain why this code fails.\n{base.task}\n\nCode:\n{base.failing}\n\nError:\n{test_of(base)}"
    old, new = base.wrong
    wrong = next(line for line in base.failing.splitlines() if new.splitlines()[0] in line)
    right = next(line for line in base.code.splitlines() if old.splitlines()[0] in line)
    said = f"{base.says}\nWrong: `{wrong.strip()}`\nRight: `{right.strip()}`"
    return Case(f"{base.name}-diagnose", base.language, "explain", prompt, said)


def predict(base: Base) -> Case:
    shown = {"python": f"print({base.call})", "javascript": f"console.log({base.call})"}.get(base.language, base.call)
    code = base.code if base.language == "sql" else f"{base.code}\n{shown}"
    prompt = f"What does this {TITLES[base.language]} code print?\n\nCode:\n{code}"
    return Case(f"{base.name}-predict", base.language, "predict", prompt, base.value)


def clean_cases() -> Iterator[Case]:
    for base in BASES:
        yield solve(base)
        yield repair(base)
        yield explain(base)
        yield diagnose(base)
        if base.value:
            yield predict(base)


PYTHON = (
    Base(
        "python",
        "median",
        "Implement `median(values)`: the middle value of a list, or the mean of both middle ones.",
        "def median(values):\n    ordered = sorted(values)\n    half = len(ordered) // 2\n    if len(ordered) % 2:\n"
        "        return ordered[half]\n    return (ordered[half - 1] + ordered[half]) / 2",
        "median([7, 1, 4])",
        "4",
        ("ordered = sorted(values)", "ordered = list(values)"),
        "An even count has no single centre, so it averages two neighbours; sorting leaves the caller's list untouched.",
    ),
    Base(
        "python",
        "rooms",
        "Write `rooms(bookings)` that returns how many rooms are needed so that no two bookings (start, end) overlap.",
        "import heapq\n\ndef rooms(bookings):\n    ends = []\n    for start, end in sorted(bookings):\n"
        "        if ends and ends[0] <= start:\n            heapq.heapreplace(ends, end)\n        else:\n"
        "            heapq.heappush(ends, end)\n    return len(ends)",
        "rooms([(9, 11), (10, 12), (11, 13)])",
        "2",
        ("ends[0] <= start", "ends[0] < start"),
        "A guest who leaves at eleven makes space for one arriving then; the earliest departure is always on top.",
    ),
    Base(
        "python",
        "account",
        "Write a class `Account` with `deposit` and `withdraw`; withdrawing more than the balance raises ValueError.",
        "class Account:\n    def __init__(self, balance=0):\n        assert balance >= 0\n        self.balance = balance\n\n"
        "    def deposit(self, amount):\n        self.balance += amount\n        return self.balance\n\n"
        "    def withdraw(self, amount):\n        if amount > self.balance:\n            raise ValueError('too much')\n"
        "        self.balance -= amount\n        return self.balance",
        "Account(50).withdraw(20)",
        "30",
        ("self.balance -= amount", "self.balance =- amount"),
        "Money can never go below zero: overdrawing is refused before anything is subtracted.",
    ),
    Base(
        "python",
        "slug",
        "I need `slug(title)`: lower case, runs of other characters than letters and digits become one hyphen.",
        "import re\n\ndef slug(title):\n    return re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')",
        "slug('Hello, World!')",
        "'hello-world'",
        (".strip('-')", ".strip()"),
        "Punctuation at either end would leave dangling hyphens, hence the trimming after the substitution.",
    ),
    Base(
        "python",
        "digits",
        "`digit_root(number)` adds up the digits until one is left.",
        "def digit_root(number):\n    assert number >= 0, 'negative'\n    while number > 9:\n"
        "        number = sum(map(int, str(number)))\n    return number\n\nprint(digit_root(987))",
        "digit_root(493)",
        "7",
        ("number > 9", "number > 10"),
        "Every round shrinks the decimal representation, so it terminates quickly even for huge inputs.",
    ),
    Base(
        "python",
        "wait_all",
        "Write an async `wait_all(jobs)` that awaits coroutines one after the other and returns their results as a list.",
        "import asyncio\n\nasync def wait_all(jobs):\n    return [await job for job in jobs]\n\n"
        "async def double(n):\n    await asyncio.sleep(0)\n    return 2 * n",
        "asyncio.run(wait_all([double(4)]))",
        "[8]",
        ("await job for", "job for"),
        "Nothing overlaps: the second coroutine begins only once the first has finished.",
    ),
    Base(
        "python",
        "by_city",
        "`df` has the columns city and sales. Give the mean sales by city, largest first, as `summary`.",
        "import pandas as pd\n\nsummary = df.groupby('city')['sales'].mean().sort_values(ascending=False)",
        "summary.index[0]",
        "'Oslo'",
        ("ascending=False", "ascending=True"),
        "Places with the best average come first; rows lacking a place are dropped by pandas.",
    ),
    Base(
        "python",
        "cached",
        "Write a decorator `memo` that remembers results by positional arguments.",
        "import functools\n\ndef memo(function):\n    known = {}\n\n    @functools.wraps(function)\n    def inner(*args):\n"
        "        if args not in known:\n            known[args] = function(*args)\n        return known[args]\n\n"
        "    return inner",
        "memo(len)('abcd')",
        "4",
        ("return known[args]", "return known"),
        "Repeated calls skip the computation; unhashable parameters would raise TypeError at the membership check.",
    ),
    Base(
        "python",
        "matrix",
        "`rotate(grid)` turns a grid of rows by 90 degrees clockwise.",
        "def rotate(grid):\n    return [list(row) for row in zip(*grid[::-1])]",
        "rotate([[1, 2], [3, 4]])",
        "[[3, 1], [4, 2]]",
        ("grid[::-1]", "grid"),
        "Turning upside down and transposing together make a quarter turn; tuples become mutable again.",
    ),
    Base(
        "python",
        "equal",
        "`same_letters(a, b)` tells whether two words are anagrams of each other.",
        "from collections import Counter\n\ndef same_letters(a, b):\n    return Counter(a.lower()) == Counter(b.lower())",
        "same_letters('Tea', 'eat')",
        "True",
        ("b.lower()", "b"),
        "Two words match when every character occurs equally often, whatever the order or capitalisation.",
    ),
    Base(
        "python",
        "parse",
        "`parse_pairs(text)` reads lines such as `key = value` and skips empty ones.",
        "def parse_pairs(text):\n    pairs = {}\n    for line in text.splitlines():\n        if not line.strip():\n"
        "            continue\n        key, _, value = line.partition('=')\n        pairs[key.strip()] = value.strip()\n"
        "    return pairs",
        "parse_pairs('port = 80')",
        "{'port': '80'}",
        ("value.strip()", "value"),
        "A later duplicate silently overrides an earlier one, and everything stays a string.",
    ),
    Base(
        "python",
        "route",
        "Serve GET /ping with starlette; it answers pong as plain text.",
        "from starlette.applications import Starlette\nfrom starlette.responses import PlainTextResponse\n"
        "from starlette.routing import Route\n\nasync def ping(request):\n    return PlainTextResponse('pong')\n\n"
        "app = Starlette(routes=[Route('/ping', ping)])",
        "app.url_path_for('ping')",
        "'/ping'",
        ("Route('/ping', ping)", "Route(ping, '/ping')"),
        "Only one path is known, anything else yields 404; the handler ignores what was sent.",
    ),
)

JAVASCRIPT = (
    Base(
        "javascript",
        "chunk",
        "Write `chunk(items, size)` that cuts an array into pieces of `size`.",
        "function chunk(items, size) {\n  const pieces = [];\n  for (let at = 0; at < items.length; at += size) {\n"
        "    pieces.push(items.slice(at, at + size));\n  }\n  return pieces;\n}",
        "chunk([1, 2, 3], 2)",
        "[[1, 2], [3]]",
        ("at += size", "at += 1"),
        "The final piece may be shorter, and a zero width would never terminate.",
    ),
    Base(
        "javascript",
        "stack",
        "Make a class `Stack` with push, pop and the getter size; pop of an empty stack throws RangeError.",
        "class Stack {\n  #items = [];\n  push(item) { this.#items.push(item); return this; }\n  pop() {\n"
        "    if (this.#items.length === 0) throw new RangeError('empty');\n    return this.#items.pop();\n  }\n"
        "  get size() { return this.#items.length; }\n}",
        "new Stack().push(4).size",
        "1",
        ("return this; }", "}"),
        "Callers cannot reach the private storage, and chaining works because adding hands back the object.",
    ),
    Base(
        "javascript",
        "group",
        "`groupBy(items, key)` returns a Map from the value at `key` to the items that have it.",
        "const groupBy = (items, key) => {\n  const groups = new Map();\n  for (const item of items) {\n"
        "    const group = groups.get(item[key]) ?? [];\n    groups.set(item[key], [...group, item]);\n  }\n"
        "  return groups;\n};",
        "groupBy([{ a: 1 }], 'a').get(1)",
        "[{ a: 1 }]",
        ("[...group, item]", "[item]"),
        "Copying on every insertion is quadratic for one crowded bucket, yet keeps insertion order.",
    ),
    Base(
        "javascript",
        "retry",
        "Write an async `retry(task, times)` that calls `task` until it does not throw, at most `times` times.",
        "async function retry(task, times) {\n  console.assert(times > 0, 'times must be positive');\n  let last;\n"
        "  for (let n = 0; n < times; n++) {\n    try {\n      return await task(n);\n    } catch (error) {\n"
        "      last = error;\n    }\n  }\n  throw last;\n}",
        "await retry(async (n) => n + 1, 3)",
        "1",
        ("return await task(n)", "return task(n)"),
        "Awaiting inside the block matters: a rejected promise handed out directly would escape the handler.",
    ),
    Base(
        "javascript",
        "debounce",
        "`once(fn)` returns a function that calls `fn` the first time and gives that result ever after.",
        "function once(fn) {\n  let called = false, result;\n  return (...args) => {\n    if (!called) {\n"
        "      called = true;\n      result = fn(...args);\n    }\n    return result;\n  };\n}",
        "once(() => 5)()",
        "5",
        ("called = true;", "called = false;"),
        "Should the wrapped callback throw, later invocations yield undefined because the flag was set beforehand.",
    ),
    Base(
        "javascript",
        "words",
        "`longest(text)` returns the longest word of a text, the first of equal ones.",
        "const longest = (text) => text.split(/\\s+/).reduce((best, word) => (word.length > best.length ? word : best), '');",
        "longest('a bcd ef')",
        "'bcd'",
        ("word.length > best.length", "word.length < best.length"),
        "Strict comparison favours the earliest candidate among ties; blank input gives an empty string.",
    ),
    Base(
        "javascript",
        "flatten",
        "`leaves(tree)` lists the values of a nested array in order.",
        "function* walk(tree) {\n  for (const node of tree) {\n    if (Array.isArray(node)) yield* walk(node);\n"
        "    else yield node;\n  }\n}\n\nfunction leaves(tree) {\n  return [...walk(tree)];\n}\n\n"
        "console.log(leaves([1, [2]]));",
        "leaves([1, [2, [3]]])",
        "[1, 2, 3]",
        ("yield* walk(node)", "yield walk(node)"),
        "Recursion happens lazily through a generator, so depth is bounded by the call stack only.",
    ),
    Base(
        "javascript",
        "query",
        "`toQuery(values)` builds a query string and leaves null and undefined out.",
        "const toQuery = (values) => {\n  const kept = Object.entries(values).filter(([, value]) => value != null);\n"
        "  return new URLSearchParams(kept).toString();\n};\n\nmodule.exports = { toQuery };",
        "toQuery({ a: 1, b: null })",
        "'a=1'",
        ("value != null", "value"),
        "Loose inequality covers both absent kinds while zero and empty text survive.",
    ),
)

SHOP = "Tables: orders(id, client_id, total, placed_on, state), clients(id, name, city)"
SQL = (
    Base(
        "sql",
        "revenue",
        f"Which city brought the most revenue in paid orders?\n{SHOP}",
        "SELECT c.city, SUM(o.total) AS revenue\nFROM orders AS o\nJOIN clients AS c ON c.id = o.client_id\n"
        "WHERE o.state = 'paid'\nGROUP BY c.city\nORDER BY revenue DESC\nLIMIT 1;",
        "SELECT 1",
        "Lisbon|90",
        ("ORDER BY revenue DESC", "ORDER revenue DESC"),
        "Unsettled purchases do not count, and of places that tie an arbitrary one is given.",
    ),
    Base(
        "sql",
        "rank",
        "Number the orders of each client from the newest to the oldest.\n\nCREATE TABLE orders (\n  id INTEGER PRIMARY KEY,\n"
        "  client_id INTEGER,\n  placed_on TEXT\n);",
        "SELECT id, client_id,\n       ROW_NUMBER() OVER (PARTITION BY client_id ORDER BY placed_on DESC) AS place\nFROM orders;",
        "SELECT 1",
        "3|1|1",
        ("OVER (PARTITION", "(PARTITION"),
        "Counting restarts for every customer; equal dates come in no fixed sequence.",
    ),
    Base(
        "sql",
        "quiet",
        f"List the clients without any order.\n{SHOP}",
        "SELECT name FROM clients\nWHERE NOT EXISTS (SELECT 1 FROM orders WHERE orders.client_id = clients.id)\nORDER BY name;",
        "SELECT 1",
        "Ines",
        ("WHERE NOT EXISTS", "WHERE NOT EXIST"),
        "An anti-join: whoever never bought anything remains, even where foreign keys hold nulls.",
    ),
    Base(
        "sql",
        "running",
        f"Give the running sum of totals over the days.\n{SHOP}",
        "WITH days AS (\n  SELECT placed_on AS day, SUM(total) AS sold FROM orders GROUP BY placed_on\n)\n"
        "SELECT day, SUM(sold) OVER (ORDER BY day) AS so_far FROM days ORDER BY day;",
        "SELECT 1",
        "2026-03-01|40",
        ("GROUP BY placed_on", "GROUP placed_on"),
        "Amounts accumulate by date; dates on which nothing was bought are absent.",
    ),
    Base(
        "sql",
        "bands",
        f"Call each order big (100 or more) or small, with the count of both.\n{SHOP}",
        "SELECT CASE WHEN total >= 100 THEN 'big' ELSE 'small' END AS band, COUNT(*) AS number\nFROM orders\nGROUP BY band;",
        "SELECT 1",
        "big|2",
        ("END AS band", "AS band"),
        "Null amounts fall into the second class, since the comparison is not true for them.",
    ),
    Base(
        "sql",
        "create",
        "Create a table `stations` with an id, a unique name and a height that is not negative, and put Pico (2351) into it.",
        "CREATE TABLE stations (\n  id INTEGER PRIMARY KEY,\n  name TEXT UNIQUE NOT NULL,\n  height REAL CHECK (height >= 0)\n);\n"
        "INSERT INTO stations (name, height) VALUES ('Pico', 2351);",
        "SELECT 1",
        "",
        ("UNIQUE NOT NULL,", "UNIQUE NOT NULL"),
        "Duplicate labels and values below sea level are refused by constraints; numbering is automatic.",
    ),
    Base(
        "sql",
        "pairs",
        "Which pairs of parts have the same colour?\n\nSchema:\nparts\n  id INTEGER\n  label TEXT\n  colour TEXT",
        "SELECT a.label, b.label\nFROM parts AS a JOIN parts AS b ON a.colour = b.colour AND a.id < b.id;",
        "SELECT 1",
        "nut|bolt",
        ("AND a.id < b.id", "AND a.id < b.nr"),
        "The inequality keeps items from meeting themselves and mirrors from showing up twice.",
    ),
)

BASH = (
    Base(
        "bash",
        "biggest",
        "Write a script that prints the three largest files below the folder given as its first argument.",
        '#!/bin/bash\nset -euo pipefail\nif [ $# -lt 1 ]; then\n  echo "usage: $0 FOLDER" >&2\n  exit 2\nfi\n'
        'find "$1" -type f -printf "%s %p\\n" | sort -rn | head -n 3',
        "bash biggest.sh logs",
        "120 logs/a.log",
        ("sort -rn", "sort -r"),
        "Without the numeric option 9 would come before 120, as text does.",
    ),
    Base(
        "bash",
        "backup",
        "Copy every .conf file of /etc/app to ~/backup unless the folder is missing.",
        'source=/etc/app\n[ -d "$source" ] || exit 1\nmkdir -p ~/backup\nfor file in "$source"/*.conf; do\n'
        '  cp -- "$file" ~/backup/\ndone',
        "ls ~/backup",
        "app.conf",
        ('"$source"/*.conf', '"$source/*.conf"'),
        "Quoting the pattern as well would keep the shell from expanding it, so one literal name is copied.",
    ),
    Base(
        "bash",
        "count",
        "A function `count_words FILE WORD` that prints how many lines of FILE hold WORD.",
        'count_words() {\n  local file=$1 word=$2\n  grep -c -w -- "$word" "$file" || true\n}',
        "count_words notes.txt tea",
        "2",
        (" || true", " && true"),
        "A search without a hit ends with status one, which would stop scripts run under errexit.",
    ),
    Base(
        "bash",
        "changes",
        "Show which files differ between the last two commits.",
        "git diff --name-only HEAD~1 HEAD",
        "git log --oneline -1",
        "a1b2 second",
        ("HEAD~1 HEAD", "HEAD~1.HEAD"),
        "Only paths are listed, neither hunks nor authors; merges compare with their first parent.",
    ),
    Base(
        "bash",
        "service",
        "Wait until http://localhost:8000/health answers, at most 30 seconds.",
        "for attempt in $(seq 30); do\n  if curl -sf http://localhost:8000/health > /dev/null; then\n    exit 0\n  fi\n"
        "  sleep 1\ndone\nexit 1",
        "echo $?",
        "0",
        ("curl -sf", "curl -s"),
        "The flag makes HTTP errors count as failures; polling happens once a second.",
    ),
)

BASES = (*PYTHON, *JAVASCRIPT, *SQL, *BASH)
