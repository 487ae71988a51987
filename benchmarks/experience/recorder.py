"""The bench `recorder`: what recording adds to an execution."""

import statistics
import tempfile
import time
from types import SimpleNamespace
from typing import Any

import click

from benchmarks.output import print_result


@click.command("recorder")
@click.option("--executions", default=2000, show_default=True)
@click.option("--conversation", default=20, show_default=True, help="Messages of about a kilobyte with each execution.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def recorder(executions: int, conversation: int, as_json: bool) -> None:
    """Milliseconds that one line costs the agent's run: a sandbox that answers at once, recorded and bare."""
    print_result(measure(executions, conversation), as_json)


def measure(executions: int, conversation: int) -> dict[str, Any]:
    """Median, 99th percentile and CPU time of what recording adds, in milliseconds."""
    from capibara_assets.executions import record

    shown = SimpleNamespace(text="x" * 500, html="<p>" * 200, extra={})
    logs = SimpleNamespace(stdout=["line\n"] * 20, stderr=[])
    answer = SimpleNamespace(results=[shown], logs=logs, error=None, execution_count=1)
    bare = SimpleNamespace(sandbox_id="bench", run_code=lambda code, **options: answer)
    messages = [{"role": "user", "content": "Sum the second column. " * 45}] * conversation
    code = "print('hello')\n" * 20
    with tempfile.TemporaryDirectory() as folder:
        sandbox = record(bare, folder, messages=messages)
        spent = []
        cpu = time.process_time()
        for _ in range(executions):
            began = time.perf_counter()
            sandbox.run_code(code)
            spent.append((time.perf_counter() - began) * 1000)
        cpu = (time.process_time() - cpu) * 1000
    return {
        "median_ms": round(statistics.median(spent), 4),
        "p99_ms": round(sorted(spent)[int(0.99 * len(spent))], 4),
        "cpu_ms": round(cpu / executions, 4),
        "executions": executions,
        "messages": conversation,
    }
