"""Base models: what is refused, and with which words; digests; bfloat16 on disk, float32 in memory."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from capibara_assets.checkpoints.formats import huggingface
from capibara_assets.checkpoints.formats.safetensors_file import read_file
from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.model_folder import model_folder
from capibara_assets.modeling.base import load_base, load_tokenizer
from capibara_assets.modeling.files import base_digest, check_safetensors, validate_base, weight_files
from capibara_assets_tests.modeling.tiny import save_tiny


@pytest.fixture
def copy(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "copy"))


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def rename_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    (folder / "config.json").write_text(json.dumps(config))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "does not exist"),
    "no config": (lambda folder: (folder / "config.json").unlink(), r"config\.json is missing"),
    "config is not JSON": (lambda folder: (folder / "config.json").write_text("{"), "is not JSON"),
    "config is a list": (lambda folder: (folder / "config.json").write_text("[]"), "expected a JSON object"),
    "another architecture": (rename_architecture, r"not a causal language model .*BertForMaskedLM"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    "weights empty": (lambda folder: cut(folder / "model.safetensors", 0), "damaged"),
    "weights cut": (lambda folder: cut(folder / "model.safetensors", 5000), "damaged: 5000 bytes where"),
    "header overwritten": (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 9000), "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused_by_name(damage: str, copy: Path) -> None:
    validate_base(copy)
    harm, message = DAMAGES[damage]
    harm(copy)
    with pytest.raises(InputError, match=message):
        validate_base(copy)


def configured(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def renamed(folder: Path, rename: Callable[[str], str | None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    kept = {new: tensor for name, tensor in tensors.items() if (new := rename(name)) is not None}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: renamed(folder, lambda name: None if "layers.1.mlp.up" in name else name), "lacks 1 weights"),
        (lambda folder: renamed(folder, lambda name: f"net.{name}"), r"lacks \d+ weights"),
        (lambda folder: configured(folder, num_hidden_layers=3), r"lacks \d+ weights .*first model\.layers\.2"),
        (
            lambda folder: configured(folder, num_hidden_layers=1),
            r"holds \d+ weights of layers .*first model\.layers\.1",
        ),
        (lambda folder: configured(folder, tie_word_embeddings=False), "lacks 1 weights .*first lm_head"),
    ],
    ids=["one", "other names", "a layer", "a layer less", "untied"],
)
def test_a_model_whose_weights_are_not_its_configs_is_not_loaded(
    harm: Callable[[Path], None], message: str, shared: bool, copy: Path, tmp_path: Path
) -> None:
    harm(copy)
    for _ in range(2):  # the second time of a copy that the first may have made
        with pytest.raises(InputError, match=message):
            load_base(copy, shared=tmp_path / "shared" if shared else None)


def test_a_tensor_that_no_model_of_the_kind_has_is_passed_over(copy: Path) -> None:
    before = load_base(copy).model.get_input_embeddings().weight
    tensors = load_file(copy / "model.safetensors")
    save_file({**tensors, "model.rotary.inv_freq": before[0]}, copy / "model.safetensors", metadata={"format": "pt"})
    assert load_base(copy).unread == ("model.rotary.inv_freq",)


@pytest.mark.parametrize("field", ["_attn_implementation", "attn_implementation", "_experts_implementation"])
@pytest.mark.parametrize("value", ["evil/kernel", "paged|evil/kernel:f", ["sdpa"]])
def test_a_config_that_names_a_repository_of_kernels_is_refused(field: str, value: object, copy: Path) -> None:
    configured(copy, text_config={field: value})
    with pytest.raises(InputError, match=f"{field} is .*expected one of eager, sdpa"):
        validate_base(copy)


def test_a_million_labels_and_the_root_of_the_disk_are_refused_at_once(copy: Path) -> None:
    configured(copy, num_labels=10**9)
    with pytest.raises(InputError, match="num_labels is 1000000000"):
        validate_base(copy)
    with pytest.raises(InputError, match=r"config\.json is missing"):
        validate_base(Path("/"))


@pytest.mark.parametrize("ends", [[[1]], "x", 1.5, [-1], 10**20])
def test_a_generation_config_whose_end_is_no_token_is_refused(ends: object, copy: Path) -> None:
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    with pytest.raises(InputError, match=r"generation_config\.json: eos_token_id is .*expected the number of a token"):
        load_base(copy)
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2], "pad_token_id": -1}))
    assert load_base(copy).model.generation_config.eos_token_id == [1, 2]


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("stated", [{"eos_token_id": [1, 4096]}, {"pad_token_id": 4096}, {"bos_token_id": 99_999}])
def test_a_token_beyond_the_vocabulary_is_refused(file: str, stated: dict[str, object], copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    assert config["vocab_size"] == 4096
    (copy / file).write_text(json.dumps((config if file == "config.json" else {}) | stated))
    with pytest.raises(InputError, match=f"{file}: .*_token_id is .*, expected tokens of .* vocabulary, 0 to 4,095"):
        validate_base(copy)


def test_a_file_of_more_tensors_than_models_have_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{number}": entry for number in range(300_000)}).encode()
    file = tmp_path / "many.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    for check in (check_safetensors, read_file):
        with pytest.raises(InputError, match="holds 300,000 tensors, models have up to 262,144"):
            check(file)


NOTHING_LEFT = {"type": "Replace", "pattern": {"Regex": r"[\s\S]"}, "content": ""}


def change_tokenizer(folder: Path, file: str, **changes: object) -> None:
    stated = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(stated | changes))


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("tokenizer_config.json", {"model_max_length": "x"}, "not supported between instances of 'int' and 'str'"),
        ("tokenizer.json", {"model": {"type": "WordLevel", "vocab": {}, "unk_token": "?"}}, "cannot be loaded"),
        (
            "tokenizer.json",
            {"normalizer": {"type": "Replace", "pattern": {"Regex": r"[\s\S]"}, "content": ""}},
            r"makes \[",
        ),
    ],
)
def test_a_tokenizer_that_reads_no_text_is_refused_at_the_door(
    copy: Path, file: str, changes: dict[str, object], words: str
) -> None:
    change_tokenizer(copy, file, **changes)
    with pytest.raises(InputError, match=words):
        load_base(copy)


BAD_TEMPLATE = {
    "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "zz", "type_id": 0}}], "pair": [],
    "special_tokens": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("tokenizer.json", b'{"version": "1.0", ', r"tokenizer\.json is not JSON"),
        ("tokenizer.json", b"[]", r"tokenizer\.json: expected a JSON object, found list"),
        ("tokenizer.json", b"\xff\xfe{\0}\0", r"tokenizer\.json is not JSON: byte 0, 0xff, is not utf-8"),
        ("tokenizer_config.json", b"null", r"tokenizer_config\.json: expected a JSON object, found NoneType"),
        ("tokenizer_config.json", b'{"', r"tokenizer_config\.json is not JSON"),
        ("chat_template.jinja", b"\xff\xfe\x00\x01", r"chat_template\.jinja is no text in UTF-8"),
    ],
)
def test_a_damaged_file_of_a_tokenizer_is_named(copy: Path, file: str, content: bytes, words: str) -> None:
    (copy / file).write_bytes(content)
    with pytest.raises(InputError, match=words):
        load_base(copy)


@pytest.mark.parametrize("processor", [BAD_TEMPLATE, {"type": "Sequence", "processors": [BAD_TEMPLATE]}])
def test_a_token_without_an_id_is_refused_before_the_library_panics(
    copy: Path, processor: dict[str, object], capfd: pytest.CaptureFixture[str]
) -> None:
    change_tokenizer(copy, "tokenizer.json", post_processor=processor)
    with pytest.raises(InputError, match=r"tokenizer\.json: post_processor puts 'zz' around a text, without its id"):
        load_base(copy)
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "evil"}, "hidden_act is 'evil', which Transformers has not"),
        ({"hidden_act": "a\nb"}, r"hidden_act is 'a\\\\nb', which Transformers has not"),
        (
            {"rope_parameters": {"rope_type": "evil", "rope_theta": 1e4}},
            r"rope_parameters\.rope_type is 'evil', which Transformers has not",
        ),
    ],
)
def test_a_name_that_transformers_has_not_is_told_with_its_field(
    copy: Path, changes: dict[str, object], words: str
) -> None:
    change_tokenizer(copy, "config.json", **changes)
    with pytest.raises(InputError, match=rf"config\.json: {words}"):
        load_base(copy)


def test_a_missing_part_of_a_split_model_is_named(copy: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"model-00002-of-00002\.safetensors is missing"):
        validate_base(copy)


def test_validation_imports_no_torch(tiny_folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from capibara_assets.modeling.files import validate_base, base_digest;"
        f"path = Path({str(tiny_folder)!r}); validate_base(path); base_digest(path);"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plain_tokenizer_is_the_one_that_transformers_chooses_and_needs_no_torch(nano: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from capibara_assets.modeling.base import load_tokenizer;"
        f"load_tokenizer(Path({str(nano)!r})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    ours, theirs = load_tokenizer(nano), AutoTokenizer.from_pretrained(nano, local_files_only=True)
    assert type(ours) is type(theirs) and repr(ours) == repr(theirs)
    assert ours.chat_template == theirs.chat_template and ours.init_kwargs == theirs.init_kwargs
    turns = [{"role": "user", "content": "é <|end|>\n\tx"}, {"role": "assistant", "content": "def f():\n    return 1"}]
    assert ours.apply_chat_template(turns) == theirs.apply_chat_template(turns)


@pytest.mark.parametrize(
    "change", [{"tokenizer_class": "LlamaTokenizerFast"}, {"auto_map": {"AutoTokenizer": ["a.B"]}}]
)
def test_any_other_tokenizer_is_chosen_by_transformers(copy: Path, change: dict[str, object]) -> None:
    file = copy / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    asked = patch("transformers.AutoTokenizer.from_pretrained", side_effect=OSError("asked"))
    with asked, pytest.raises(InputError, match=r"cannot be loaded: asked$"):
        load_tokenizer(copy)


def test_the_digest_is_of_what_decides_the_outputs(copy: Path, tiny_folder: Path) -> None:
    assert base_digest(copy) == base_digest(tiny_folder)
    (copy / "README.md").write_text("a model card")
    assert base_digest(copy) == base_digest(tiny_folder)
    (copy / "chat_template.jinja").write_text("another")
    assert base_digest(copy) != base_digest(tiny_folder)


def test_a_bfloat16_model_is_computed_in_float32(tmp_path: Path, nano: Path) -> None:
    base = load_base(save_tiny(tmp_path / "half", tokenizer_of=nano, dtype=torch.bfloat16))
    weight = base.model.get_submodule("model.layers.0.mlp.up_proj").weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, weight.bfloat16().float())
    assert not any(parameter.requires_grad for parameter in base.model.parameters())
    assert not base.model.training


def test_the_shipped_model_loads(nano: Path) -> None:
    base = load_base(nano)
    assert sum(parameter.numel() for parameter in base.model.parameters()) <= 6_000_000
    assert base.tokenizer.chat_template


@pytest.mark.parametrize("first", [True, False])
def test_two_models_in_one_folder_are_refused_by_whoever_reads_it(copy: Path, first: bool) -> None:
    shutil.copy(copy / "model.safetensors", copy / "model-00002-of-00002.safetensors")
    places = {"a": "model-00002-of-00002.safetensors"} | ({"b": "model.safetensors"} if first else {})
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for read in (validate_base, load_base, model_folder, huggingface.read, lambda path: list(weight_files(path))):
        with pytest.raises(InputError, match=r"index\.json, which names 'model-00002.*': they are two"):
            read(copy)


def test_of_several_files_without_an_index_transformers_choice_is_read(copy: Path) -> None:
    shutil.copy(copy / "model.safetensors", copy / "other.safetensors")
    assert list(weight_files(copy)) == [copy / "model.safetensors"]
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model.safetensors"}}))
    assert list(weight_files(copy)) == [copy / "model.safetensors"] and load_base(copy).unread == ()
