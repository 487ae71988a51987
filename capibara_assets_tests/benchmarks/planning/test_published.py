"""Published runs from a CSV: settings read as their source means them, blanks assumed aloud, faults named."""

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.planning.published import PublishedRun, only_measured, read_published, read_row
from capibara_assets.errors import InputError
from capibara_assets.planning.prediction.roofline import work
from capibara_assets.planning.workload import EVERYTHING, NOTHING

# A run as tables have them; the sizes are Llama 3.1 8B's and the speed is made up.
LLAMA = {
    "row_id": "x1",
    "hardware": "tpu-v6e",
    "chips": "8",
    "slices": "1",
    "model": "llama3.1-8b",
    "arch": "decoder",
    "params_b": "8.03",
    "layers": "32",
    "d_model": "4096",
    "n_heads": "32",
    "kv_heads": "8",
    "head_dim": "128",
    "d_ff": "14336",
    "vocab": "128256",
    "seq_len": "8192",
    "per_device_batch": "2",
    "global_batch": "16",
    "fsdp": "8",
    "tensor": "1",
    "data": "1",
    "pipeline": "1",
    "remat_policy": "full",
    "precision": "bf16",
    "framework": "maxtext",
    "step_time_s": "4.0",
}


def row(**changes: str) -> PublishedRun:
    return read_row("x1", {**LLAMA, **changes})


def test_a_full_row_is_read_whole() -> None:
    run = row()
    load = run.workload
    assert load.shape.parameters == 8_030_261_248
    assert (load.sequence, load.global_batch, load.chips, load.micro_steps) == (8192, 16, 8, 1)
    assert (run.machine.family, run.machine.axes) == ("tpu-v6e", (2, 4))
    assert run.tokens_per_second == 16 * 8192 / 4.0 / 8 and run.measured_from == "step_time_s"
    assert run.assumed == () and load.shape.gated and not load.shape.tied


def test_flops_per_token_are_maxtexts() -> None:
    # 6 x (parameters without the embedding) and 12 x layers x heads x head size x length; half of that when causal.
    load = row().workload
    dense = 6 * (8_030_261_248 - 128256 * 4096 - 65 * 4096)
    scores = 12 * 32 * 32 * 128 * 8192
    assert load.flops_per_token(causal=False) == dense + scores
    assert load.flops_per_token(causal=True) == dense + scores / 2


def test_rates_become_tokens_by_the_rows_own_convention() -> None:
    blank = {"step_time_s": "", "tflops_per_s_per_chip": "400"}
    full = row(**blank, attention_flops_convention="full (12*L*d*S)")
    half = row(**blank, attention_flops_convention="causal-half")
    assert full.tokens_per_second == 400e12 / full.workload.flops_per_token(causal=False)
    assert half.tokens_per_second == 400e12 / half.workload.flops_per_token(causal=True)
    share = row(step_time_s="", mfu_published="45")
    assert share.tokens_per_second == pytest.approx(0.45 * 918e12 / share.workload.flops_per_token(causal=False))


def test_blank_measurements_leave_a_run_to_predict() -> None:
    run = row(step_time_s="")
    assert run.tokens_per_second is None and only_measured([run]) == []


def test_blank_settings_are_assumed_and_said() -> None:
    run = row(
        fsdp="", d_ff="", vocab="", seq_len="", global_batch="", per_device_batch="", remat_policy="", step_time_s=""
    )
    text = "; ".join(run.assumed)
    for name in ("d_ff", "vocab 32000", "seq_len 4096", "fsdp 8", "global_batch", "remat_policy full"):
        assert name in text
    # The width is what the published number of parameters leaves for the MLP.
    assert abs(run.workload.shape.parameters / 8.03e9 - 1) < 0.001


def test_missing_columns_count_as_empty() -> None:
    few = {name: LLAMA[name] for name in ("hardware", "chips", "model", "layers", "d_model", "n_heads", "step_time_s")}
    run = read_row("x", few)
    assert run.workload.chips == 8 and run.workload.shape.head_dim == 128 and run.assumed


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"chips": ""}, "chips"),
        ({"chips": "many"}, "chips"),
        ({"chips": "-4"}, "chips"),
        ({"layers": "x"}, "layers"),
        ({"layers": "1+2+3"}, "layers"),
        ({"d_model": "nan?"}, "d_model"),
        ({"seq_len": "0"}, "seq_len"),
        ({"hardware": "abacus"}, "hardware"),
        ({"arch": "diffusion"}, "arch"),
        ({"model": ""}, "model"),
        ({"step_time_s": "fast"}, "step_time_s"),
        ({"global_batch": "inf"}, "global_batch"),
    ],
)
def test_faults_name_row_and_column(changes: dict[str, str], column: str) -> None:
    with pytest.raises(InputError, match=f"row x1, column {column}: "):
        row(**changes)


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("none", (0, 0, 0)),
        ("full", (1, 1, 2 / 3)),
        ("custom(offload decoder_layer_input,out_proj,q,k,v)", (0, 0, 2 / 3)),
        ("custom(decoder_layer_input=device,qkv=remat)", (1, 1, 2 / 3)),
        ("qkv_proj_offloaded", (0, 1, 2 / 3)),
        ("custom(decoder_layer_input,q,k,v,mlpwi=device)", (0, 1, 0)),
        ("minimal", (0, 0, 0)),
        ("selective", (0.5, 0.5, 0.5)),
    ],
)
def test_remat_policies_say_what_is_computed_again(text: str, again: tuple[float, float, float]) -> None:
    found = row(remat_policy=text).workload.recompute
    assert (found.qkv, found.output, found.mlp) == pytest.approx(again)
    assert (found.offloaded > 0) == ("offload" in text)


def test_pytorch_computes_the_last_product_again_too() -> None:
    assert row(framework="llm-foundry").workload.recompute == EVERYTHING
    assert row(framework="llm-foundry", remat_policy="").workload.recompute == NOTHING


def test_gating_and_tying_follow_from_the_parameters() -> None:
    # MPT 7B: two MLP matrices and a tied embedding, which no column says.
    sizes = {"n_heads": "32", "kv_heads": "32", "d_ff": "16384", "vocab": "50368", "params_b": "6.65"}
    shape = row(**sizes, framework="llm-foundry").workload.shape
    assert (shape.gated, shape.tied) == (False, True)


def test_an_encoder_decoder_has_two_lengths() -> None:
    sizes = {"layers": "24+24", "d_model": "1024", "n_heads": "16", "head_dim": "64", "d_ff": "2816", "vocab": "32128"}
    run = row(**sizes, arch="encoder-decoder", seq_len="512+128", params_b="0.783", model="t5-large", framework="t5x")
    assert (run.workload.inputs, run.workload.sequence) == (512, 128)
    assert (run.workload.shape.encoder_layers, run.workload.shape.family) == (24, "t5")


def test_slices_of_tpus_take_the_data_axis_and_context_is_counted() -> None:
    run = row(chips="512", slices="2", fsdp="256", data="2")
    assert (run.workload.mesh.slices, run.workload.mesh.data) == (2, 1)
    run = row(hardware="h100-80gb", chips="64", slices="8", fsdp="8", data="8")
    assert (run.workload.mesh.slices, run.workload.mesh.data) == (1, 8)
    run = row(fsdp="2", other_parallelism="cp=4", global_batch="2", seq_len="65536")
    assert (run.workload.context, run.workload.mesh.fsdp, run.workload.chips) == (4, 8, 8)


def test_a_mesh_that_does_not_multiply_to_the_chips_is_mended_aloud() -> None:
    run = row(fsdp="3", tensor="5")
    assert run.workload.chips == 8 and any(text.startswith("mesh") for text in run.assumed)


def test_settings_in_remarks_count() -> None:
    moe = {"n_experts": "8", "experts_per_token": "2", "arch": "decoder-moe", "params_b": "46.7"}
    assert row(**moe, note="dropped, capacity_factor 1.25; x").workload.capacity == 1.25
    assert row(note="eager; x").workload.eager and row(note="2D+AsyncTP").workload.overlapped_tensor
    load = row(other_parallelism="sharding=FULL_SHARD;micro=2;grad_accum=16").workload
    assert load.micro_steps == 16


# GPU runs as Megatron's tables have them: pipelines, micro-batches, chips that share a sequence.
MEGATRON = {
    **LLAMA,
    "hardware": "NVIDIA H100 80GB HBM3",
    "chips": "64",
    "fsdp": "1",
    "tensor": "4",
    "pipeline": "4",
    "data": "2",
    "global_batch": "128",
    "per_device_batch": "",
    "framework": "Megatron-LM",
    "remat_policy": "none",
}


def megatron(**changes: str) -> PublishedRun:
    return read_row("x1", {**MEGATRON, **changes})


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({"other_parallelism": "cp=2;micro=1;grad_accum=64"}, 64),
        ({"other_parallelism": "cp=2;mbs=2"}, 32),
        ({"other_parallelism": "CP=2, MBS=2 vp=4"}, 32),
        ({"other_parallelism": "cp=2", "per_device_batch": "4"}, 16),
        ({"other_parallelism": "cp=2"}, 64),  # a pipeline that says nothing has one sequence a pass
        ({"pipeline": "1", "data": "16"}, 1),
        ({"data": "4", "global_batch": "130", "per_device_batch": "2"}, 16),  # the last pass may be smaller
    ],
)
def test_passes_follow_from_micro_batches(changes: dict[str, str], passes: int) -> None:
    assert megatron(**changes).workload.micro_steps == passes


def test_chips_that_share_a_sequence_repeat_megatrons_weights() -> None:
    load = megatron(other_parallelism="cp=2;grad_accum=64;vp=5").workload
    assert (load.context, load.mesh.data, load.mesh.fsdp, load.virtual_stages) == (2, 4, 1, 5)


def test_megatron_counts_expert_chips_among_its_data_parallel_ones() -> None:
    moe = {"n_experts": "128", "experts_per_token": "8", "arch": "MoE", "d_ff": "768", "params_b": "30.5"}
    load = megatron(**moe, chips="256", tensor="1", pipeline="2", data="128", expert="32").workload
    assert (load.mesh.data, load.mesh.expert, load.mesh.pipeline, load.chips) == (4, 32, 2, 256)


def test_a_batch_per_device_is_maxtexts_chip_and_anothers_replica() -> None:
    blank = {"global_batch": "", "fsdp": "2", "tensor": "4"}
    assert row(**blank).workload.global_batch == 16
    assert row(**blank, framework="torchtitan", hardware="h100").workload.global_batch == 4


def test_lora_stands_in_the_remarks() -> None:
    load = row(note="LoRA, rank 32, packed").workload
    assert (load.method, load.lora_rank) == ("lora", 32) and "q_proj" in load.lora_modules
    assert load.flops_per_token(causal=False) < 0.8 * row().workload.flops_per_token(causal=False)
    assert row(note="floral").workload.method == "full"


@pytest.mark.parametrize(
    ("text", "family"),
    [("Decoder-only", "llama"), ("dense", "llama"), ("MoE", "mixtral"), ("encoder_decoder", "t5")],
)
def test_architectures_have_many_names(text: str, family: str) -> None:
    moe = {"n_experts": "8", "experts_per_token": "2", "params_b": "46.7"} if text == "MoE" else {}
    assert row(arch=text, **moe).workload.shape.architecture == family


def test_an_encoder_attends_to_all_positions() -> None:
    assert row(arch="encoder").workload.attended(causal=True) == 8192


def test_a_mixture_with_its_dense_layers_width_gets_its_experts_own() -> None:
    # DeepSeek-V3: d_ff 18,432 is that of three dense layers; an expert has 2,048.
    sizes = {"layers": "61", "d_model": "7168", "n_heads": "128", "kv_heads": "128", "d_ff": "18432", "vocab": "129280"}
    run = row(**sizes, arch="moe", n_experts="256", experts_per_token="8", params_b="671", active_params_b="37")
    assert run.workload.shape.intermediate == pytest.approx(2048, rel=0.1) and any("d_ff" in one for one in run.assumed)


def test_a_longer_format_takes_its_own_peak_where_the_chip_has_one() -> None:
    plain, long = (megatron(hardware="a100", precision=name) for name in ("bf16", "tf32"))
    products = [work(run.workload, run.machine).named()["matmul"] for run in (plain, long)]
    assert products[1] == pytest.approx(2 * products[0])
    assert megatron(precision="MXFP8").workload.format == "fp8"


@pytest.mark.parametrize("name", ["gemma-3-27b", "google/Gemma_3-27B-it", "gemma3-27b"])
def test_sliding_windows_go_by_the_models_name(name: str) -> None:
    assert (row(model=name).workload.window, row().workload.window) == (1024, 0)


def test_shares_may_carry_their_sign() -> None:
    blank = {"step_time_s": ""}
    assert row(**blank, mfu_published="45%").tokens_per_second == row(**blank, mfu_published="0.45").tokens_per_second


def write(folder: Path, rows: list[dict[str, str]]) -> Path:
    file = folder / "runs.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=sorted({name for one in rows for name in one}))
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_a_bad_row_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    file = write(tmp_path, [LLAMA, {**LLAMA, "row_id": "x2", "hardware": "abacus"}, {**LLAMA, "row_id": ""}])
    table = read_published(file)
    assert [run.row for run in table.runs] == ["x1", "line 4"]
    assert list(table.refused) == ["x2"] and "column hardware" in table.refused["x2"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_exports_of_spreadsheets_are_read_as_they_come(
    tmp_path: Path, encoding: str, newline: str, separator: str
) -> None:
    columns = [*reversed(LLAMA), "extra"]
    lines = [separator.join(f" {name.upper()} " for name in columns)]
    lines += [separator.join([*(LLAMA[name] for name in columns[:-1]), "ignored"]), ""]
    (tmp_path / "x.csv").write_text("\n".join(lines), encoding=encoding, newline=newline)
    (run,) = read_published(tmp_path / "x.csv").runs
    assert run.row == "x1" and run.workload == row().workload


def test_another_encoding_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(",".join(LLAMA).encode() + b"\n\xe9\n")
    with pytest.raises(InputError, match=r"is not UTF-8 .* at byte \d+\): save it as UTF-8"):
        read_published(tmp_path / "x.csv")


def test_a_file_without_the_needed_columns_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, [{"hardware": "tpu-v4", "chips": "4"}])
    with pytest.raises(InputError, match=r"no columns \['model', 'layers', 'd_model', 'n_heads'\]"):
        read_published(file)
    with pytest.raises(InputError, match="cannot read"):
        read_published(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("hardware,chips,model,layers,d_model,n_heads\n")
    with pytest.raises(InputError, match="has no rows"):
        read_published(tmp_path / "empty.csv")


CELLS = st.sampled_from(["", "0", "1", "8", "64", "1e3", "-1", "x", "24+24", "nan", "bf16", "tpu-v5p", "full", "1,024"])


@given(st.fixed_dictionaries({name: CELLS for name in LLAMA if name != "row_id"}))
def test_whatever_the_cells_a_row_is_read_or_refused_by_name(cells: dict[str, Any]) -> None:
    try:
        run = read_row("x", {**LLAMA, **cells})
    except InputError as refused:
        assert str(refused).startswith("row x, column ")
    else:
        assert run.workload.chips == run.machine.chips and run.workload.tokens > 0
