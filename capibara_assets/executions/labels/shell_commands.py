"""Tells the domain of a shell command by the programs that it runs: `pytest` is python, `npm test` javascript."""

import re
from collections.abc import Iterator
from functools import lru_cache

from capibara_assets.domains import Domain
from capibara_assets.executions.heredocs import without_heredocs

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
