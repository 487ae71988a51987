"""Python families of small algorithms: numbers, lists, grids, graphs."""

from workshop.experience.python.records import python_task

FAMILIES = (
    python_task(
        "primes",
        ("returns all prime numbers up to and including `limit`", "lists the primes that are not larger than `limit`"),
        """
        def <<fn>>(limit):
            <<doc>>
            sieve = [True] * (limit + 1)
            primes = []
            for number in range(2, limit + 1):
                if sieve[number]:
                    primes.append(number)
                    for multiple in range(number * number, limit + 1, number):
                        sieve[multiple] = False
            return primes
        """,
        """
        <<fn>>(<<j>>) ==>
        <<fn>>(1) ==>
        """,
        pick={"fn": ["primes_up_to", "sieve_primes", "list_primes", "prime_numbers", "primes_below", "find_primes"]},
        bugs=[
            ("index out of range", "[True] * (limit + 1)", "[True] * limit"),
            ("off by one", "for number in range(2, limit + 1):", "for number in range(1, limit + 1):"),
            ("never crosses out", "sieve[multiple] = False", "sieve[multiple] == False"),
        ],
    ),
    python_task(
        "greatest_divisor",
        (
            "computes the greatest common divisor of all numbers in a list",
            "returns the largest number that divides every item of a list",
        ),
        """
        def <<fn>>(numbers):
            <<doc>>
            result = 0
            for number in numbers:
                while number:
                    result, number = number, result % number
            return result
        """,
        """
        <<fn>>([<<a>> * <<k>>, <<a>> * <<i>>, <<a>>]) ==>
        <<fn>>([]) ==>
        """,
        pick={
            "fn": ["gcd_of", "common_divisor", "gcd_all", "largest_divisor", "greatest_factor", "shared_factor"],
            "a": ["6", "14", "15", "21", "35", "44"],
        },
        bugs=[
            ("division by zero", "number, result % number", "number, number % result"),
            ("lost update", "result, number = number, result % number", "number = result % number"),
        ],
    ),
    python_task(
        "moving_average",
        (
            "returns the moving averages of a list over a window of `size` values, rounded to <<k>> digits",
            "computes the mean of every `size` neighbouring values, rounded to <<k>> digits",
        ),
        """
        def <<fn>>(values, size):
            <<doc>>
            averages = []
            for start in range(len(values) - size + 1):
                window = values[start:start + size]
                averages.append(round(sum(window) / size, <<k>>))
            return averages
        """,
        """
        <<fn>>(<<ints1>>, 3) ==>
        <<fn>>([1, 2], 3) ==>
        """,
        pick={"fn": ["moving_average", "rolling_mean", "window_means", "smooth", "running_average", "sliding_mean"]},
        bugs=[
            ("off by one", "range(len(values) - size + 1)", "range(len(values))"),
            ("list in range", "range(len(values) - size + 1)", "range(values - size + 1)"),
            ("growing window", "values[start:start + size]", "values[:start + size]"),
        ],
    ),
    python_task(
        "running_totals",
        (
            "returns the running <<what>> of a list of numbers",
            "computes, for each position, the <<what>> of all numbers up to it",
        ),
        """
        def running_<<what>>(numbers):
            <<doc>>
            results = []
            current = None
            for number in numbers:
                current = number if current is None else <<expr>>
                results.append(current)
            return results
        """,
        """
        running_<<what>>(<<ints1>>) ==>
        running_<<what>>([]) ==>
        """,
        pick={
            "what|expr": [
                ("sum", "current + number"),
                ("maximum", "max(current, number)"),
                ("minimum", "min(current, number)"),
                ("product", "current * number"),
            ]
        },
        bugs=[
            ("none in arithmetic", "number if current is None else <<expr>>", "<<expr>>"),
            ("appends the list", "results.append(current)", "results.append(results)"),
            ("returns too early", "    return results", "        return results"),
        ],
    ),
    python_task(
        "two_sum",
        (
            "returns the indices of two numbers of a list that add up to `target`, or None",
            "finds a pair of positions whose values sum to `target` in one pass (None when there is none)",
        ),
        """
        def <<fn>>(numbers, target):
            <<doc>>
            seen = {}
            for index, number in enumerate(numbers):
                if target - number in seen:
                    return seen[target - number], index
                seen[number] = index
            return None
        """,
        """
        <<fn>>([<<i>>, <<k>>, <<j>>, 1], <<k>> + <<j>>) ==>
        <<fn>>(<<ints1>>, 1000) ==>
        """,
        pick={"fn": ["pair_with_sum", "two_sum", "find_pair", "indices_for_sum", "matching_pair", "complement_pair"]},
        bugs=[
            ("missing enumerate", "in enumerate(numbers):", "in numbers:"),
            ("stores the value", "seen[number] = index", "seen[index] = number"),
            ("wrong key", "return seen[target - number], index", "return seen[target], index"),
        ],
    ),
    python_task(
        "binary_search",
        (
            "searches a sorted list for `<<wanted>>` by halving and returns its index, or -1",
            "does a binary search for `<<wanted>>` in a sorted list (-1 when it is not there)",
        ),
        """
        def <<fn>>(values, <<wanted>>):
            <<doc>>
            low, high = 0, len(values) - 1
            while low <= high:
                middle = (low + high) // 2
                if values[middle] == <<wanted>>:
                    return middle
                if values[middle] < <<wanted>>:
                    low = middle + 1
                else:
                    high = middle - 1
            return -1
        """,
        """
        values = sorted(<<ints1>> + [<<big>>])
        <<fn>>(values, <<big>>) ==>
        <<fn>>(values, -5) ==>
        <<fn>>([], 1) ==>
        """,
        pick={
            "fn": ["binary_search", "find_sorted", "locate", "position_of", "search_sorted", "bisect_index"],
            "wanted": ["target", "wanted", "needle", "item", "key"],
        },
        bugs=[
            ("float index", "(low + high) // 2", "(low + high) / 2"),
            ("index out of range", "low, high = 0, len(values) - 1", "low, high = 0, len(values)"),
            ("misses the last one", "while low <= high:", "while low < high:"),
        ],
    ),
    python_task(
        "flatten",
        (
            "flattens a nested list of any depth",
            "returns the items of arbitrarily nested lists in one flat list, in their order",
        ),
        """
        def <<fn>>(items):
            <<doc>>
            flat = []
            for item in items:
                if isinstance(item, list):
                    flat.extend(<<fn>>(item))
                else:
                    flat.append(item)
            return flat
        """,
        """
        <<fn>>([<<i>>, [<<j>>, [<<k>>, [7]], []], 8]) ==>
        <<fn>>([]) ==>
        """,
        pick={"fn": ["flatten", "unnest", "flat_list", "leaves", "spread", "collapse"]},
        bugs=[
            ("append for extend", "flat.extend(", "flat.append("),
            ("wrong name", "flat.extend(<<fn>>(item))", "flat.extend(flatten_list(item))"),
            ("iterates a number", "if isinstance(item, list):", "if item is not None:"),
        ],
    ),
    python_task(
        "chunks",
        (
            "splits a list into chunks of `size` items; the last one may be shorter",
            "cuts a list into pieces of at most `size` items and raises ValueError for a size below 1",
        ),
        """
        def <<fn>>(items, size):
            <<doc>>
            if size < 1:
                raise ValueError("size must be at least 1")
            return [items[start:start + size] for start in range(0, len(items), size)]
        """,
        """
        <<fn>>(<<ints1>>, <<c>>) ==>
        <<fn>>(<<labels>>, 4) ==>
        """,
        pick={"fn": ["chunks", "batches", "split_every", "pieces", "in_groups_of", "pages"], "c": ["2", "3"]},
        bugs=[
            ("missing step", "range(0, len(items), size)", "range(0, len(items))"),
            ("range of a list", "range(0, len(items), size)", "range(0, items, size)"),
            ("wrong slice", "items[start:start + size]", "items[start:size]"),
        ],
    ),
    python_task(
        "rotate_matrix",
        ("<<does>> a matrix given as a list of rows", "takes a list of rows and <<does>> the matrix"),
        """
        def <<fn>>(matrix):
            <<doc>>
            return <<expr>>
        """,
        """
        <<fn>>([[1, 2, <<i>>], [4, <<j>>, 6]]) ==>
        <<fn>>([]) ==>
        """,
        pick={
            "fn|does|expr": [
                ("transpose", "transposes", "[list(column) for column in zip(*matrix)]"),
                ("rotate_right", "turns clockwise by 90 degrees", "[list(column) for column in zip(*matrix[::-1])]"),
                ("flip_rows", "reverses the order of rows of", "[list(row) for row in matrix[::-1]]"),
                ("mirror", "mirrors each row of", "[list(row[::-1]) for row in matrix]"),
                (
                    "rotate_left",
                    "turns counter-clockwise by 90 degrees",
                    "[list(column) for column in zip(*matrix)][::-1]",
                ),
                ("double_cells", "doubles every cell of", "[[2 * cell for cell in row] for row in matrix]"),
            ]
        },
        bugs=[
            ("wrong variable", "return <<expr>>", "return <<expr>> + rows"),
            ("missing bracket", "return <<expr>>", "return [<<expr>>"),
            ("nested once more", "return <<expr>>", "return [<<expr>>]"),
        ],
    ),
    python_task(
        "grid_paths",
        (
            "counts the paths from the top left to the bottom right of a grid, moving right or down, around blocked cells (1)",
            "returns how many ways lead through a grid of 0 (free) and 1 (blocked) when only right and down are allowed",
        ),
        """
        def <<fn>>(grid):
            <<doc>>
            height, width = len(grid), len(grid[0])
            ways = [[0] * width for _ in range(height)]
            ways[0][0] = 1 - grid[0][0]
            for row in range(height):
                for column in range(width):
                    if grid[row][column] or (row, column) == (0, 0):
                        continue
                    above = ways[row - 1][column] if row else 0
                    before = ways[row][column - 1] if column else 0
                    ways[row][column] = above + before
            return ways[-1][-1]
        """,
        """
        <<fn>>(<<grid>>) ==>
        <<fn>>([[0, 0, 0], [0, 1, 0], [0, 0, 0]]) ==>
        """,
        pick={
            "fn": ["grid_paths", "count_paths", "ways_through", "free_paths", "robot_paths", "maze_ways"],
            "grid": [
                "[[0, 0], [0, 1], [0, 0]]",
                "[[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]",
                "[[0, 0], [1, 0], [0, 0]]",
                "[[0, 0, 1], [0, 0, 0], [1, 0, 0]]",
                "[[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]",
                "[[0, 1, 0], [0, 0, 0], [0, 0, 0]]",
            ],
        },
        bugs=[
            ("shared rows", "[[0] * width for _ in range(height)]", "[[0] * width] * height"),
            ("negative index", "ways[row - 1][column] if row else 0", "ways[row + 1][column]"),
            (
                "blocked cells ignored",
                "if grid[row][column] or (row, column) == (0, 0):",
                "if (row, column) == (0, 0):",
            ),
        ],
    ),
    python_task(
        "shortest_path",
        (
            "returns the length of the shortest path between two <<node>>s of an undirected graph (adjacency lists), or -1",
            "counts the steps between two <<node>>s with a breadth-first search, -1 when they are not connected",
        ),
        """
        from collections import deque

        def <<fn>>(<<links>>, start, goal):
            <<doc>>
            queue, seen = deque([(start, 0)]), {start}
            while queue:
                <<node>>, steps = queue.popleft()
                if <<node>> == goal:
                    return steps
                for neighbour in <<links>>.get(<<node>>, []):
                    if neighbour not in seen:
                        seen.add(neighbour)
                        queue.append((neighbour, steps + 1))
            return -1
        """,
        """
        <<links>> = {"a": ["b", "c"], "b": ["a", "d"], "c": ["a"], "d": ["b", "e"], "e": ["d"]}
        <<fn>>(<<links>>, "<<x>>", "e") ==>
        <<fn>>(<<links>>, "a", "z") ==>
        """,
        pick={
            "fn": ["shortest_path", "hops", "steps_between", "bfs_distance", "distance", "min_steps"],
            "node|links": [
                ("station", "tracks"),
                ("city", "roads"),
                ("node", "edges"),
                ("room", "doors"),
                ("port", "routes"),
                ("page", "links"),
            ],
            "x": ["a", "c", "b"],
        },
        bugs=[
            ("missing import", "from collections import deque\n\n", ""),
            ("key error", "<<links>>.get(<<node>>, [])", "<<links>>[<<node>> + 1]"),
            ("list has no popleft", "deque([(start, 0)])", "[(start, 0)]"),
            ("set method", "seen.add(neighbour)", "seen.append(neighbour)"),
        ],
    ),
    python_task(
        "topological_order",
        (
            "returns an order of <<tasks>> in which each comes after its prerequisites, and raises ValueError on a cycle",
            "sorts <<tasks>> so that every prerequisite comes first (alphabetical where free); a cycle raises ValueError",
        ),
        """
        def <<fn>>(needs):
            <<doc>>
            order, left = [], {task: set(before) for task, before in needs.items()}
            while left:
                ready = sorted(task for task, before in left.items() if not before)
                if not ready:
                    raise ValueError("cycle")
                order.extend(ready)
                left = {task: before - set(ready) for task, before in left.items() if task not in ready}
            return order
        """,
        """
        <<fn>>({"<<b>>": ["<<a>>"], "<<a>>": [], "<<c>>": ["<<a>>", "<<b>>"]}) ==>
        <<fn>>({}) ==>
        """,
        pick={
            "fn": ["build_order", "work_plan", "topological_order", "plan", "order_of_work", "sequence"],
            "tasks|a|b|c": [
                ("steps", "wash", "peel", "cook"),
                ("modules", "core", "model", "view"),
                ("courses", "algebra", "calculus", "physics"),
                ("jobs", "fetch", "clean", "report"),
                ("parts", "frame", "wheel", "paint"),
                ("chores", "sweep", "mop", "dry"),
            ],
        },
        bugs=[
            ("list minus set", "{task: set(before) for task, before in needs.items()}", "dict(needs)"),
            ("set operation on list", "before - set(ready)", "before - ready"),
            ("append for extend", "order.extend(ready)", "order.append(ready)"),
        ],
    ),
    python_task(
        "knapsack",
        (
            "returns the largest total <<value>> of items (<<weight>>, <<value>>) that fit into `capacity`",
            "solves the knapsack problem: the best total <<value>> within a `capacity` of <<weight>>, each item once",
        ),
        """
        def <<fn>>(items, capacity):
            <<doc>>
            best = [0] * (capacity + 1)
            for <<weight>>, <<value>> in items:
                for room in range(capacity, <<weight>> - 1, -1):
                    best[room] = max(best[room], best[room - <<weight>>] + <<value>>)
            return best[capacity]
        """,
        """
        <<fn>>([(2, <<i>>), (3, <<j>>), (<<k>>, 9)], 5) ==>
        <<fn>>([(2, <<i>>)], 5) ==>
        """,
        pick={
            "fn": ["best_load", "knapsack", "max_value", "pack", "fill_truck", "best_total"],
            "weight|value": [
                ("weight", "value"),
                ("hours", "profit"),
                ("size", "score"),
                ("cost", "gain"),
                ("space", "worth"),
                ("days", "reward"),
            ],
        },
        bugs=[
            ("index out of range", "[0] * (capacity + 1)", "[0] * capacity"),
            ("items reused", "range(capacity, <<weight>> - 1, -1)", "range(<<weight>>, capacity + 1)"),
            ("swapped pair", "for <<weight>>, <<value>> in items:", "for <<value>>, <<weight>> in items:"),
        ],
    ),
    python_task(
        "longest_increasing",
        (
            "returns the longest run of neighbouring numbers that strictly <<verb>>",
            "finds the first longest stretch of a list in which the numbers <<verb>> from one to the next",
        ),
        """
        def <<fn>>(numbers):
            <<doc>>
            best = current = numbers[:1]
            for number in numbers[1:]:
                current = [*current, number] if number <<op>> current[-1] else [number]
                if len(current) > len(best):
                    best = current
            return best
        """,
        """
        <<fn>>(<<ints1>>) ==>
        <<fn>>([]) ==>
        """,
        pick={
            "fn|verb|op": [
                ("longest_climb", "increase", ">"),
                ("longest_fall", "decrease", "<"),
                ("rising_run", "increase", ">"),
                ("falling_run", "decrease", "<"),
                ("best_ascent", "increase", ">"),
                ("best_descent", "decrease", "<"),
            ]
        },
        bugs=[
            ("index error on empty", "best = current = numbers[:1]", "best = current = [numbers[0]]"),
            ("compares lists", "number <<op>> current[-1]", "number <<op>> current"),
            ("list plus number", "[*current, number]", "current + number"),
        ],
    ),
    python_task(
        "balanced_brackets",
        (
            "checks that the brackets <<kinds>> of a text are balanced and properly nested",
            "returns True when every opening bracket of <<kinds>> has its closing one in the right order",
        ),
        """
        PAIRS = <<pairs>>

        def <<fn>>(text):
            <<doc>>
            stack = []
            for letter in text:
                if letter in PAIRS.values():
                    stack.append(letter)
                elif letter in PAIRS:
                    if not stack or stack.pop() != PAIRS[letter]:
                        return False
            return not stack
        """,
        """
        <<fn>>("<<good>>") ==>
        <<fn>>("<<bad>>") ==>
        <<fn>>(")") ==>
        <<fn>>("<<open>>") ==>
        """,
        pick={
            "fn": ["balanced", "is_balanced", "brackets_match", "well_nested", "closed_properly", "check_brackets"],
            "kinds|pairs|good|bad|open": [
                ("( and [", '{")": "(", "]": "["}', "f(a[0])", "(]", "(("),
                ("( and {", '{")": "(", "}": "{"}', "{(x)}", "({)}", "({"),
                ("[ and {", '{"]": "[", "}": "{"}', "[{}, []]", "][", "[{"),
            ],
        },
        bugs=[
            ("pop from empty list", "not stack or stack.pop()", "stack.pop()"),
            ("openings left", "return not stack", "return True"),
            ("values not called", "PAIRS.values()", "PAIRS.values"),
        ],
    ),
    python_task(
        "base_conversion",
        ("writes a non-negative integer in base <<base>>", "converts a number to a text of digits in base <<base>>"),
        """
        DIGITS = "0123456789abcdef"

        def <<fn>>(number):
            <<doc>>
            if number == 0:
                return "0"
            digits = []
            while number:
                number, rest = divmod(number, <<base>>)
                digits.append(DIGITS[rest])
            return "".join(reversed(digits))
        """,
        """
        <<fn>>(<<big>>) ==>
        <<fn>>(0) ==>
        int(<<fn>>(<<j>>), <<base>>) == <<j>> ==>
        """,
        pick={
            "fn|base": [
                ("to_binary", "2"),
                ("to_octal", "8"),
                ("to_hex", "16"),
                ("to_ternary", "3"),
                ("to_base5", "5"),
                ("to_base7", "7"),
                ("to_duodecimal", "12"),
            ]
        },
        bugs=[
            ("digits reversed", '"".join(reversed(digits))', '"".join(digits)'),
            ("empty for zero", '    if number == 0:\n        return "0"\n', ""),
            ("joins numbers", "digits.append(DIGITS[rest])", "digits.append(rest)"),
        ],
    ),
)
