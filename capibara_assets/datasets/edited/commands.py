"""Tells shell commands that only look or test from those that may change a file."""

import re

from capibara_assets.executions.formats.agents.failures import only_shows, without_lead
from capibara_assets.executions.formats.agents.pipes import pipelines

_TESTS = re.compile(
    r"""(?:\S*/)?(?:
    go\s+(?:test|vet|build|list|doc|version|env)|golangci-lint\s+run|staticcheck|gofmt\s+-l|
    cargo\s+(?:test|check|build|clippy|nextest)|rustc|gcc|g\+\+|clang|javac|dotnet\s+(?:test|build)|swift\s+(?:test|build)|
    (?:python[\d.]*\s+-m\s+)?(?:pytest|unittest|mypy|pyright|flake8|pylint|nose2?|doctest|tox|py_compile|compileall)|
    (?:uv\s+run\s+|poetry\s+run\s+|pdm\s+run\s+)(?:pytest|mypy|ruff\s+check)|ruff\s+(?:check|format\s+--check)|black\s+--check|
    (?:npm|pnpm|yarn|bun)\s+(?:run\s+)?(?:test|lint|build|check|compile|typecheck|type-check)[\w:-]*|nvm\s+use|
    (?:npx\s+|bunx\s+|pnpm\s+exec\s+|yarn\s+)?(?:biome\s+(?:check|lint)|tsc|jest|vitest|mocha|eslint|ava|tap)|node\s+--(?:test|check)|deno\s+(?:test|check|lint)|
    mvn\s+(?:-\S+\s+)*(?:test|compile|verify)|(?:\./)?gradlew?\s+(?:test|build|check)|make\s+(?:test|check|lint|build)\S*|
    (?:dart|flutter)\s+(?:analyze|test)|pip3?\s+(?:show|list|freeze)|docker\s+(?:compose\s+)?(?:ps|logs)|
    (?:bundle\s+exec\s+)?(?:rspec|rake\s+test|rubocop)|phpunit|mix\s+test|ctest|
    git\s+(?:-\S+\s+\S+\s+)*(?:status|diff|log|show|blame|grep|ls-files|rev-parse|branch|remote|describe)
    )(?![\w-])""",
    re.VERBOSE,
)
_CHANGES = re.compile(
    r"\s-i\b|\s--in-place|\s-delete\b|\s-exec\b|\s--fix\b|\s--write\b|\s-w\b|\s-u\b|\s--update|(?<![\d&>])>{1,2}(?!&|\s*/dev/null)|\btee\b"
)


def only_looks(command: str) -> bool:
    """Whether a shell command changes no file of a project, as far as its programs are known for it."""
    if "<<" in command or _CHANGES.search(command):
        return False
    parts = [part for pipeline in pipelines(command) for part in pipeline]
    return all(only_shows(part) or _TESTS.match(without_lead(part)) is not None for part in parts)
