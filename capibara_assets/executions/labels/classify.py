"""Classifies executions into domains by content: first the sandbox session (most cells import nothing), then each cell.

A session's evidence is the signs in its cells (signals.py), the libraries behind the names its cells use
(provenance.py) and the libraries that its tracebacks pass through. Helpers such as pandas or `requests` count in full
where nothing else is known, and little beside a library that says more. A shell command is told by the programs that
it runs: `pytest` is python, `npm test` javascript.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from capibara_assets.domains import DOMAIN_OF_LANGUAGE, TOLD_BY_LIBRARIES, Domain
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets.executions.heredocs import without_heredocs
from capibara_assets.executions.labels.libraries import module_signal
from capibara_assets.executions.labels.provenance import session_signs
from capibara_assets.executions.labels.signals import CodeFacts, Sign, code_facts, ranked

_PER_CELL = 8.0  # so that one long cell does not outvote a session
_ENOUGH = 3.0  # evidence of a session below this is plain Python
_STRONG_CELL = 4.0  # evidence of a cell that differs from its session
_HELPER_SHARE = 0.3  # of a helper's weight, where another domain has telling evidence
_SIGNS_SHOWN = 4
_FRAME = re.compile(r"site-packages/(\w+)/(?:(\w+)/)?")

# programs of shell commands
_PROGRAMS = {
    Domain.PYTHON: """python ipython pip pipx uv uvx poetry pdm hatch pytest py.test tox nox mypy ruff black isort
        flake8 pylint pyright coverage unittest django-admin manage.py conda mamba virtualenv pre-commit""",
    Domain.JAVASCRIPT: """node nodejs npm npx yarn pnpm bun bunx deno jest mocha vitest tsc tsx ts-node eslint prettier
        webpack vite rollup esbuild next nuxt ng vue playwright cypress ava tap nyc biome""",
    Domain.SQL: "psql sqlite3 sqlite mysql mariadb duckdb sqlcmd bq clickhouse-client sqlfluff dbt pgbench",
    Domain.API: "curl wget http https httpie xh grpcurl hey ab wrk k6 newman",
    Domain.ML: """torchrun accelerate deepspeed nvidia-smi huggingface-cli hf mlflow wandb tensorboard dvc vllm
        llamafactory-cli axolotl lm_eval""",
}
_DOMAIN_OF = {program: domain for domain, programs in _PROGRAMS.items() for program in programs.split()}
_VERSIONED = re.compile(r"(python|pip|ipython|pytest)\d[\d.]*$")
_SPLIT = re.compile(r"&&|\|\||[;&|\n()]|\$\(|`")
# a shell that runs what stands between quotes, here or on another host
_INNER = re.compile(
    r"\b(?:(?:bash|sh|zsh|dash)\s++(?:-\w+\s++)*-\w*c\s*+|ssh\s[^'\"|;&]{0,1000})(['\"])(.*?)\1", re.DOTALL
)
_STRING = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w+=\S*$")
# programs that run the command behind them, with how many words of their own come between
_RUNNERS = {"sudo": 0, "time": 0, "env": 0, "nohup": 0, "exec": 0, "command": 0, "nice": 0, "xargs": 0, "timeout": 1,
            "watch": 0, "stdbuf": 0, "then": 0, "do": 0, "else": 0, "if": 0, "!": 0, "{": 0, "while": 0,
            "until": 0, "elif": 0}  # fmt: skip
_WITH_VALUE = ("-u", "-g", "-n", "-P", "-I", "-s", "-k")  # options of theirs that take the next word
_TOOLS = ("run", "exec", "tool", "x", "dlx")


@dataclass(frozen=True, slots=True)
class Label:
    """Domains of one execution, the primary first (none for unknown languages and noise), with the evidence."""

    domains: tuple[Domain, ...]
    confidence: float
    evidence: str


def classify_session(session: Sequence[Recorded]) -> list[Label]:
    """Labels the executions of one sandbox, in the order given."""
    facts = [code_facts(record.language, record.code) for record in session]
    python = [i for i, record in enumerate(session) if record.language == "python"]
    for i, signs in zip(python, session_signs([session[i].code for i in python]), strict=True):
        further = [*signs, *_traceback_signs(session[i].traceback)]
        if further:
            facts[i] = replace(facts[i], signs=ranked([*facts[i].signs, *further]))
    domain, confidence, evidence = session_domain([facts[i] for i in python])
    return [_label(record, fact, domain, confidence, evidence) for record, fact in zip(session, facts, strict=True)]


def session_domain(cells: Sequence[CodeFacts]) -> tuple[Domain, float, str]:
    """The domain of a session's Python cells, its confidence (0 to 1) and the evidence as text."""
    scores = _scores(cells)
    best = max(TOLD_BY_LIBRARIES, key=lambda domain: scores[domain])  # ties fall to the earlier one
    total = sum(scores.values())
    statements = sum(not cell.empty for cell in cells)
    if scores[best] < max(_ENOUGH, 0.25 * statements):
        return Domain.PYTHON, round(1 - total / (total + 4 * _ENOUGH), 3), f"session: {_shown(cells) or 'no library'}"
    share = scores[best] / total
    confidence = share * scores[best] / (scores[best] + _ENOUGH)
    return best, round(confidence, 3), f"session: {_shown(cells)}"


def _scores(cells: Sequence[CodeFacts]) -> dict[Domain, float]:
    """Weight of each domain over all cells, helpers discounted where another domain has telling evidence."""
    cells = [cell for cell in cells if cell.signs]
    telling = {domain: sum(_score(cell, domain, 0.0) for cell in cells) for domain in TOLD_BY_LIBRARIES}
    scores = {}
    for domain in TOLD_BY_LIBRARIES:
        rival = max(telling[other] for other in TOLD_BY_LIBRARIES if other != domain)
        share = _HELPER_SHARE if rival >= _ENOUGH else 1.0
        scores[domain] = sum(_score(cell, domain, share) for cell in cells)
    return scores


def _score(cell: CodeFacts, domain: Domain, helper_share: float) -> float:
    weights = (s.weight * (helper_share if s.helper else 1.0) for s in cell.signs if s.domain == domain)
    return min(sum(weights), _PER_CELL)


def _traceback_signs(traceback: str | None) -> Iterable[Sign]:
    """The libraries in which an execution failed."""
    for first, second in set(_FRAME.findall(traceback or "")):
        if known := module_signal(f"{first}.{second}" if second else first):
            name, signal = known
            yield Sign(signal.domain, f"traceback through {name}", 1.0, signal.helper)


def _label(record: Recorded, fact: CodeFacts, session: Domain, confidence: float, evidence: str) -> Label:
    if (language := DOMAIN_OF_LANGUAGE.get(record.language)) is not None:
        own, score = fact.strongest(TOLD_BY_LIBRARIES)
        if own != language and score >= _STRONG_CELL:
            return Label((language, own), 1.0, f"language: {record.language}; cell: {_shown([fact])}")
        return Label((language,), 1.0, f"language: {record.language}")
    if record.language == "bash" and (domains := shell_domains(record.code)):
        return Label(domains, 1.0, f"command: runs what is {' and '.join(domains)}")
    if record.language != "python":
        return Label((), 0.0, f"language: {record.language} has no domain")
    if fact.empty:
        return Label((), 0.0, "noise: no statement")
    own, score = fact.strongest(TOLD_BY_LIBRARIES)
    if own != session and score >= _STRONG_CELL and score > 2 * fact.score(session):
        seen = f"cell: {_shown([fact])}; {evidence}"
        if session is Domain.PYTHON:
            return Label((own, session), round(score / (score + 2 * _ENOUGH), 3), seen)
        return Label((session, own), confidence, seen)
    return Label((session,), confidence, evidence)


def _shown(cells: Iterable[CodeFacts]) -> str:
    """The strongest signs over all cells, with the number of cells that show them."""
    totals: dict[tuple[Domain, str], list[float]] = defaultdict(list)
    for cell in cells:
        for sign in cell.signs:
            totals[sign.domain, sign.what].append(sign.weight)
    shown = sorted(totals.items(), key=lambda item: (-sum(item[1]), item[0]))[:_SIGNS_SHOWN]
    return ", ".join(f"{what} x{len(seen)} ({domain})" for (domain, what), seen in shown)


@lru_cache(maxsize=4096)
def shell_domains(command: str) -> tuple[Domain, ...]:
    """The domains of the programs that a command runs, in order, each once; none where no program tells one."""
    bare = _STRING.sub("''", _INNER.sub(r"; \2", without_heredocs(command)))
    found = [domain for part in _SPLIT.split(bare) if (domain := _of_words(part.split())) is not None]
    return tuple(dict.fromkeys(found))


def _of_words(words: list[str]) -> Domain | None:
    # `uv run pytest` and `npx jest`: the last program that is known says it
    known = [_DOMAIN_OF[program] for program in _programs(words) if program in _DOMAIN_OF]
    return known[-1] if known else None


def _programs(words: list[str]) -> Iterator[str]:
    """The program in a simple command, and the one that it runs in turn."""
    position = 0
    while position < len(words):
        word = words[position]
        name = word.rsplit("/", 1)[-1]
        name = match.group(1) if (match := _VERSIONED.match(name)) else name
        if _ASSIGNMENT.match(word) or (name in _RUNNERS and not word.startswith("-")):
            position += 1
            while position < len(words) and words[position].startswith("-"):
                position += 2 if words[position] in _WITH_VALUE else 1
            position += _RUNNERS.get(name, 0)
            continue
        yield name
        following = words[position + 1 : position + 3]
        if following and following[0] in _TOOLS:
            position += 2
            continue
        return
