"""Python families of classes, generators, decorators, context managers and iterators."""

from workshop.experience.python.records import python_task

FAMILIES = (
    python_task(
        "stock_class",
        (
            "Write a class `<<Thing>>Stock` that adds and removes <<things>> by <<label>> and raises ValueError when too few are left.",
            "We need a `<<Thing>>Stock` class with add(<<label>>, count), remove(<<label>>, count) and count(<<label>>); removing too many is a ValueError.",
        ),
        """
        class <<Thing>>Stock:
            <<doc>>

            def __init__(self):
                self._counts = {}

            def add(self, <<label>>, count=1):
                self._counts[<<label>>] = self.count(<<label>>) + count

            def remove(self, <<label>>, count=1):
                if count > self.count(<<label>>):
                    raise ValueError(f"only {self.count(<<label>>)} of {<<label>>} left")
                self._counts[<<label>>] -= count

            def count(self, <<label>>):
                return self._counts.get(<<label>>, 0)
        """,
        """
        stock = <<Thing>>Stock()
        stock.add(<<n1>>, <<i>>)
        stock.remove(<<n1>>, 2)
        stock.count(<<n1>>) ==>
        stock.count(<<n2>>) ==>
        """,
        bugs=[
            ("forgotten self", "def count(self, <<label>>):", "def count(<<label>>):"),
            ("attribute typo", "return self._counts.get(", "return self.counts.get("),
            (
                "key error",
                "self._counts[<<label>>] = self.count(<<label>>) + count",
                "self._counts[<<label>>] += count",
            ),
        ],
    ),
    python_task(
        "dataclass_total",
        (
            "Define a frozen dataclass `<<Thing>>` with <<label>>, <<number_words>> and <<amount_words>> and a property `total` that multiplies the two numbers.",
            "Model a <<thing>> as an immutable dataclass (<<label>>, <<number_words>>, <<amount_words>>) whose `total` is <<number_words>> times <<amount_words>>.",
        ),
        """
        from dataclasses import dataclass

        @dataclass(frozen=True)
        class <<Thing>>:
            <<doc>>

            <<label>>: str
            <<number>>: int
            <<amount>>: int = 1

            @property
            def total(self):
                return self.<<number>> * self.<<amount>>
        """,
        """
        <<thing>> = <<Thing>>(<<n1>>, <<j>>, <<k>>)
        <<thing>>.total ==>
        <<Thing>>(<<n2>>, <<i>>) == <<Thing>>(<<n2>>, <<i>>, 1) ==>
        """,
        bugs=[
            ("missing import", "from dataclasses import dataclass\n\n", ""),
            (
                "default before required",
                "<<number>>: int\n    <<amount>>: int = 1",
                "<<number>>: int = 0\n    <<amount>>: int",
            ),
            ("missing property", "    @property\n    def total", "    def total"),
        ],
    ),
    python_task(
        "bounded_queue",
        (
            "Write a class `<<Thing>>Queue` that keeps only the latest `size` <<things>>; `latest()` lists them, newest first.",
            "Implement `<<Thing>>Queue(size)` with push(<<thing>>) and latest(): older <<things>> fall out when it is full.",
        ),
        """
        from collections import deque

        class <<Thing>>Queue:
            <<doc>>

            def __init__(self, size):
                self._items = deque(maxlen=size)

            def push(self, <<thing>>):
                self._items.append(<<thing>>)

            def latest(self):
                return list(reversed(self._items))

            def __len__(self):
                return len(self._items)
        """,
        """
        queue = <<Thing>>Queue(3)
        for <<thing>> in <<labels>>:
            queue.push(<<thing>>)
        queue.latest() ==>
        len(queue) ==>
        """,
        bugs=[
            ("missing import", "from collections import deque\n\n", ""),
            ("wrong keyword", "deque(maxlen=size)", "deque(size=size)"),
            ("iterator returned", "list(reversed(self._items))", "reversed(self._items)"),
            ("unbounded", "deque(maxlen=size)", "deque()"),
        ],
    ),
    python_task(
        "account_class",
        (
            "Write a class `<<Name>>` with a balance, `<<put>>(amount)` and `<<take>>(amount)`; taking more than there is raises ValueError.",
            "Create a `<<Name>>` class that starts with a balance, supports <<put>> and <<take>>, and refuses to go below zero.",
        ),
        """
        class <<Name>>:
            <<doc>>

            def __init__(self, balance=0):
                self.balance = balance

            def <<put>>(self, amount):
                if amount <= 0:
                    raise ValueError("amount must be positive")
                self.balance += amount
                return self

            def <<take>>(self, amount):
                if amount > self.balance:
                    raise ValueError("not enough left")
                self.balance -= amount
                return self
        """,
        """
        box = <<Name>>(<<j>>).<<put>>(<<i>>).<<take>>(<<k>>)
        box.balance ==>
        try:
            box.<<take>>(10_000)
            outcome = "taken"
        except ValueError as error:
            outcome = str(error)
        outcome ==>
        """,
        pick={
            "Name|put|take": [
                ("Account", "deposit", "withdraw"),
                ("Tank", "fill", "drain"),
                ("Wallet", "earn", "spend"),
                ("Battery", "charge", "use"),
                ("Pantry", "store", "eat"),
                ("Vault", "put", "take"),
                ("Reservoir", "collect", "release"),
            ]
        },
        bugs=[
            ("no chaining", "        self.balance += amount\n        return self", "        self.balance += amount"),
            ("local variable", "        self.balance -= amount", "        balance -= amount"),
            ("wrong constructor", "def __init__(self, balance=0):", "def __init__(self):"),
        ],
    ),
    python_task(
        "ordering_class",
        (
            "Make <<things>> sortable: a class `<<Thing>>` that compares by <<number_words>> and prints as `<<label>>(<<number_words>>)`.",
            "Write a `<<Thing>>` class with total ordering by <<number_words>> and a readable repr.",
        ),
        """
        from functools import total_ordering

        @total_ordering
        class <<Thing>>:
            <<doc>>

            def __init__(self, <<label>>, <<number>>):
                self.<<label>> = <<label>>
                self.<<number>> = <<number>>

            def __eq__(self, other):
                return self.<<number>> == other.<<number>>

            def __lt__(self, other):
                return self.<<number>> < other.<<number>>

            def __repr__(self):
                return f"{self.<<label>>}({self.<<number>>})"
        """,
        """
        <<things>> = [<<Thing>>(<<n1>>, <<j>>), <<Thing>>(<<n2>>, <<k>>), <<Thing>>(<<n3>>, <<i>>)]
        [repr(<<thing>>) for <<thing>> in sorted(<<things>>)] ==>
        <<things>>[0] >= <<things>>[1] ==>
        """,
        bugs=[
            ("missing import", "from functools import total_ordering\n\n", ""),
            ("no ordering", "    def __lt__(self, other):\n        return self.<<number>> < other.<<number>>\n\n", ""),
            ("repr returns no text", 'return f"{self.<<label>>}({self.<<number>>})"', "return self.<<number>>"),
            ("attribute never set", "        self.<<number>> = <<number>>\n", ""),
        ],
    ),
    python_task(
        "shapes",
        (
            "Write classes for <<shapes>> with a common method `<<method>>` and a function `total_<<method>>` that adds it up.",
            "Model <<shapes>> as classes that share a `<<method>>` method; `total_<<method>>` sums it over a list.",
        ),
        """
        class <<A>>:
            def __init__(self, <<x>>):
                self.<<x>> = <<x>>

            def <<method>>(self):
                return <<fa>>

        class <<B>>:
            def __init__(self, <<y>>, <<z>>):
                self.<<y>> = <<y>>
                self.<<z>> = <<z>>

            def <<method>>(self):
                return <<fb>>

        def total_<<method>>(shapes):
            return sum(shape.<<method>>() for shape in shapes)
        """,
        """
        total_<<method>>([<<A>>(<<i>>), <<B>>(<<k>>, <<j>>)]) ==>
        total_<<method>>([]) ==>
        """,
        pick={
            "shapes|A|B|x|y|z|method|fa|fb": [
                (
                    "squares and rectangles",
                    "Square",
                    "Rectangle",
                    "side",
                    "width",
                    "height",
                    "area",
                    "self.side ** 2",
                    "self.width * self.height",
                ),
                (
                    "squares and rectangles",
                    "Square",
                    "Rectangle",
                    "side",
                    "width",
                    "height",
                    "perimeter",
                    "4 * self.side",
                    "2 * (self.width + self.height)",
                ),
                (
                    "cubes and boxes",
                    "Cube",
                    "Box",
                    "edge",
                    "base",
                    "height",
                    "volume",
                    "self.edge ** 3",
                    "self.base * self.height",
                ),
                (
                    "hourly and salaried workers",
                    "Hourly",
                    "Salaried",
                    "hours",
                    "salary",
                    "bonus",
                    "pay",
                    "self.hours * 21",
                    "self.salary + self.bonus",
                ),
                (
                    "books and films",
                    "Book",
                    "Film",
                    "pages",
                    "minutes",
                    "breaks",
                    "duration",
                    "self.pages * 2",
                    "self.minutes + 10 * self.breaks",
                ),
                (
                    "vans and trains",
                    "Van",
                    "Train",
                    "crates",
                    "wagons",
                    "load",
                    "capacity",
                    "self.crates * 12",
                    "self.wagons * self.load",
                ),
            ]
        },
        bugs=[
            ("attribute missing", "        self.<<z>> = <<z>>\n", ""),
            ("method not called", "shape.<<method>>() for", "shape.<<method>> for"),
            ("missing self", "def total_<<method>>(shapes):", "def total_<<method>>(self, shapes):"),
        ],
    ),
    python_task(
        "generator_window",
        (
            "yields the <<things>>' <<label>>s in pairs of neighbours",
            "is a generator of (previous, next) pairs over the <<label>>s of <<things>>",
        ),
        """
        def <<thing>>_pairs(<<label>>s):
            <<doc>>
            iterator = iter(<<label>>s)
            previous = next(iterator, None)
            for <<label>> in iterator:
                yield previous, <<label>>
                previous = <<label>>
        """,
        """
        list(<<thing>>_pairs(<<labels>>)) ==>
        list(<<thing>>_pairs([])) ==>
        """,
        bugs=[
            ("stop iteration", "next(iterator, None)", "next(iterator)"),
            ("returns instead of yields", "yield previous, <<label>>", "return previous, <<label>>"),
            ("stale previous", "        previous = <<label>>", "        pass"),
            ("list is no iterator", "iterator = iter(<<label>>s)", "iterator = <<label>>s"),
        ],
    ),
    python_task(
        "sequence_generator",
        (
            "yields the first `count` numbers of the sequence that starts with <<a>>, <<b>> and goes on with <<rule>>",
            "generates `count` numbers: <<a>>, <<b>>, then <<rule>>",
        ),
        """
        def <<fn>>(count):
            <<doc>>
            first, second = <<a>>, <<b>>
            for _ in range(count):
                yield first
                first, second = second, <<expr>>
        """,
        """
        list(<<fn>>(8)) ==>
        list(<<fn>>(0)) ==>
        """,
        pick={
            "fn|a|b|rule|expr": [
                ("fibonacci", "0", "1", "the sum of the last two", "first + second"),
                ("lucas", "2", "1", "the sum of the last two", "first + second"),
                ("pell", "0", "1", "twice the last plus the one before", "2 * second + first"),
                ("jacobsthal", "0", "1", "the last plus twice the one before", "second + 2 * first"),
                ("doubled_gaps", "1", "2", "three times the last minus twice the one before", "3 * second - 2 * first"),
                ("alternating", "5", "3", "the difference of the last two", "second - first"),
            ]
        },
        bugs=[
            (
                "sequential update",
                "        first, second = second, <<expr>>",
                "        first = second\n        second = <<expr>>",
            ),
            ("iterates a number", "range(count)", "count"),
            ("yields the wrong one", "yield first", "yield second"),
        ],
    ),
    python_task(
        "memo_decorator",
        (
            "Write a decorator `<<deco>>` that caches results by argument and counts how often the function really ran.",
            "Implement the decorator `<<deco>>`: repeated calls with the same argument come from a cache; `.runs` counts real calls.",
        ),
        """
        from functools import wraps

        def <<deco>>(function):
            <<doc>>
            cache = {}

            @wraps(function)
            def wrapper(argument):
                if argument not in cache:
                    wrapper.runs += 1
                    cache[argument] = function(argument)
                return cache[argument]

            wrapper.runs = 0
            return wrapper
        """,
        """
        @<<deco>>
        def <<inner>>(number):
            return <<expr>>

        [<<inner>>(number) for number in (<<i>>, <<k>>, <<i>>)] ==>
        <<inner>>.runs ==>
        <<inner>>.__name__ ==>
        """,
        pick={
            "deco": ["cached", "remember", "memoized", "keep_results", "memo", "once_each"],
            "inner|expr": [
                ("square", "number ** 2"),
                ("triple", "3 * number"),
                ("half", "number / 2"),
                ("negate", "-number"),
                ("cube", "number ** 3"),
                ("next_odd", "number + 1 + number % 2"),
            ],
        },
        bugs=[
            ("missing import", "from functools import wraps\n\n", ""),
            ("wrapper not returned", "    wrapper.runs = 0\n    return wrapper", "    wrapper.runs = 0"),
            ("counter never set", "    wrapper.runs = 0\n", ""),
            ("cache not used", "if argument not in cache:", "if argument in cache:"),
        ],
    ),
    python_task(
        "retry_decorator",
        (
            "Write a decorator factory `<<deco>>(times)` that calls a function again when it raises <<Error>> and re-raises the last one.",
            "Implement `@<<deco>>(times)`: up to `times` attempts, only <<Error>> is retried.",
        ),
        """
        from functools import wraps

        def <<deco>>(times):
            <<doc>>
            def decorate(function):
                @wraps(function)
                def wrapper(*args):
                    for attempt in range(1, times + 1):
                        try:
                            return function(*args)
                        except <<Error>>:
                            if attempt == times:
                                raise
                return wrapper
            return decorate
        """,
        """
        calls = []

        @<<deco>>(3)
        def flaky(value):
            calls.append(value)
            if len(calls) < 3:
                raise <<Error>>("not yet")
            return value * 2

        flaky(<<i>>) ==>
        len(calls) ==>
        """,
        pick={
            "deco": ["retry", "attempts", "persistent", "try_again", "repeat", "tries"],
            "Error": ["ValueError", "OSError", "TimeoutError", "ConnectionError", "RuntimeError", "LookupError"],
        },
        bugs=[
            ("decorator not returned", "        return wrapper\n    return decorate", "        return wrapper"),
            ("one attempt too few", "range(1, times + 1)", "range(1, times)"),
            ("arguments lost", "return function(*args)", "return function()"),
        ],
    ),
    python_task(
        "context_manager",
        (
            "Write a context manager `<<fn>>` that records `<<enter>>` and `<<leave>>` of a named <<thing>> in a log, also when the block fails.",
            "Implement `<<fn>>(log, <<label>>)` with contextlib: it logs <<enter>> before the block and <<leave>> after it, whatever happens.",
        ),
        """
        from contextlib import contextmanager

        @contextmanager
        def <<fn>>(log, <<label>>):
            <<doc>>
            log.append(f"<<enter>> {<<label>>}")
            try:
                yield log
            finally:
                log.append(f"<<leave>> {<<label>>}")
        """,
        """
        log = []
        try:
            with <<fn>>(log, <<n1>>):
                log.append("work")
                raise RuntimeError("stop")
        except RuntimeError:
            log.append("handled")
        log ==>
        """,
        pick={
            "fn": ["session", "tracked", "traced", "logged", "guarded", "scope"],
            "enter|leave": [
                ("open", "close"),
                ("start", "stop"),
                ("enter", "leave"),
                ("lock", "unlock"),
                ("begin", "end"),
                ("borrow", "return"),
            ],
        },
        bugs=[
            (
                "not cleaned up on failure",
                "    try:\n        yield log\n    finally:\n        log",
                "    yield log\n    log",
            ),
            ("missing decorator", "@contextmanager\n", ""),
            ("missing import", "from contextlib import contextmanager\n\n", ""),
        ],
    ),
    python_task(
        "enum_states",
        (
            "Define an Enum `<<Name>>` with the states <<a>>, <<b>>, <<c>> and a method `next` that moves on and stays at the last one.",
            "Write an Enum `<<Name>>` (<<a>>, <<b>>, <<c>>); its `next()` gives the following state, the last one stays.",
        ),
        """
        from enum import Enum

        class <<Name>>(Enum):
            <<doc>>

            <<A>> = "<<a>>"
            <<B>> = "<<b>>"
            <<C>> = "<<c>>"

            def next(self):
                states = list(<<Name>>)
                position = states.index(self)
                return states[min(position + 1, len(states) - 1)]
        """,
        """
        <<Name>>("<<a>>").next().value ==>
        <<Name>>.<<C>>.next().value ==>
        [state.value for state in <<Name>>] ==>
        """,
        pick={
            "Name|A|B|C|a|b|c": [
                ("OrderState", "PLACED", "PAID", "SENT", "placed", "paid", "sent"),
                ("Light", "GREEN", "AMBER", "RED", "green", "amber", "red"),
                ("Stage", "EGG", "LARVA", "MOTH", "egg", "larva", "moth"),
                ("Review", "DRAFT", "OPEN", "DONE", "draft", "open", "done"),
                ("Phase", "SOLID", "LIQUID", "GAS", "solid", "liquid", "gas"),
                ("Level", "LOW", "MEDIUM", "HIGH", "low", "medium", "high"),
                ("Visa", "APPLIED", "CHECKED", "GRANTED", "applied", "checked", "granted"),
            ]
        },
        bugs=[
            ("missing import", "from enum import Enum\n\n", ""),
            ("index out of range", "states[min(position + 1, len(states) - 1)]", "states[position + 1]"),
            ("lookup by value", "states.index(self)", "states.index(self.value)"),
        ],
    ),
    python_task(
        "inventory_report",
        (
            "prints the <<things>> as lines of `<<label>>: <<number_words>>` with dots up to column <<w>>, and the total at the end",
            "formats <<things>> as a report with dotted leaders (width <<w>>) and a final total of <<number_words>>",
        ),
        """
        def <<thing>>_report(<<things>>):
            <<doc>>
            lines = [f"{row['<<label>>']:.<<<w>>}{row['<<number>>']:.>6}" for row in <<things>>]
            total = sum(row["<<number>>"] for row in <<things>>)
            return "\\n".join([*lines, f"total {total}"])
        """,
        """
        print(<<thing>>_report(<<rows3>>))
        <<thing>>_report([]) ==>
        """,
        pick={"w": ["12", "14", "16", "18", "20", "24"]},
        bugs=[
            ("joins numbers", 'f"total {total}"', "total"),
            ("key error", 'row["<<number>>"] for row', 'row["numbers"] for row'),
            (
                "concatenates list and text",
                '"\\n".join([*lines, f"total {total}"])',
                '"\\n".join(lines + f"total {total}")',
            ),
        ],
    ),
    python_task(
        "linked_list",
        (
            "Write a singly linked list `<<Name>>` with push_front, a method `<<rev>>` that reverses it in place, and iteration.",
            "Implement a linked list class `<<Name>>`: push_front(value), iteration from the head, and in-place `<<rev>>()`.",
        ),
        """
        class <<Name>>:
            <<doc>>

            def __init__(self):
                self.head = None

            def push_front(self, value):
                self.head = (value, self.head)

            def __iter__(self):
                node = self.head
                while node is not None:
                    yield node[0]
                    node = node[1]

            def <<rev>>(self):
                previous = None
                for value in self:
                    previous = (value, previous)
                self.head = previous
        """,
        """
        chain = <<Name>>()
        for value in <<vals>>:
            chain.push_front(value)
        list(chain) ==>
        chain.<<rev>>()
        list(chain) ==>
        """,
        pick={
            "Name": ["Chain", "LinkedList", "Track", "Cord", "Stack", "Rope"],
            "rev": ["reverse", "turn", "flip", "invert"],
            "vals": ["<<labels3>>", "<<ints1>>"],
        },
        bugs=[
            ("result not stored", "        self.head = previous", "        head = previous"),
            ("endless or missing link", "self.head = (value, self.head)", "self.head = (value, None)"),
            ("attribute error", "node = self.head\n", "node = self.first\n"),
        ],
    ),
)
