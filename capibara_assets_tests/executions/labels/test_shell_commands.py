"""The domain of a shell command is that of the programs that it runs."""

import pytest

from capibara_assets.domains import Domain
from capibara_assets.executions.labels.classify import shell_domains

CASES = {
    "pytest -q tests/": (Domain.PYTHON,),
    "cd src && python3.11 -m pytest 2>&1 | tail -5": (Domain.PYTHON,),
    "PYTHONPATH=. timeout 60 uv run pytest": (Domain.PYTHON,),
    "/usr/bin/env python - <<'EOF'\nprint('npm test; psql')\nEOF": (Domain.PYTHON,),
    "npm test": (Domain.JAVASCRIPT,),
    "npx --yes jest --ci": (Domain.JAVASCRIPT,),
    "sudo -u postgres psql -c 'select 1'": (Domain.SQL,),
    "cat q.sql | sqlite3 a.db": (Domain.SQL,),
    "curl -s localhost:8000/health | python -m json.tool": (Domain.API, Domain.PYTHON),
    "if true; then npm ci; fi && accelerate launch train.py": (Domain.JAVASCRIPT, Domain.ML),
    "for f in *.py; do black $f; done": (Domain.PYTHON,),
    "bash -lc 'cd /app && pytest -q | tail'": (Domain.PYTHON,),
    'ssh host "psql -c x"': (Domain.SQL,),
    "echo 'pytest' && ls -l python && grep node a.txt": (),
    "git commit -m 'run npm test'": (),
    "": (),
}


@pytest.mark.parametrize("command", CASES)
def test_what_it_runs_is_its_domain(command: str) -> None:
    assert shell_domains(command) == CASES[command]
