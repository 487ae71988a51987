"""T5's names: Transformers' own models go to T5X and come back bit for bit, and compute the same."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import T5Config, T5ForConditionalGeneration, UMT5Config, UMT5ForConditionalGeneration

from capibara_assets.checkpoints.content import Content, PieceSource, of_bytes, of_numpy, of_torch, to_numpy
from capibara_assets.checkpoints.formats import FORMATS, huggingface, t5x
from capibara_assets.checkpoints.formats.t5_names import CONFIG, to_t5x, to_transformers
from capibara_assets.errors import InputError
from capibara_assets_tests.checkpoints.formats.nested_states import values
from capibara_assets_tests.checkpoints.formats.test_t5x import theirs  # noqa: F401  (a fixture)
from capibara_assets_tests.late import late

late("tensorstore", reason="the extra tpu is not installed")

SIZES = {"vocab_size": 40, "d_model": 12, "d_kv": 4, "num_heads": 5, "d_ff": 18, "num_layers": 3}
SCALES = {"scale_decoder_outputs": True}
SIZES |= {"num_decoder_layers": 2, "relative_attention_num_buckets": 6}


def v11(**sizes: int) -> T5ForConditionalGeneration:
    """T5 v1.1: gated, a head of its own."""
    config = T5Config(**{**SIZES, **sizes}, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    return untied(T5ForConditionalGeneration(config))


def v10() -> T5ForConditionalGeneration:
    torch.manual_seed(1)
    model = T5ForConditionalGeneration(T5Config(**SIZES, feed_forward_proj="relu"))
    return noise(model)


def umt5(**sizes: int) -> UMT5ForConditionalGeneration:
    return untied(UMT5ForConditionalGeneration(UMT5Config(**{**SIZES, **sizes}, feed_forward_proj="gated-gelu")))


def untied(model):
    torch.manual_seed(1)
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    return noise(model)


def noise(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model.eval()


def content_of(model) -> Content:
    """What its safetensors file has: the embedding once, under `shared.weight`."""
    state = {name: of_torch(tensor) for name, tensor in model.state_dict().items() if "embed_tokens" not in name}
    if model.lm_head.weight is model.shared.weight:
        del state["lm_head.weight"]
    return Content(state, kind="model")


def reference(model) -> dict[str, np.ndarray]:
    """T5X's parameters of an unrolled v1.1 model, by the names of its modules and nothing else of ours."""
    found = {"target/token_embedder/embedding": model.shared.weight}
    found["target/decoder/logits_dense/kernel"] = model.lm_head.weight.T
    for stack, module in (("encoder", model.encoder), ("decoder", model.decoder)):
        found[f"target/{stack}/{stack}_norm/scale"] = module.final_layer_norm.weight
        bias = module.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        found[f"target/{stack}/relpos_bias/rel_embedding"] = bias.T
        for index, block in enumerate(module.block):
            at = f"target/{stack}/layers_{index}"
            own = "attention" if stack == "encoder" else "self_attention"
            parts = [(own, block.layer[0].SelfAttention, block.layer[0], f"pre_{own}_layer_norm")]
            if stack == "decoder":
                cross = block.layer[1]
                parts.append(
                    ("encoder_decoder_attention", cross.EncDecAttention, cross, "pre_cross_attention_layer_norm")
                )
            for name, attention, layer, norm in parts:
                found[f"{at}/{norm}/scale"] = layer.layer_norm.weight
                for ours, linear in (
                    ("query", attention.q),
                    ("key", attention.k),
                    ("value", attention.v),
                    ("out", attention.o),
                ):
                    found[f"{at}/{name}/{ours}/kernel"] = linear.weight.T
            last = block.layer[-1]
            found[f"{at}/pre_mlp_layer_norm/scale"] = last.layer_norm.weight
            for ours in ("wi_0", "wi_1", "wo"):
                found[f"{at}/mlp/{ours}/kernel"] = getattr(last.DenseReluDense, ours).weight.T
    return {name: tensor.detach().numpy() for name, tensor in found.items()}


def logits(model) -> torch.Tensor:
    ids = torch.arange(2, 20).reshape(2, 9)
    with torch.no_grad():
        return model(input_ids=ids, decoder_input_ids=ids.flip(1)).logits


SMALL = st.integers(1, 3)


@settings(max_examples=15, deadline=None)
@given(SMALL, SMALL, SMALL, st.integers(1, 5), SMALL)
def test_every_parameter_of_v11_lands_under_its_name(layers: int, decoders: int, heads: int, width: int, buckets: int):
    model = v11(
        num_layers=layers,
        num_decoder_layers=decoders,
        num_heads=heads,
        d_model=width,
        relative_attention_num_buckets=2 * buckets,
    )
    content = content_of(model)
    mapped = to_t5x(content, step=7)
    expected = reference(model)
    assert mapped.tensors.keys() == {*expected, "state/step"}
    for name, array in expected.items():
        found = to_numpy(mapped.tensors[name])
        assert found.shape == array.shape and found.tobytes() == np.ascontiguousarray(array).tobytes(), name
    assert to_numpy(mapped.tensors["state/step"]) == 7
    assert values(to_transformers(mapped).tensors) == values(content.tensors)


@pytest.mark.parametrize("make", [v11, pytest.param(v10, marks=pytest.mark.extended), umt5])
@pytest.mark.parametrize("scan", [False, True])
def test_models_go_to_t5x_and_back_through_files_and_compute_the_same(tmp_path: Path, make, scan: bool):
    model = make()
    model.save_pretrained(tmp_path / "hf")
    content = huggingface.read(tmp_path / "hf")
    if scan and make is not umt5:
        with pytest.raises(InputError, match="only block 0 has a relative position bias"):
            to_t5x(content, scan=True)
        return
    t5x.write(to_t5x(content, scan=scan), tmp_path / "t5x")
    read = t5x.read(tmp_path / "t5x")
    back = to_transformers(read)
    assert values(back.tensors) == values(content.tensors)
    assert back.files.keys() == content.files.keys()
    (tmp_path / "t5x/config.json").unlink()
    FORMATS["huggingface"].write(to_transformers(t5x.read(tmp_path / "t5x")), tmp_path / "made")
    config = json.loads((tmp_path / "made/config.json").read_text())
    assert {name: config[name] for name in SIZES} == SIZES
    again = type(model).from_pretrained(tmp_path / "made")
    assert torch.equal(logits(again), logits(model))


def test_scanned_layers_lie_along_axis_one_with_heads_of_their_own():
    model = umt5()
    mapped = to_t5x(content_of(model), scan=True)
    shapes = {name.removeprefix("target/decoder/decoder/"): source.shape for name, source in mapped.tensors.items()}
    width, heads, depth, ff, layers = 12, 5, 4, 18, 2
    assert shapes["self_attention/query/kernel"] == (width, layers, heads, depth)
    assert shapes["encoder_decoder_attention/out/kernel"] == (heads, layers, depth, width)
    assert shapes["mlp/wo/kernel"] == (ff, layers, width)
    assert shapes["relpos_bias/rel_embedding"] == (heads, layers, 6)
    assert shapes["pre_mlp_layer_norm/scale"] == (width, layers)
    query = to_numpy(mapped.tensors["target/decoder/decoder/self_attention/query/kernel"])
    weight = model.decoder.block[1].layer[0].SelfAttention.q.weight.detach().numpy()
    assert np.array_equal(query[:, 1], weight.T.reshape(width, heads, depth))
    out = to_numpy(mapped.tensors["target/decoder/decoder/encoder_decoder_attention/out/kernel"])
    weight = model.decoder.block[1].layer[1].EncDecAttention.o.weight.detach().numpy()
    assert np.array_equal(out[:, 1], weight.T.reshape(heads, depth, width))


def test_layers_along_axis_zero_are_seen_by_their_shape():
    content = content_of(umt5())
    mapped = to_t5x(content, scan=True)
    moved: dict[str, PieceSource] = {
        name: of_numpy(np.moveaxis(to_numpy(source), 1, 0).copy())
        if re.search(r"/(encoder|decoder)/\1/", name)
        else source
        for name, source in mapped.tensors.items()
    }
    assert values(to_transformers(Content(moved, tree=mapped.tree)).tensors) == values(content.tensors)


def test_a_checkpoint_that_t5x_wrote_loads_in_transformers(theirs: Path, tmp_path: Path):  # noqa: F811
    content = t5x.read(theirs / "checkpoint_1000")
    with pytest.raises(InputError, match=r"no place for 116 tensors of optimizer state, state/param_states"):
        to_transformers(content)
    FORMATS["huggingface"].write(to_transformers(content, optimizer="leave out"), tmp_path / "hf")
    model, report = T5ForConditionalGeneration.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    kernel = to_numpy(content.tensors["target/encoder/layers_0/mlp/wo/kernel"]).astype(np.float32)
    loaded = model.encoder.block[0].layer[1].DenseReluDense.wo.weight.detach().float().numpy()
    assert np.array_equal(loaded, kernel.T)
    assert torch.isfinite(logits(model.float())).all()


def test_bfloat16_keeps_its_bits():
    content = content_of(v11().to(torch.bfloat16))
    assert values(to_transformers(to_t5x(content)).tensors) == values(content.tensors)
    assert {source.dtype for name, source in to_t5x(content).tensors.items() if name != "state/step"} == {"BF16"}


def test_other_names_of_the_embedding_are_the_embedding():
    content = content_of(v10())
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    tied = Content(content.tensors, ties=dict.fromkeys(names, "shared.weight"))
    copied = Content({**content.tensors, "encoder.embed_tokens.weight": content.tensors["shared.weight"]})
    for same in (tied, copied):
        assert values(to_t5x(same).tensors) == values(to_t5x(content).tensors)
    other = Content({**content.tensors, names[0]: of_numpy(np.zeros((40, 12), np.float32))})
    with pytest.raises(InputError, match=r"encoder\.embed_tokens\.weight differs"):
        to_t5x(other)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"encoder.block.1.layer.0.SelfAttention.k.weight": None},
            r"misses encoder\.block\.1\.layer\.0\.SelfAttention\.k",
        ),
        ({"decoder.block.4.layer.0.layer_norm.weight": (12,)}, r"misses decoder\.block\.2.* and \d+ more"),
        ({"classifier.weight": (2, 12)}, r"does not know classifier\.weight"),
        ({"encoder.final_layer_norm.weight": (13,)}, r"another shape for encoder\.final_layer_norm.*\[13\] for \[12\]"),
        ({"shared.weight": None}, r"no T5 encoder-decoder: shared\.weight is missing"),
        ({"decoder.final_layer_norm.weight": None}, r"misses decoder\.final_layer_norm"),
    ],
)
def test_what_is_no_whole_t5_is_named(change: dict, says: str):
    tensors = dict(content_of(v11()).tensors)
    for name, shape in change.items():
        if shape is None:
            del tensors[name]
        else:
            tensors[name] = of_numpy(np.ones(shape, np.float32))
    with pytest.raises(InputError, match=says):
        to_t5x(Content(tensors))


def test_t5x_trees_of_other_models_are_named():
    mapped = to_t5x(content_of(v11()))
    with pytest.raises(InputError, match=r"no parameters target/encoder/layers_0/moe/gate"):
        to_transformers(Content({**mapped.tensors, "target/encoder/layers_0/moe/gate": of_numpy(np.ones(1))}))
    with pytest.raises(InputError, match="token_embedder/embedding is not in it"):
        to_transformers(Content({"target/w": of_numpy(np.ones(1))}))
    short = {name: source for name, source in mapped.tensors.items() if "decoder" not in name}
    with pytest.raises(InputError, match="only encoder-decoders"):
        to_transformers(Content(short))


def test_a_config_that_scales_otherwise_than_t5x_is_refused(tmp_path: Path):
    model = v11()
    model.save_pretrained(tmp_path / "hf")
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["scale_decoder_outputs"] is False
    content = huggingface.read(tmp_path / "hf")
    scaling = Content(content.tensors, files={CONFIG: of_bytes(json.dumps(config | SCALES).encode())})
    with pytest.raises(InputError, match=r"scales the decoder's outputs and lm_head\.weight is there"):
        to_t5x(scaling)
    tied = {name: source for name, source in content.tensors.items() if name != "lm_head.weight"}
    with pytest.raises(InputError, match=r"does not scale the decoder's outputs and lm_head\.weight is missing"):
        to_t5x(Content(tied, files=content.files))
    with pytest.raises(InputError, match="no JSON"):
        to_t5x(Content(content.tensors, files={"config.json": of_bytes(b"{")}))
