"""The bench `redact`: seeded secrets over real logs, found by us and by other detectors on the same text."""

import gzip
import json
import os
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import click

from benchmarks.output import print_result
from capibara_assets.errors import InputError

#: Where `make bench-env` and `make bench-gitleaks` put the peers, and the variable that names another place.
PEERS, PEERS_VARIABLE = ".benchmarks-venv", "CAPIBARA_BENCH_ENV"
_ROOT = Path(__file__).resolve().parents[2]
RULES = "gitleaks/config/gitleaks.toml"


@click.command("redact")
@click.option("--experience", type=click.Path(path_type=Path), help="Folder of experience; default: what ships.")
@click.option("--secrets", default=2000, show_default=True, help="Secrets that are strewn over the logs.")
@click.option("--seed", default=1, show_default=True, help="Of the generator of secrets and places.")
@click.option(
    "--gitleaks", type=click.Path(path_type=Path), help="gitleaks' rule file; default: `make bench-gitleaks`."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def redact(experience: Path | None, secrets: int, seed: int, gitleaks: Path | None, as_json: bool) -> None:
    """Recall and precision of redaction on seeded secrets, and those of detect-secrets and gitleaks' rules."""

    environment = Path(os.environ.get(PEERS_VARIABLE) or _ROOT / PEERS)
    python, rules = environment / "bin" / "python", gitleaks or environment / RULES
    print_result(measure(experience, secrets, seed, python, rules), as_json)


def measure(experience: Path | None, secrets: int, seed: int, python: Path, rules: Path) -> dict[str, Any]:
    """The figures, as `python -m benchmarks redact --json` prints them.

    Args:
        python: of the peers' environment; where it is absent, there are no peers.
        rules: gitleaks' rule file; where it is absent, gitleaks is not measured.
    """
    from benchmarks.experience.seeded_secrets import seed as strew
    from capibara_assets.deployment.locations import resources_root
    from capibara_assets.executions.formats.envelope_reader import read_line
    from capibara_assets.executions.secrets.redact import find_in_sessions, redact_sessions

    folder = experience or resources_root() / "experience"
    lines, seeds = strew(_lines(folder), secrets, Random(seed))
    now = datetime.now(UTC)
    sessions: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        record = read_line(line, now)
        sessions[record.sandbox_id].append(record)
    every = list(sessions.values())
    hidden = {each.execution_id: each for each in seeds}
    right = wrong = 0
    covered: dict[str, bool] = {}
    texts: dict[str, str] = {}
    examples: Counter[str] = Counter()
    for session, found in zip(every, find_in_sessions(every), strict=True):
        values = {hidden[record.execution_id].value for record in session if record.execution_id in hidden}
        for (i, name), spans in found.items():
            text = getattr(session[i], name)
            for span in spans:
                true = any(_overlap(text, span.start, span.end, value) for value in values)
                right, wrong = right + true, wrong + (not true)
                if not true:
                    examples[span.kind] += 1
        for i, record in enumerate(session):
            if (each := hidden.get(record.execution_id)) is not None:
                spans_of = {name: spans for (at, name), spans in found.items() if at == i}
                covered[record.execution_id] = _all_covered(record, spans_of, each.value)
                texts[record.execution_id] = _text(record)
    began = time.process_time()
    redact_sessions(every)
    seconds = time.process_time() - began
    clean = _clean_seconds(folder, now)
    missed = Counter(each.kind for each in seeds if not covered[each.execution_id])
    values_by_id = {each.execution_id: each.value for each in seeds}
    return {
        "recall": round(sum(covered.values()) / len(seeds), 4),
        "precision": round(right / max(right + wrong, 1), 4),
        "seeded": len(seeds),
        "kinds": len({each.kind for each in seeds}),
        "missed": dict(missed),
        "false_alarms": dict(examples),
        "records": len(lines),
        "us_per_record": round(seconds / len(lines) * 1e6, 1),
        "us_per_record_without_secrets": round(clean / len(lines) * 1e6, 1),
        "peers": _peers(texts, values_by_id, python, rules),
        "experience": "shipped" if experience is None else experience.name,
        "seed": seed,
    }


def _lines(folder: Path) -> list[bytes]:
    root = folder / "e2b_logs" if (folder / "e2b_logs").is_dir() else folder
    lines: list[bytes] = []
    for path in sorted(root.glob("*.jsonl*")):
        data = path.read_bytes()
        lines += (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).splitlines()
    if not lines:
        raise InputError(f"no execution logs (*.jsonl, *.jsonl.gz) in {root}")
    return [line for line in lines if line.strip()]


def _clean_seconds(folder: Path, now: datetime) -> float:
    """CPU seconds that the logs cost as they are, without seeded secrets."""
    from capibara_assets.executions.formats.envelope_reader import read_line
    from capibara_assets.executions.secrets.redact import redact_sessions

    sessions: dict[str, list[Any]] = defaultdict(list)
    for line in _lines(folder):
        record = read_line(line, now)
        sessions[record.sandbox_id].append(record)
    began = time.process_time()
    redact_sessions(list(sessions.values()))
    return time.process_time() - began


_FIELDS = ("code", "task", "stdout", "stderr", "result_text", "error_value", "traceback")


def _text(record: Any) -> str:
    return "\n".join(value for name in _FIELDS if (value := getattr(record, name)))


def _overlap(text: str, start: int, end: int, value: str) -> bool:
    """Whether text[start:end] shares a character with a place of `value`."""
    at = text.find(value, max(0, start - len(value) + 1))
    return 0 <= at < end


def _all_covered(record: Any, found: Mapping[str, Sequence[Any]], value: str) -> bool:
    """Whether every character of every place of `value` is replaced, and there is such a place."""
    places = 0
    for name in _FIELDS:
        text = getattr(record, name) or ""
        at = text.find(value)
        while at >= 0:
            places += 1
            inside = sorted((s.start, s.end) for s in found.get(name, ()) if s.start < at + len(value) and s.end > at)
            reached = at
            for start, end in inside:
                if start <= reached:
                    reached = max(reached, end)
            if reached < at + len(value):
                return False
            at = text.find(value, at + len(value))
    return places > 0


def _peers(texts: Mapping[str, str], values: Mapping[str, str], python: Path, rules: Path) -> dict[str, Any]:
    """Recall and precision of each peer, counted in its favour: any overlap with the secret is a find."""
    script = Path(__file__).with_name("peer_secrets.py")
    if not python.is_file() or not script.is_file():
        return {}
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "texts.jsonl"
        listing.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
        command = [str(python), str(script), str(listing), *([str(rules)] if rules.is_file() else [])]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise InputError(f"the peers failed ({python}): {done.stderr.strip().splitlines()[-1]}")
    return {peer: _score(found, values) for peer, found in json.loads(done.stdout).items()}


def _score(found: Mapping[str, Sequence[str]], values: Mapping[str, str]) -> dict[str, float]:
    hits = right = total = 0
    for name, value in values.items():
        reported = found.get(name, ())
        true = [each for each in reported if each and (each in value or value in each)]
        hits, right, total = hits + bool(true), right + len(true), total + len(reported)
    return {"recall": round(hits / len(values), 4), "precision": round(right / max(total, 1), 4)}
