"""Other detectors on the same texts, in the benchmarks' environment: detect-secrets, and gitleaks' rules through RE2.

usage: python benchmarks/secret_peers.py TEXTS.jsonl [GITLEAKS.toml] — {"id", "text"} a line; prints one JSON object,
peer -> id -> values found. detect-secrets runs with its default plugins and filters, line by line as its own scanner
does; gitleaks' rules with their keywords, entropies and allow lists, on the whole text as gitleaks does.
"""

import json
import math
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Found = dict[str, list[str]]


def detect_secrets(texts: dict[str, str]) -> Found:
    """Values that detect-secrets reports."""
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    with default_settings():
        return {
            name: [s.secret_value for line in text.splitlines() for s in scan_line(line) if s.secret_value]
            for name, text in texts.items()
        }


def gitleaks(texts: dict[str, str], config: dict[str, Any]) -> Found:
    """Values that gitleaks' rules match."""
    import re2

    options = re2.Options()
    options.log_errors = False
    allowed = _allow_list(config["allowlist"], re2, options)
    rules = [
        (
            [keyword.lower() for keyword in rule.get("keywords", [])],
            re2.compile(rule["regex"], options),
            rule.get("entropy", 0.0),
            rule.get("secretGroup", 0),
            [_allow_list(entry, re2, options) for entry in rule.get("allowlists", [])],
        )
        for rule in config["rules"]
        if "regex" in rule and "path" not in rule
    ]

    def values(text: str) -> Iterator[str]:
        lowered = text.lower()
        for keywords, pattern, entropy, group, lists in rules:
            if keywords and not any(keyword in lowered for keyword in keywords):
                continue
            for match in pattern.finditer(text):
                groups = [value for value in match.groups() if value]
                value = match.group(group) if group else (groups[0] if groups else match.group())
                if _entropy(value) < entropy or any(refused(value, match.group()) for refused in (allowed, *lists)):
                    continue
                yield value

    return {name: list(values(text)) for name, text in texts.items()}


def _allow_list(entry: dict[str, Any], re2: Any, options: Any) -> Any:
    patterns = [re2.compile(pattern, options) for pattern in entry.get("regexes", [])]
    words = [word.lower() for word in entry.get("stopwords", [])]
    on_match = entry.get("regexTarget") in ("match", "line")

    def refused(value: str, match: str) -> bool:
        target = match if on_match else value
        return any(pattern.search(target) for pattern in patterns) or any(word in value.lower() for word in words)

    return refused


def _entropy(text: str) -> float:
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def main() -> None:
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    texts = {row["id"]: row["text"] for row in rows}
    found = {"detect-secrets": detect_secrets(texts)}
    if len(sys.argv) > 2:
        found["gitleaks"] = gitleaks(texts, tomllib.loads(Path(sys.argv[2]).read_text()))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
