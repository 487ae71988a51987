"""JavaScript families of classes, closures, promises, iterators and events."""

from workshop.experience.javascript.records import javascript_task

FAMILIES = (
    javascript_task(
        "counter_closure",
        (
            "returns an object with `add`, `reset` and `value` that share a private count starting at `start`",
            "makes a counter by closure: add(step = <<k>>), reset() and value()",
        ),
        """
        function <<fn>>(start = <<i>>) {
          <<doc>>
          let count = start;
          return {
            add: (step = <<k>>) => (count += step),
            reset: () => { count = start; },
            value: () => count,
          };
        }
        """,
        """
        const counter = <<fn>>();
        counter.add() ==>
        counter.add(<<j>>) ==>
        counter.reset();
        counter.value() ==>
        counter.count ==>
        """,
        pick={"fn": ["makeCounter", "createCounter", "counterFrom", "newTally", "startCounting", "buildCounter"]},
        bugs=[
            ("assigns a constant", "let count = start;", "const count = start;"),
            ("this in an arrow", "value: () => count,", "value: () => this.count,"),
            ("missing comma", "(count += step),", "(count += step)"),
        ],
    ),
    javascript_task(
        "private_class",
        (
            "Write a JavaScript class `<<Name>>` with a private balance, `<<put>>(amount)` and `<<take>>(amount)`; taking too much throws a RangeError.",
            "Implement class `<<Name>>` in JavaScript: private field #balance, methods <<put>> and <<take>> (RangeError when not enough), getter balance.",
        ),
        """
        class <<Name>> {
          #balance = 0;

          get balance() {
            return this.#balance;
          }

          <<put>>(amount) {
            this.#balance += amount;
            return this;
          }

          <<take>>(amount) {
            if (amount > this.#balance) throw new RangeError("not enough left");
            this.#balance -= amount;
            return this;
          }
        }
        """,
        """
        const box = new <<Name>>().<<put>>(<<j>>).<<take>>(<<k>>);
        box.balance ==>
        let message = "taken";
        try { box.<<take>>(10000); } catch (error) { message = `${error.name}: ${error.message}`; }
        message ==>
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
            ("no chaining", "    this.#balance += amount;\n    return this;", "    this.#balance += amount;"),
            ("field not declared", "  #balance = 0;\n\n", ""),
            ("missing this", "    return this.#balance;", "    return balance;"),
            ("wrong error", "new RangeError(", "RangeEror("),
        ],
    ),
    javascript_task(
        "inheritance",
        (
            "Write JavaScript classes `<<A>>` and `<<B>> extends <<A>>` with a method `describe()` that the second one extends.",
            "In JavaScript, derive `<<B>>` from `<<A>>`; `describe()` adds the <<extra>> to the text of the parent.",
        ),
        """
        class <<A>> {
          constructor(<<p>>) {
            this.<<p>> = <<p>>;
          }

          describe() {
            return `<<p>> ${this.<<p>>}`;
          }
        }

        class <<B>> extends <<A>> {
          constructor(<<p>>, <<extra>>) {
            super(<<p>>);
            this.<<extra>> = <<extra>>;
          }

          describe() {
            return `${super.describe()}, <<extra>> ${this.<<extra>>}`;
          }
        }
        """,
        """
        new <<B>>(<<n1>>, <<i>>).describe() ==>
        new <<B>>(<<n2>>, <<k>>) instanceof <<A>> ==>
        """,
        pick={
            "A|B|p|extra": [
                ("Animal", "Dog", "name", "tricks"),
                ("Vehicle", "Truck", "plate", "load"),
                ("Person", "Pilot", "name", "flights"),
                ("Plant", "Tree", "species", "rings"),
                ("Document", "Letter", "title", "stamps"),
                ("Tool", "Drill", "brand", "watts"),
            ]
        },
        bugs=[
            ("super not called", "    super(<<p>>);\n", ""),
            ("endless recursion", "super.describe()", "this.describe()"),
            ("unknown parent", "class <<B>> extends <<A>>", "class <<B>> extends <<A>>Base"),
        ],
    ),
    javascript_task(
        "promise_all",
        (
            "loads several <<things>> at once with a given async loader and returns their <<number>> total",
            "awaits `load(id)` for all ids in parallel and adds up the <<number>>",
        ),
        """
        async function total<<Number>>(ids, load) {
          <<doc>>
          const <<things>> = await Promise.all(ids.map((id) => load(id)));
          return <<things>>.reduce((sum, <<thing>>) => sum + <<thing>>.<<number>>, 0);
        }
        """,
        """
        const load = async (id) => ({ id, <<number>>: id * <<k>> });
        await total<<Number>>([1, 2, <<i>>], load) ==>
        await total<<Number>>([], load) ==>
        """,
        bugs=[
            ("missing await", "await Promise.all(", "Promise.all("),
            ("array of promises", "await Promise.all(ids.map((id) => load(id)))", "ids.map((id) => load(id))"),
            ("await outside async", "async function total<<Number>>", "function total<<Number>>"),
        ],
    ),
    javascript_task(
        "retry_async",
        (
            "calls an async function up to `times` times and rethrows its last error",
            "retries a failing async function; after `times` attempts the error is passed on",
        ),
        """
        async function <<fn>>(action, times = 3) {
          <<doc>>
          for (let attempt = 1; ; attempt++) {
            try {
              return await action(attempt);
            } catch (error) {
              if (attempt >= times) throw error;
            }
          }
        }
        """,
        """
        const flaky = async (attempt) => {
          if (attempt < <<n>>) throw new Error(`failed ${attempt}`);
          return `done after ${attempt}`;
        };
        await <<fn>>(flaky) ==>
        await <<fn>>(flaky, 1).catch((error) => error.message) ==>
        """,
        pick={"fn": ["retry", "tryAgain", "persist", "withRetries", "attempt", "repeatUntilDone"], "n": ["2", "3"]},
        bugs=[
            ("promise not awaited", "return await action(attempt);", "return action(attempt);"),
            (
                "off by one",
                "if (attempt >= times) throw error;",
                "if (attempt > times) throw error; else if (attempt === times) return undefined;",
            ),
            ("error swallowed", "if (attempt >= times) throw error;", "if (attempt >= times) return error;"),
        ],
    ),
    javascript_task(
        "sleep_order",
        (
            "runs async steps one after the other and returns a log of when each one starts and ends",
            "runs `steps` (objects with name and ms) in sequence, logging start and end of each",
        ),
        """
        const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

        async function <<fn>>(steps) {
          <<doc>>
          const log = [];
          for (const { name, ms } of steps) {
            log.push(`start ${name}`);
            await sleep(ms);
            log.push(`end ${name}`);
          }
          return log;
        }
        """,
        "await <<fn>>([{ name: <<n1>>, ms: <<k>> }, { name: <<n2>>, ms: 1 }]) ==>",
        pick={"fn": ["runInOrder", "runSteps", "oneByOne", "inSequence", "runSerial", "stepThrough"]},
        bugs=[
            (
                "forEach does not wait",
                "for (const { name, ms } of steps) {\n    log.push(`start ${name}`);\n    await sleep(ms);\n    log.push(`end ${name}`);\n  }",
                "steps.forEach(async ({ name, ms }) => {\n    log.push(`start ${name}`);\n    await sleep(ms);\n    log.push(`end ${name}`);\n  });",
            ),
            (
                "not a promise",
                "new Promise((resolve) => setTimeout(resolve, ms))",
                "setTimeout(() => undefined, ms).promise()",
            ),
        ],
    ),
    javascript_task(
        "settle",
        (
            "runs all jobs and separates fulfilled values from error messages",
            "waits for all promises with allSettled and returns { values, errors }",
        ),
        """
        async function <<fn>>(jobs) {
          <<doc>>
          const outcomes = await Promise.allSettled(jobs.map((job) => job()));
          return {
            values: outcomes.filter(({ status }) => status === "fulfilled").map(({ value }) => value),
            errors: outcomes.filter(({ status }) => status === "rejected").map(({ reason }) => reason.message),
          };
        }
        """,
        """
        await <<fn>>([
          async () => <<i>>,
          async () => { throw new Error("no <<thing>>"); },
          () => Promise.resolve(<<n1>>),
        ]) ==>
        """,
        pick={"fn": ["settleAll", "runAll", "collectOutcomes", "gather", "outcomesOf", "waitForAll"]},
        bugs=[
            ("one failure ends all", "Promise.allSettled(", "Promise.all("),
            ("functions not called", "jobs.map((job) => job())", "jobs"),
            ("wrong property", "({ reason }) => reason.message", "({ error }) => error.message"),
        ],
    ),
    javascript_task(
        "emitter",
        (
            "Write a small JavaScript event emitter class `<<Name>>` with on, off and emit; emit returns the handlers' results.",
            "Implement `<<Name>>` in JavaScript: on(event, handler) returns a function that removes it, emit(event, ...args) collects results.",
        ),
        """
        class <<Name>> {
          constructor() {
            this.handlers = new Map();
          }

          on(event, handler) {
            const list = this.handlers.get(event) ?? [];
            this.handlers.set(event, [...list, handler]);
            return () => this.off(event, handler);
          }

          off(event, handler) {
            this.handlers.set(event, (this.handlers.get(event) ?? []).filter((item) => item !== handler));
          }

          emit(event, ...args) {
            return (this.handlers.get(event) ?? []).map((handler) => handler(...args));
          }
        }
        """,
        """
        const bus = new <<Name>>();
        const stop = bus.on("<<thing>>", (value) => value * <<k>>);
        bus.on("<<thing>>", (value) => `got ${value}`);
        bus.emit("<<thing>>", <<i>>) ==>
        stop();
        bus.emit("<<thing>>", <<j>>) ==>
        bus.emit("other") ==>
        """,
        pick={"Name": ["Bus", "Emitter", "Hub", "Channel", "Signals", "Dispatcher"]},
        bugs=[
            ("nothing to map", "return (this.handlers.get(event) ?? []).map(", "return this.handlers.get(event).map("),
            ("results lost", "?? []).map((handler)", "?? []).forEach((handler)"),
            (
                "lost this",
                "return () => this.off(event, handler);",
                "return function () { this.off(event, handler); };",
            ),
            ("wrong filter", "item !== handler", "item === handler"),
        ],
    ),
    javascript_task(
        "queue_iterator",
        (
            "Write an iterable JavaScript class `<<Name>>` with enqueue, dequeue and size.",
            "Implement a queue `<<Name>>` in JavaScript that for...of walks from the first to the last.",
        ),
        """
        class <<Name>> {
          #items = [];

          enqueue(...<<things>>) {
            this.#items.push(...<<things>>);
            return this;
          }

          dequeue() {
            return this.#items.shift();
          }

          get size() {
            return this.#items.length;
          }

          *[Symbol.iterator]() {
            yield* this.#items;
          }
        }
        """,
        """
        const queue = new <<Name>>().enqueue(<<n1>>, <<n2>>).enqueue(<<n3>>);
        queue.dequeue() ==>
        [...queue] ==>
        queue.size ==>
        """,
        pick={"Name": ["Queue", "Line", "WaitingList", "Pipeline", "Backlog", "Inbox"]},
        bugs=[
            ("not iterable", "  *[Symbol.iterator]() {\n    yield* this.#items;\n  }\n", ""),
            ("takes the last one", "this.#items.shift()", "this.#items.pop()"),
            ("array in the array", "this.#items.push(...<<things>>)", "this.#items.push(<<things>>)"),
            ("yields the array", "yield* this.#items", "yield this.#items"),
        ],
    ),
    javascript_task(
        "memoize",
        (
            "wraps a function so that results are cached by its arguments; `.misses()` tells how often it really ran",
            "memoizes a function by its JSON-encoded arguments and counts misses",
        ),
        """
        function <<fn>>(compute) {
          <<doc>>
          const cache = new Map();
          let misses = 0;
          const wrapped = (...args) => {
            const key = JSON.stringify(args);
            if (!cache.has(key)) {
              misses += 1;
              cache.set(key, compute(...args));
            }
            return cache.get(key);
          };
          wrapped.misses = () => misses;
          return wrapped;
        }
        """,
        """
        const <<inner>> = <<fn>>((a, b) => <<expr>>);
        [<<inner>>(<<i>>, 2), <<inner>>(<<i>>, 2), <<inner>>(1, <<k>>)] ==>
        <<inner>>.misses() ==>
        """,
        pick={
            "fn": ["memoize", "cached", "remember", "memo", "keepResults", "once"],
            "inner|expr": [
                ("add", "a + b"),
                ("power", "a ** b"),
                ("area", "a * b"),
                ("join", "`${a}-${b}`"),
                ("larger", "Math.max(a, b)"),
                ("pair", "[a, b]"),
            ],
        },
        bugs=[
            ("arrays as keys", "const key = JSON.stringify(args);", "const key = args;"),
            ("arguments not spread", "compute(...args)", "compute(args)"),
            ("wrapper not returned", "  return wrapped;\n", ""),
        ],
    ),
    javascript_task(
        "compose",
        (
            "returns a function that applies the given functions from <<dir>>",
            "composes functions: the result of one is the input of the next, <<dir>>",
        ),
        """
        function <<fn>>(...functions) {
          <<doc>>
          return (input) => functions.<<method>>((value, apply) => apply(value), input);
        }
        """,
        """
        const double = (n) => 2 * n;
        const minus = (n) => n - <<k>>;
        <<fn>>(double, minus)(<<i>>) ==>
        <<fn>>()(<<j>>) ==>
        """,
        pick={
            "fn|dir|method": [
                ("pipe", "left to right", "reduce"),
                ("compose", "right to left", "reduceRight"),
                ("flow", "left to right", "reduce"),
                ("chain", "left to right", "reduce"),
                ("combine", "right to left", "reduceRight"),
                ("sequence", "left to right", "reduce"),
            ]
        },
        bugs=[
            ("initial value missing", "apply(value), input);", "apply(value));"),
            ("called at once", "return (input) => functions", "return functions"),
            ("wrong order of arguments", "(value, apply) => apply(value)", "(apply, value) => apply(value)"),
        ],
    ),
    javascript_task(
        "bind_method",
        (
            "returns the greetings of several <<things>> by passing a bound method to map",
            "maps `<<label>>`s through an object's method that needs its `this`",
        ),
        """
        function <<fn>>(<<label>>s) {
          <<doc>>
          const greeter = {
            greeting: "<<hello>>",
            greet(<<label>>) {
              return `${this.greeting}, ${<<label>>}!`;
            },
          };
          return <<label>>s.map(greeter.greet.bind(greeter));
        }
        """,
        "<<fn>>(<<labels3>>) ==>",
        pick={
            "fn": ["greetAll", "welcomeAll", "callAll", "addressAll", "greetings", "messages"],
            "hello": ["Hello", "Welcome", "Good day", "Ahoy", "Salut", "Servus"],
        },
        bugs=[
            ("lost this", "greeter.greet.bind(greeter)", "greeter.greet"),
            (
                "arrow has no this",
                "greet(<<label>>) {\n      return `${this.greeting}, ${<<label>>}!`;\n    },",
                "greet: (<<label>>) => `${this.greeting.trim()}, ${<<label>>}!`,",
            ),
        ],
    ),
    javascript_task(
        "deep_equal",
        (
            "compares two values deeply: arrays, plain objects and primitives",
            "returns true when two nested structures are equal in content",
        ),
        """
        function <<fn>>(a, b) {
          <<doc>>
          if (Object.is(a, b)) return true;
          if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
          const keys = Object.keys(a);
          return keys.length === Object.keys(b).length && keys.every((key) => <<fn>>(a[key], b[key]));
        }
        """,
        """
        <<fn>>({ <<label>>: [1, { <<number>>: <<i>> }] }, { <<label>>: [1, { <<number>>: <<i>> }] }) ==>
        <<fn>>({ <<label>>: <<k>> }, { <<label>>: <<k>>, <<number>>: 1 }) ==>
        <<fn>>(null, {}) ==>
        """,
        pick={"fn": ["deepEqual", "sameContent", "isEqual", "equals", "matches", "alike"]},
        bugs=[
            ("keys of null", " || a === null || b === null", ""),
            ("extra keys ignored", "keys.length === Object.keys(b).length && ", ""),
            ("identity only", "keys.every((key) => <<fn>>(a[key], b[key]))", "keys.every((key) => a[key] === b[key])"),
        ],
    ),
    javascript_task(
        "throttle_log",
        (
            "collects calls and returns only the last `limit` <<things>>, newest first",
            "keeps a history of at most `limit` <<things>>: `push` adds, `list` gives newest first",
        ),
        """
        function <<fn>>(limit) {
          <<doc>>
          const items = [];
          return {
            push(<<thing>>) {
              items.unshift(<<thing>>);
              items.length = Math.min(items.length, limit);
            },
            list: () => [...items],
          };
        }
        """,
        """
        const history = <<fn>>(3);
        for (const <<thing>> of <<labels>>) history.push(<<thing>>);
        history.list() ==>
        """,
        pick={"fn": ["makeHistory", "recentItems", "lastFew", "createLog", "ringBuffer", "keepLatest"]},
        bugs=[
            ("oldest first", "items.unshift(", "items.push("),
            ("gaps appear", "Math.min(items.length, limit)", "limit - items"),
            ("missing return", "  return {\n    push", "  const api = {\n    push"),
        ],
    ),
    javascript_task(
        "tagged_errors",
        (
            "Write a JavaScript error class `<<Err>>` with a `<<field>>`, and a function `<<fn>>` that throws it for negative input.",
            "Define `class <<Err>> extends Error` carrying `<<field>>`; `<<fn>>(value)` throws it when the value is negative, else returns its square root.",
        ),
        """
        class <<Err>> extends Error {
          constructor(message, <<field>>) {
            super(message);
            this.name = "<<Err>>";
            this.<<field>> = <<field>>;
          }
        }

        function <<fn>>(value) {
          if (value < 0) throw new <<Err>>("negative input", value);
          return Math.sqrt(value);
        }
        """,
        """
        <<fn>>(<<k>> * <<k>>) ==>
        let caught;
        try { <<fn>>(-<<i>>); } catch (error) { caught = error; }
        [caught.name, caught.<<field>>, caught instanceof Error] ==>
        """,
        pick={
            "Err|field|fn": [
                ("DomainError", "input", "root"),
                ("RangeFault", "value", "safeRoot"),
                ("InputError", "given", "squareRoot"),
                ("NegativeError", "number", "rootOf"),
                ("ValueFault", "detail", "checkedRoot"),
                ("MathError", "operand", "sqrt"),
            ]
        },
        bugs=[
            ("this before super", "    super(message);\n    this.name", "    this.name"),
            ("field lost", "    this.<<field>> = <<field>>;\n", ""),
            ("throw without new", "throw new <<Err>>(", "throw <<Err>>("),
        ],
    ),
)
