import pytest

from capibara_assets.datasets.edited.commands import only_looks


@pytest.mark.parametrize(
    "command",
    [
        "ls -la && cat a.py | head -20",
        "sed -n '10,20p' a.py",
        "source .venv/bin/activate && pytest -q",
        "cd /repo && grep -rn 'sed -n' src",
        "git diff HEAD~1 -- a.py",
        "PYTHONPATH=. timeout 60 python -m pytest -x tests/ 2>&1 | tail -5",
        "npx tsc --noEmit 2>/dev/null",
        "go vet ./... ; go test ./pkg",
        "cargo test --quiet",
        "npm run test:unit",
        "golangci-lint run",
    ],
)
def test_what_looks_or_tests_changes_no_file(command: str) -> None:
    assert only_looks(command)


@pytest.mark.parametrize(
    "command",
    [
        "sed -i 's/a/b/' a.py",
        "echo 'x' > a.py",
        "cat <<'END' > a.py\nx\nEND",
        "npm install lodash",
        "git checkout a.py",
        "git stash && pytest",
        "python scripts/generate.py",
        "ruff check --fix .",
        "npx eslint --fix src",
        "find . -name '*.pyc' -delete",
        "mise run fmt",
        "rm -rf build",
        "npm test -- -u",
        "sed -n 'w src/x.py' f",
        "sed '1e cp a b' x",
        "awk 'BEGIN{system(\"cp a b\")}'",
        "cat f &> x.py",
        "ls 2> x.py",
        "FOO=$(cp a b) ls",
        "sort -o x.py x.py",
        "find . -fprint x",
        "git diff --output=x.py",
        "curl -O http://a/x.py",
        ". ./fix.sh",
        "touch src/__init__.py",
        "git branch -f main",
        "pytest --snapshot-update",
        "pytest --force-regen",
        "go test ./... -update",
        "cargo test -- --bless",
        "UPDATE_EXPECT=1 cargo test",
        "INSTA_UPDATE=always cargo test",
        "rubocop -A",
        "ruff check --add-noqa",
        "biome check --apply",
        "ruff check --output-file src/x.py",
    ],
)
def test_what_may_change_a_file_is_not_taken_for_a_look(command: str) -> None:
    assert not only_looks(command)
