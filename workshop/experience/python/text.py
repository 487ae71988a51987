"""Python families over text and dates."""

from workshop.experience.python.records import python_task

FAMILIES = (
    python_task(
        "word_counts",
        (
            "counts the words of a text, ignoring case, and returns the `count` most common as pairs",
            "returns the `count` most frequent words of a text with their counts; ties in order of appearance",
        ),
        """
        from collections import Counter

        def <<fn>>(text, count=<<k>>):
            <<doc>>
            words = text.lower().split()
            return Counter(words).most_common(count)
        """,
        """
        <<fn>>("<<s>>") ==>
        <<fn>>("", 1) ==>
        """,
        pick={
            "fn": ["common_words", "top_words", "frequent_words", "word_ranking", "most_used_words", "word_histogram"],
            "s": [
                "red fish blue fish one fish",
                "to be or not to be",
                "a rose is a rose is a rose",
                "tick tock tick tock goes the clock",
                "row row row your boat",
                "the more the better the merrier",
            ],
        },
        bugs=[
            ("missing import", "from collections import Counter\n\n", ""),
            ("missing call", "text.lower().split()", "text.lower.split()"),
            ("counts letters", "words = text.lower().split()", "words = text.lower()"),
        ],
    ),
    python_task(
        "caesar",
        (
            "shifts every letter of a text by `shift` places in the alphabet and leaves other characters as they are",
            "encodes a text with a Caesar cipher; upper and lower case are kept",
        ),
        """
        def <<fn>>(text, shift):
            <<doc>>
            shifted = []
            for letter in text:
                if letter.isalpha():
                    base = ord("A") if letter.isupper() else ord("a")
                    letter = chr((ord(letter) - base + shift) % 26 + base)
                shifted.append(letter)
            return "".join(shifted)
        """,
        """
        <<fn>>("<<s>>", <<i>>) ==>
        <<fn>>(<<fn>>("<<s>>", <<k>>), -<<k>>) ==>
        """,
        pick={
            "fn": ["caesar", "rotate_letters", "shift_text", "encode_shift", "cipher", "rotate"],
            "s": [
                "Meet at Dawn",
                "Hidden Key 42",
                "Open the Gate!",
                "Zebra Xylem",
                "Night Train, 9 pm",
                "Under the Bridge",
            ],
        },
        bugs=[
            ("no wrap around", "(ord(letter) - base + shift) % 26 + base", "ord(letter) + shift"),
            ("adds text to number", "ord(letter) - base", "letter - base"),
            ("joins a number", "shifted.append(letter)", "shifted.append(ord(letter))"),
        ],
    ),
    python_task(
        "slugify",
        (
            "turns a title into a slug: lower case, words joined by `<<sep>>`, everything but letters and digits dropped",
            "makes a URL slug out of a title, with `<<sep>>` between its words",
        ),
        """
        import re

        def <<fn>>(title):
            <<doc>>
            words = re.findall(r"[a-z0-9]+", title.lower())
            return "<<sep>>".join(words)
        """,
        """
        <<fn>>("<<s>>") ==>
        <<fn>>("  --  ") ==>
        """,
        pick={
            "fn": ["slugify", "make_slug", "url_name", "permalink", "file_stem", "anchor"],
            "sep": ["-", "_"],
            "s": [
                "Ten Ways to Bake Bread!",
                "What's New in 2026?",
                "The Old Man & the Lake",
                "C++ for Gardeners",
                "Map: North/South",
                "Rivers, Roads, Rails",
            ],
        },
        bugs=[
            ("missing import", "import re\n\n", ""),
            ("joins the wrong way", '"<<sep>>".join(words)', 'words.join("<<sep>>")'),
            ("case not folded", "title.lower())", "title)"),
        ],
    ),
    python_task(
        "run_length",
        (
            "compresses a text with run-length encoding as a list of (character, count) pairs",
            "returns the runs of equal characters of a text as (character, length) pairs",
        ),
        """
        from itertools import groupby

        def <<fn>>(text):
            <<doc>>
            return [(letter, len(list(run))) for letter, run in groupby(text)]
        """,
        """
        <<fn>>("<<s>>") ==>
        <<fn>>("") ==>
        """,
        pick={
            "fn": ["run_lengths", "encode_runs", "runs_of", "rle", "compress", "count_runs"],
            "s": ["aaabbc", "wwwwxyyz", "zzzzzq", "mississippi", "aabbaabb", "booooks"],
        },
        bugs=[
            ("missing import", "from itertools import groupby\n\n", ""),
            ("length of an iterator", "len(list(run))", "len(run)"),
            ("swapped pair", "(letter, len(list(run)))", "(len(list(run)), letter)"),
        ],
    ),
    python_task(
        "anagram_groups",
        (
            "groups words that are anagrams of each other and returns the groups with at least two words, sorted",
            "finds all sets of anagrams in a list of words; each group and the list of groups are sorted",
        ),
        """
        def <<fn>>(words):
            <<doc>>
            groups = {}
            for word in words:
                key = "".join(sorted(word))
                groups.setdefault(key, []).append(word)
            return sorted(sorted(group) for group in groups.values() if len(group) > 1)
        """,
        """
        <<fn>>(<<w>>) ==>
        <<fn>>(["one"]) ==>
        """,
        pick={
            "fn": ["anagrams", "group_anagrams", "anagram_sets", "same_letters", "letter_twins", "shuffled_words"],
            "w": [
                '["listen", "silent", "stone", "notes", "cat"]',
                '["arc", "car", "rat", "tar", "art", "dog"]',
                '["evil", "vile", "live", "night", "thing"]',
                '["dusty", "study", "elbow", "below", "sun"]',
                '["pots", "stop", "spot", "moon", "mono"]',
                '["angel", "glean", "paper", "cider", "cried"]',
            ],
        },
        bugs=[
            ("list as key", '"".join(sorted(word))', "sorted(word)"),
            ("misses groups of two", "len(group) > 1", "len(group) > 2"),
            ("iterates keys", "groups.values()", "groups.keys()"),
        ],
    ),
    python_task(
        "palindrome",
        (
            "tells whether a text is a palindrome when case, spaces and punctuation are ignored",
            "returns True when the letters and digits of a text read the same in both directions",
        ),
        """
        def <<fn>>(text):
            <<doc>>
            letters = [letter.lower() for letter in text if letter.isalnum()]
            return letters == letters[::-1]
        """,
        """
        <<fn>>("<<s>>") ==>
        <<fn>>("<<t>>") ==>
        <<fn>>("Abba") ==>
        """,
        pick={
            "fn": ["is_palindrome", "reads_both_ways", "is_mirrored", "same_backwards", "palindromic", "mirror_text"],
            "s": [
                "Never odd or even",
                "Was it a car?",
                "Step on no pets",
                "No lemon, no melon",
                "Top spot!",
                "A Toyota",
            ],
            "t": ["palindrome", "almost tsomla!", "Hello", "mirror", "abcab", "odd"],
        },
        bugs=[
            ("compares with an iterator", "letters[::-1]", "reversed(letters)"),
            ("keeps case", "letter.lower() for", "letter for"),
            ("in place reverse", "letters[::-1]", "letters.reverse()"),
        ],
    ),
    python_task(
        "parse_pairs",
        (
            "parses a line of `key<<eq>>value` pairs separated by `<<sep>>` into a dictionary, with whitespace stripped",
            "reads settings such as `a<<eq>>1<<sep>>b<<eq>>2` into a dictionary of strings",
        ),
        """
        def <<fn>>(line):
            <<doc>>
            settings = {}
            for part in line.split("<<sep>>"):
                if not part.strip():
                    continue
                key, value = part.split("<<eq>>", 1)
                settings[key.strip()] = value.strip()
            return settings
        """,
        """
        <<fn>>("<<thing>><<eq>><<i>><<sep>> <<number>> <<eq>> <<j>><<sep>>") ==>
        <<fn>>("") ==>
        """,
        pick={
            "fn": ["parse_settings", "read_pairs", "parse_options", "to_dict", "parse_line", "read_fields"],
            "eq|sep": [("=", ";"), (":", ","), ("=", "&"), (":", "|"), ("->", ";"), ("=", ",")],
        },
        bugs=[
            ("unpacks an empty part", "        if not part.strip():\n            continue\n", ""),
            ("whitespace kept", "settings[key.strip()] = value.strip()", "settings[key] = value"),
            ("missing colon", 'for part in line.split("<<sep>>"):', 'for part in line.split("<<sep>>")'),
        ],
    ),
    python_task(
        "csv_rows",
        (
            "reads CSV text with a header row and returns the <<things>> as dictionaries with <<number_words>> as an integer",
            "parses <<things>> from CSV text (columns <<label>>, <<number_words>>) into a list of dictionaries",
        ),
        """
        import csv
        import io

        def read_<<things>>(text):
            <<doc>>
            reader = csv.DictReader(io.StringIO(text))
            return [{**row, "<<number>>": int(row["<<number>>"])} for row in reader]
        """,
        """
        text = "<<label>>,<<number>>\\nalpha,<<i>>\\nbeta,<<j>>\\n"
        read_<<things>>(text) ==>
        sum(row["<<number>>"] for row in read_<<things>>(text)) ==>
        """,
        bugs=[
            ("missing import", "import io\n", ""),
            ("text not converted", 'int(row["<<number>>"])', 'row["<<number>>"]'),
            ("reads characters", "csv.DictReader(io.StringIO(text))", "csv.DictReader(text)"),
        ],
    ),
    python_task(
        "wrap_text",
        (
            "breaks a text into lines of at most `width` characters without cutting words",
            "wraps a text greedily: each line holds as many words as fit into `width` characters",
        ),
        """
        def <<fn>>(text, width):
            <<doc>>
            lines, current = [], ""
            for word in text.split():
                longer = f"{current} {word}".strip()
                if current and len(longer) > width:
                    lines.append(current)
                    current = word
                else:
                    current = longer
            if current:
                lines.append(current)
            return lines
        """,
        """
        <<fn>>(<<sentence1>>, <<width>>) ==>
        <<fn>>("", 10) ==>
        """,
        pick={
            "fn": ["wrap_lines", "break_lines", "fold_text", "fit_width", "split_lines", "reflow"],
            "width": ["14", "18", "20", "24", "16", "22"],
        },
        bugs=[
            ("drops the last line", "    if current:\n        lines.append(current)\n", ""),
            ("leading space", ".strip()\n        if current", "\n        if current"),
            (
                "wrong indentation",
                "            current = word\n        else:",
                "            current = word\n         else:",
            ),
        ],
    ),
    python_task(
        "acronym",
        (
            "makes an acronym from the first letters of the words of a phrase, leaving out <<skip_words>>",
            "returns the upper-case initials of a phrase without <<skip_words>>",
        ),
        """
        SKIPPED = <<skipped>>

        def <<fn>>(phrase):
            <<doc>>
            words = [word for word in phrase.lower().split() if word not in SKIPPED]
            return "".join(word[0] for word in words).upper()
        """,
        """
        <<fn>>("<<s>>") ==>
        <<fn>>("") ==>
        """,
        pick={
            "fn": ["acronym", "initials", "abbreviate", "short_name", "monogram", "first_letters"],
            "skip_words|skipped": [('"of" and "the"', '{"of", "the"}'), ('"and" and "for"', '{"and", "for"}')],
            "s": [
                "Ministry of the Northern Lakes",
                "Society for Maps and Atlases",
                "Union of the Free Bakers",
                "Institute for Wind and Water",
                "House of the Rising Tide",
                "Fund for Roads and Rails",
            ],
        },
        bugs=[
            ("name error", "not in SKIPPED]", "not in SKIPED]"),
            ("upper on a list", '"".join(word[0] for word in words).upper()', "[word[0] for word in words].upper()"),
            ("case not folded", "phrase.lower().split()", "phrase.split()[1:]"),
        ],
    ),
    python_task(
        "days_between",
        (
            "returns the number of days between two ISO dates, always non-negative",
            "computes how many days lie between two dates given as YYYY-MM-DD, whatever their order",
        ),
        """
        from datetime import date

        def <<fn>>(first, second):
            <<doc>>
            start, end = date.fromisoformat(first), date.fromisoformat(second)
            return abs((end - start).days)
        """,
        """
        <<fn>>("<<year>>-01-<<d>>", "<<year>>-03-<<d>>") ==>
        <<fn>>("<<year>>-12-31", "<<year>>-12-<<d>>") ==>
        """,
        pick={
            "fn": ["days_between", "day_count", "days_apart", "span_in_days", "date_distance", "elapsed_days"],
            "d": ["01", "05", "09", "14", "19", "23", "27"],
        },
        bugs=[
            ("missing import", "from datetime import date\n\n", ""),
            ("subtracts text", "date.fromisoformat(first), date.fromisoformat(second)", "first, second"),
            ("timedelta has no day", ".days)", ".day)"),
            ("sign lost", "abs((end - start).days)", "(start - end).days"),
        ],
    ),
    python_task(
        "due_dates",
        (
            "lists `count` due dates, `step` days apart, from an ISO date; a date on a weekend moves to the next Monday",
            "returns `count` ISO dates that are `step` days apart, with Saturdays and Sundays moved to Monday",
        ),
        """
        from datetime import date, timedelta

        def <<fn>>(start, step, count):
            <<doc>>
            due = []
            for number in range(count):
                day = date.fromisoformat(start) + timedelta(days=step * number)
                if day.weekday() >= 5:
                    day += timedelta(days=7 - day.weekday())
                due.append(day.isoformat())
            return due
        """,
        """
        <<fn>>("<<year>>-0<<k>>-<<d>>", <<i>>, 4) ==>
        """,
        pick={
            "fn": ["due_dates", "payment_days", "schedule", "reminder_dates", "working_days", "delivery_days"],
            "d": ["03", "06", "11", "16", "21", "26"],
        },
        bugs=[
            ("missing import", "from datetime import date, timedelta", "from datetime import date"),
            ("adds a number", "timedelta(days=step * number)", "step * number"),
            ("weekday off by one", "day.weekday() >= 5", "day.weekday() > 6"),
            ("wrong method name", "day.isoformat()", "day.to_iso()"),
        ],
    ),
    python_task(
        "quarter_totals",
        (
            "adds up the <<number_words>> of dated <<things>> per quarter, with keys such as `<<year>>-Q1`",
            "sums (ISO date, <<number_words>>) pairs of <<things>> by quarter of the year",
        ),
        """
        def <<number>>_by_quarter(entries):
            <<doc>>
            totals = {}
            for day, <<number>> in entries:
                year, month = day.split("-")[:2]
                quarter = f"{year}-Q{(int(month) + 2) // 3}"
                totals[quarter] = totals.get(quarter, 0) + <<number>>
            return totals
        """,
        """
        entries = [("<<year>>-01-15", <<i>>), ("<<year>>-03-31", <<k>>), ("<<year>>-04-01", <<j>>), ("<<year>>-12-24", 1)]
        <<number>>_by_quarter(entries) ==>
        """,
        bugs=[
            ("text divided", "(int(month) + 2) // 3", "(month + 2) // 3"),
            ("quarter off by one", "(int(month) + 2) // 3", "int(month) // 3"),
            ("too many values", 'day.split("-")[:2]', 'day.split("-")'),
        ],
    ),
    python_task(
        "duration_text",
        (
            "formats a number of seconds as hours, minutes and seconds, as in <<example>>",
            "turns seconds into a text like <<example>>",
        ),
        """
        def <<fn>>(seconds):
            <<doc>>
            minutes, seconds = divmod(seconds, 60)
            hours, minutes = divmod(minutes, 60)
            return <<form>>
        """,
        """
        <<fn>>(<<big>>) ==>
        <<fn>>(<<j>>2<<i>>) ==>
        <<fn>>(0) ==>
        """,
        pick={
            "fn": ["format_duration", "clock_text", "as_clock", "duration_text", "readable_time", "show_time"],
            "example|form": [
                ("`1:02:05`", 'f"{hours}:{minutes:02d}:{seconds:02d}"'),
                ("`1h 2m 5s`", 'f"{hours}h {minutes}m {seconds}s"'),
                ("`01.02.05`", 'f"{hours:02d}.{minutes:02d}.{seconds:02d}"'),
            ],
        },
        bugs=[
            ("swapped unpacking", "minutes, seconds = divmod(seconds, 60)", "seconds, minutes = divmod(seconds, 60)"),
            ("too many values", "hours, minutes = divmod(minutes, 60)", "hours, minutes = divmod(minutes, 60, 60)"),
            ("unterminated text", "    return <<form>>", '    return <<form>> + "'),
        ],
    ),
    python_task(
        "template_fill",
        (
            "replaces every `{field}` in a template by the <<thing>>'s value and leaves unknown fields as they are",
            "fills a message template with the fields of a <<thing>>; unknown placeholders stay",
        ),
        """
        import re

        def fill_<<thing>>(template, <<thing>>):
            <<doc>>
            def value(match):
                return str(<<thing>>.get(match.group(1), match.group(0)))

            return re.sub(r"\\{(\\w+)\\}", value, template)
        """,
        """
        fill_<<thing>>("{<<label>>} has {<<number>>} (<<number>>), {other}", {"<<label>>": <<n1>>, "<<number>>": <<j>>}) ==>
        fill_<<thing>>("no fields", {}) ==>
        """,
        bugs=[
            ("missing import", "import re\n\n", ""),
            (
                "replacement is no text",
                "return str(<<thing>>.get(match.group(1), match.group(0)))",
                "return <<thing>>.get(match.group(1), match.group(0))",
            ),
            ("key error", ".get(match.group(1), match.group(0))", "[match.group(1)]"),
            ("missing group", "match.group(1)", "match.group(2)"),
        ],
    ),
)
