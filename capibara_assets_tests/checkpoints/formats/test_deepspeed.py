"""DeepSpeed's ZeRO: checkpoints that two processes wrote, put together as its own script does."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets.checkpoints.formats import convert, deepspeed, detect_format, huggingface, pytorch
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.formats.archives import rewritten
from capibara_assets_tests.checkpoints.formats.kept import kept, same
from capibara_assets_tests.checkpoints.formats.ranks import two_ranks

TRAIN = """
import os, sys
from pathlib import Path
folder, rank, port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
               "DS_ACCELERATOR": "cpu"}
import torch
import deepspeed
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 5)
        self.frozen = nn.Linear(5, 7)
        self.norm = nn.LayerNorm(7)
        self.down = nn.Linear(7, 3, bias=False)
        self.up = nn.Linear(3, 5)
        self.head = nn.Linear(5, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("count", torch.tensor([1, 2]))
        self.register_buffer("scale", torch.tensor(2.5, dtype=torch.float64))
        self.frozen.requires_grad_(False)
    def forward(self, x):
        return self.head(self.up(self.down(self.norm(self.frozen(self.embed(x))))))

def train(name, stage, bf16):
    torch.manual_seed(stage)
    model = Model()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": [p for p in trained if p.ndim > 1]},
              {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0}]
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage}, "bf16": {"enabled": bf16},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10**9}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-2), config=config)
    for step in range(2):
        x = torch.randint(0, 11, (4,), generator=torch.Generator().manual_seed(10 * step + int(rank)))
        engine.backward(nn.functional.cross_entropy(engine(x).float(), x))
        engine.step()
    engine.save_checkpoint(str(folder / name), tag="step2")
    if rank == "0":
        expected = get_fp32_state_dict_from_zero_checkpoint(str(folder / name))
        torch.save({name: tensor.detach() for name, tensor in expected.items()}, folder / f"{name}.pt")
        frozen = {name: tensor.detach() for name, tensor in model.state_dict().items() if name.startswith("frozen")}
        torch.save(frozen, folder / f"{name}.frozen.pt")

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does it, and no compiler has to run for minutes
deepspeed.init_distributed("gloo")
for name, stage, bf16 in (("zero1", 1, False), ("zero2", 2, False), ("zero2 bf16", 2, True), ("zero3", 3, False)):
    train(name, stage, bf16)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of a small model after two steps, and what DeepSpeed's own script makes of them."""
    pytest.importorskip("deepspeed", reason="deepspeed is an extra")
    folder = tmp_path_factory.mktemp("deepspeed")
    two_ranks(TRAIN, str(folder), timeout=500)
    return folder


@pytest.mark.extended
@pytest.mark.parametrize("name", ["zero1", "zero2", "zero2 bf16", "zero3"])
def test_checkpoints_of_two_processes_come_out_as_deepspeeds_own_script_has_them(trained: Path, name: str) -> None:
    expected = torch.load(trained / f"{name}.pt")
    if name == "zero1":  # the script forgets frozen weights here
        assert not any(key.startswith("frozen") for key in expected)
        expected |= torch.load(trained / "zero1.frozen.pt")
    assert detect_format(trained / name) == "deepspeed"
    content = deepspeed.read(trained / name)
    assert content.ties == {"head.weight": "embed.weight"}
    assert content.tensors["frozen.weight"].dtype == ("BF16" if "bf16" in name else "F32")
    assert content.tensors["embed.weight"].dtype == "F32"
    found = pytorch.state_of(kept(content))
    assert same(dict(sorted(found.items())), dict(sorted(expected.items())))
    assert deepspeed.read(trained / name / "step2").tensors.keys() == content.tensors.keys()


@pytest.mark.extended
def test_it_is_converted_with_the_files_beside_but_no_other_weights(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "zero2", tmp_path / "zero2")
    shutil.copytree(trained / "zero2" / "step2", tmp_path / "zero2" / "step1")
    (tmp_path / "zero2" / "tokenizer.json").write_text("{}")
    (tmp_path / "zero2" / "model.safetensors").write_bytes(b"the 16-bit copy that a trainer leaves")
    convert(tmp_path / "zero2", tmp_path / "out", "huggingface", from_="deepspeed")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tokenizer.json", "model.safetensors"}
    back = huggingface.read(tmp_path / "out")
    assert back.ties == {"head.weight": "embed.weight"}
    with pytest.raises(InputError, match="can be read as huggingface and as deepspeed: say which one is meant"):
        detect_format(tmp_path / "zero2")


@pytest.mark.extended
@pytest.mark.parametrize("name", ["zero2", "zero3"])
def test_an_incomplete_checkpoint_is_refused(trained: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(trained / name, tmp_path / "copy")
    (tmp_path / "copy" / "step2" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    with pytest.raises(InputError, match=r"has 1 of 2 \*_optim_states.pt: copy the whole checkpoint"):
        deepspeed.read(tmp_path / "copy")


# --- checkpoints made by hand, in DeepSpeed's layout


def zero2(folder: Path, **changes: Any) -> Path:
    """Two processes' parts of one group: a weight of 3 and one of 4 numbers, and one of padding."""
    row = torch.arange(8.0)
    model: dict[str, Any] = {
        "module": {"w": row[:3].half(), "v": row[3:7].reshape(2, 2).half()},
        "buffer_names": [],
        "param_shapes": [{"w": torch.Size([3]), "v": torch.Size([2, 2])}],
        "shared_params": {},
        "mp_world_size": 1,
    }
    optimizer = {"zero_stage": 2, "partition_count": [2]}
    tag = folder / "tag"
    tag.mkdir(parents=True)
    (folder / "latest").write_text("tag")
    torch.save(model | changes.get("model", {}), tag / "mp_rank_00_model_states.pt")
    for rank, part in enumerate((row[:4], row[4:])):
        states = optimizer | {"single_partition_of_fp32_groups": [part]} | changes.get("optimizer", {})
        torch.save({"optimizer_state_dict": states}, tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return folder


def test_weights_that_lie_across_two_processes_are_joined(tmp_path: Path) -> None:
    content = deepspeed.read(zero2(tmp_path / "a"))
    state = pytorch.state_of(content)
    assert same(dict(state), {"w": torch.tensor([0.0, 1, 2]), "v": torch.tensor([[3.0, 4], [5, 6]])})
    copy = {"w": torch.arange(3.0), "v": torch.arange(4.0, 8.0).reshape(2, 2)}
    padded = {"optimizer": {"param_alignment_paddings": [[1, 0]]}, "model": {"module": copy}}
    assert pytorch.state_of(deepspeed.read(zero2(tmp_path / "b", **padded)))["v"].tolist() == [[4, 5], [6, 7]]


def test_frozen_weights_that_stage_1_keeps_in_the_modules_state_may_be_shared(tmp_path: Path) -> None:
    row = torch.arange(8.0)
    state = {"w": row[:3].half(), "v": row[3:7].reshape(2, 2).half(), "e": torch.ones(2), "head": torch.ones(2)}
    content = deepspeed.read(zero2(tmp_path, model={"module": state, "shared_params": {"head": "e"}}))
    assert {"e", "head"} <= content.tensors.keys()


class Foreign:
    pass


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "weights left over": (
        {"optimizer": {"single_partition_of_fp32_groups": [torch.zeros(40)]}},
        "the weights of group 0 are 7 numbers, its parts have 80",
    ),
    "weights missing": (
        {"optimizer": {"single_partition_of_fp32_groups": [torch.zeros(1)]}},
        r"w, of shape \[3\], has 2 numbers only",
    ),
    "half precision": (
        {"optimizer": {"single_partition_of_fp32_groups": [torch.zeros(4, dtype=torch.float16)]}},
        r"w is kept as float16, ZeRO keeps float32",
    ),
    "whole numbers": (
        {"optimizer": {"single_partition_of_fp32_groups": [torch.zeros(4, dtype=torch.int64)]}},
        r"w is kept as int64, ZeRO keeps float32",
    ),
    "tensor parallel": ({"model": {"mp_world_size": 2}}, "tensor, pipeline or expert parallelism"),
    "no ZeRO": ({"optimizer": {"partition_count": None}}, "is no checkpoint of ZeRO"),
    "other entries": ({"optimizer": {"zero_stage": 3}}, "is no checkpoint of ZeRO that is known here"),
    "too few": ({"optimizer": {"partition_count": [3]}}, r"has 2 of 3 \*_optim_states.pt"),
    "foreign class": ({"model": {"args": Foreign()}}, r"model_states.pt holds objects of .*test_deepspeed.Foreign"),
    "another's part": (
        {"optimizer": {"single_partition_of_fp32_groups": [torch.arange(4.0)]}},
        "the parts of v are not what its module's state has",
    ),
    "another order": (
        {"model": {"param_shapes": [{"v": torch.Size([2, 2]), "w": torch.Size([3])}]}},
        "the parts of v are not what its module's state has",
    ),
    "another shape": (
        {"model": {"param_shapes": [{"w": torch.Size([3]), "v": torch.Size([4])}]}},
        r"v is \[4\], in its module's state \[2, 2\]",
    ),
    "frozen of another shape": (
        {"model": {"frozen_param_shapes": {"f": torch.Size([4])}, "frozen_param_fragments": {"f": torch.ones(3)}}},
        r"the frozen f is not of its shape \[4\]",
    ),
    "shared with nothing": ({"model": {"shared_params": {"head": "nowhere"}}}, "shares head with weights that it does"),
    "no such buffer": ({"model": {"buffer_names": ["rope"]}}, "names the buffer rope, and its module's state has none"),
    "odd entry": ({"model": {"module": {"_extra_state": "text"}}}, "neither weights nor buffers: _extra_state"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_add_up_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        deepspeed.read(zero2(tmp_path, **changes))


@pytest.mark.parametrize("states", [{"zero_stage": 1}, {"partition_count": [3]}])
def test_parts_of_several_runs_are_refused(tmp_path: Path, states: dict[str, Any]) -> None:
    file = zero2(tmp_path) / "tag/zero_pp_rank_1_mp_rank_00_optim_states.pt"
    held = torch.load(file)
    held["optimizer_state_dict"] |= states
    torch.save(held, file)
    with pytest.raises(InputError, match="its processes state other stages or numbers of parts"):
        deepspeed.read(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "latest").write_text("other"), "names the tag 'other', which is no folder"),
        (lambda folder: (folder / "latest").write_text("../.."), "names the tag '../..', which is no folder"),
        (lambda folder: (folder / "latest").unlink(), "latest is missing"),
        (lambda folder: (folder / "tag" / "mp_rank_00_model_states.pt").unlink(), r"no \*_model_states.pt in"),
    ],
    ids=["other tag", "outside", "no latest", "no model"],
)
def test_missing_files_are_named(tmp_path: Path, damage: Callable[[Path], Any], message: str) -> None:
    damage(zero2(tmp_path))
    with pytest.raises(InputError, match=message):
        deepspeed.read(tmp_path)


@pytest.mark.parametrize("name", ["mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"])
def test_a_part_that_its_file_does_not_fill_is_refused(tmp_path: Path, name: str) -> None:
    """The file is mapped into memory: the tensor would go on with whatever stands behind its member."""
    path = zero2(tmp_path) / "tag" / name
    rewritten(path, lambda member, content: content[:-4] if member.endswith("/data/0") else content)
    with pytest.raises(
        InputError, match=rf"{name} is damaged: a tensor has \d+ bytes, its member 0 has \d+: copy it again"
    ):
        deepspeed.read(tmp_path)


def test_it_is_only_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"deepspeed is only read.*choose one of huggingface, pytorch, dcp"):
        convert(zero2(tmp_path / "a"), tmp_path / "b", "deepspeed")
