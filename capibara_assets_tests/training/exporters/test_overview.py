"""The dashboard's first page: each chart shows what trainings and votes export, and the page loads by itself."""

import re
from typing import Any

from capibara_assets.training.monitoring.views import points_of
from capibara_assets_tests.late import Late, late
from capibara_assets_tests.training.exporters.test_exporters import ABSENT

late("tensorboard", reason=ABSENT.format("tensorboard"))
board, overview = (Late(f"capibara_assets.training.exporters.{name}") for name in ("board", "overview"))

STEP = {
    "run": "r", "attempt": 1, "step": 3, "event": "step", "time": 1.0, "of": 9, "loss": 2.0, "learning_rate": 1e-4,
    "gradient_norm": 0.5, "tokens_per_s": 100.0, "memory_mib": 900.0, "gpu_memory_mib": 4000.0,
}  # fmt: skip
VALIDATION = {"run": "r", "attempt": 1, "step": 3, "event": "validation", "time": 1.0, "validation_loss": 2.5}
VOTE = {
    "run": "c", "attempt": 1, "step": 1, "event": "figures", "time": 1.0,
    "figures": {"consensus_score": 0.8, "consensus/quality/voter-0": 0.9, "expert_utilization/sql": 0.5},
}  # fmt: skip


def tags(*events: dict[str, Any]) -> set[str]:
    return {name for point in points_of(events) for name in point.values}


def test_each_chart_shows_a_figure_that_is_exported() -> None:
    exported = tags(STEP, VALIDATION) | tags(VOTE) | tags({**STEP, "part": "client-1"})
    charts = {chart.title: chart.multiline.tag for category in overview.layout().category for chart in category.chart}
    assert len(overview.CHARTS["training, a curve for each voter"]) == 6
    for title, patterns in charts.items():
        shown = {name for name in exported for pattern in patterns if re.match(pattern, name)}
        assert shown, title
    (loss,) = charts["loss (nats per token)"]
    assert {name for name in exported if re.match(loss, name)} == {"train/loss", "client-1/train/loss"}


def test_tensorboard_reads_the_layout_that_was_written(tmp_path) -> None:
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata

    overview.write_overview(tmp_path)
    read = event_accumulator.EventAccumulator(str(tmp_path / "overview"))
    read.Reload()
    (event,) = read.Tensors(metadata.CONFIG_SUMMARY_TAG)
    assert layout_pb2.Layout.FromString(event.tensor_proto.string_val[0]) == overview.layout()


def asked(path: str) -> tuple[str, dict[str, str], bytes]:
    def inner(environ, start):
        assert environ["PATH_INFO"] != "/" or environ["HTTP_ACCEPT_ENCODING"] == "identity"
        start("200 OK", [("Content-Type", "text/html"), ("Content-Length", "26")])
        return [b"<html><head></head></html>"]

    answers: list[Any] = []
    environ = {"PATH_INFO": path, "HTTP_ACCEPT_ENCODING": "gzip"}
    body = b"".join(board.live(inner)(environ, lambda *given: answers.extend(given)))
    return answers[0], dict(answers[1]), body


def test_the_page_has_our_script_and_all_else_is_tensorboards() -> None:
    _, headers, body = asked("/")
    assert body == f'<html><head><script src="{board.SCRIPT}"></script></head></html>'.encode()
    assert headers == {"Content-Type": "text/html", "Content-Length": str(len(body))}
    assert asked("/data/runs")[2] == b"<html><head></head></html>"
    status, headers, body = asked(f"/{board.SCRIPT}")
    assert status == "200 OK" and headers["Content-Type"].startswith("text/javascript") and b"autoReload" in body
