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
_CHANGES = re.compile(  # redirections, substitutions, and options by which programs write, rewrite or accept
    r"\s-[iowuO]\b|\s-[aA]\b|\s-delete\b|\s-exec\b|\s-f(?:print|ls)|\btee\b|\bsystem\(|\$\(|`"
    r"|&>(?!\s*/dev/null)|(?<![&=])>{1,2}(?!&|\s*/dev/null)|\s--?[\w-]*(?:update|fix|regen|bless|accept|apply|record|snapshot"
    r"|write|in-place|output|install|basetemp|junitxml|cov-report|pre|noqa)\b"
    r"|\b\w*(?:UPDATE|SNAPSHOT|BLESS|REGEN)\w*=|\b(?:stash|checkout|reset|install|spotlessApply)\b"
)
_WRITE = re.compile(r"(?:\S*/)?(?:curl|wget|https?|gh|touch|mkdir|alias|eval|xargs|xxd|uniq|git\s.*\bbranch)\b")
_SOURCE = re.compile(r"(?:source|\.)\s+(?!\S*activate\b|\S*nvm\.sh\b)")
_SED = re.compile(  # all but the one that prints lines; what stands between quotes is no part of a pipeline's text
    r"(?:^|[;&|(]\s*)(?:\S*/)?sed\b(?!\s+-n\s+['\"]?[\d,$;p ]+['\"]?(?:[\s;&|)]|\Z))", re.MULTILINE
)


def only_looks(command: str) -> bool:
    """Whether a shell command changes no file of a project, as far as its programs are known for it."""
    if "<<" in command or changes_files(command) or _SED.search(command):
        return False
    parts = [without_lead(part) for pipeline in pipelines(command) for part in pipeline]
    if any(_WRITE.match(part) or _SOURCE.match(part) for part in parts):
        return False
    return all(only_shows(part) or _TESTS.match(part) is not None for part in parts)


def changes_files(command: str) -> bool:
    """Whether a command says itself that it writes, rewrites or installs something."""
    return _CHANGES.search(command) is not None
