"""Start page of the dashboard: one chart per metric, with the curves of all voters.

It is a layout for TensorBoard's own custom scalars, kept in a log of its own beside those of the trainings.
"""

import os
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2, metadata
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util

RUN = "overview"
CHARTS: dict[str, dict[str, str]] = {
    "training, a curve for each voter": {
        "loss (nats per token)": "train/loss",
        "perplexity": "train/perplexity",
        "gradient norm": "train/gradient_norm",
        "learning rate": "train/learning_rate",
        "tokens per second": "speed/tokens_per_s",
        "memory (MiB)": "hardware/(gpu_)?memory_mib",
    },
    "consensus": {
        "consensus score (1 is the best, 0 no better than the base)": "consensus_score",
        "quality of each voter": "consensus/quality/.*",
        "validation loss of each voter": "validation/loss",
        "share of each expert": "expert_utilization/.*",
    },
}
"""Category -> title of a chart -> tags that it shows, of all runs; a part of a voter has its name before the tag."""


def layout() -> layout_pb2.Layout:
    """The charts, for TensorBoard."""
    return layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title=category,
                chart=[
                    layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=[f"(.*/)?{tags}$"]))
                    for title, tags in charts.items()
                ],
            )
            for category, charts in CHARTS.items()
        ]
    )


def write_overview(folder: Path) -> None:
    """Write the layout beside the runs below a log folder."""
    place = folder / RUN
    place.mkdir(parents=True, exist_ok=True)
    value = Summary.Value(
        tag=metadata.CONFIG_SUMMARY_TAG,
        metadata=metadata.create_summary_metadata(),
        tensor=tensor_util.make_tensor_proto(layout().SerializeToString()),
    )
    with (place / f"events.out.tfevents.{int(time.time()):010d}.capibara.{os.getpid()}").open("wb") as file:
        records = RecordWriter(file)
        for event in (
            Event(wall_time=time.time(), file_version="brain.Event:2"),
            Event(wall_time=time.time(), step=0, summary=Summary(value=[value])),
        ):
            records.write(event.SerializeToString())
        records.flush()
