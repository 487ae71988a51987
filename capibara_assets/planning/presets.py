"""Configurations of public models (sizes only, no weights), for planning before a model is downloaded."""

from typing import Any

_LLAMA: dict[str, Any] = {"model_type": "llama", "tie_word_embeddings": False}
_T5_1_1: dict[str, Any] = {
    "model_type": "t5",
    "d_kv": 64,
    "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu",
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
}


def _llama(
    hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocabulary: int, context: int
) -> dict[str, Any]:
    return {
        **_LLAMA,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
    }


def _t5(hidden: int, layers: int, heads: int, width: int) -> dict[str, Any]:
    sizes = {"d_model": hidden, "num_layers": layers, "num_decoder_layers": layers, "num_heads": heads, "d_ff": width}
    return {**_T5_1_1, **sizes}


PRESETS: dict[str, dict[str, Any]] = {
    "llama2-7b": _llama(4096, 32, 32, 32, 11008, 32000, 4096),
    "llama3.1-8b": {**_llama(4096, 32, 32, 8, 14336, 128256, 131072), "rope_theta": 500_000.0},
    "llama3.1-70b": {**_llama(8192, 80, 64, 8, 28672, 128256, 131072), "rope_theta": 500_000.0},
    "mistral-7b": {**_llama(4096, 32, 32, 8, 14336, 32000, 32768), "model_type": "mistral"},
    # Models of the recipes 20b_qlora and 120b: public dense models next to those sizes (20.6 and 122.6 B).
    "gpt-neox-20b": {
        "model_type": "gpt_neox",
        "hidden_size": 6144,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "intermediate_size": 24576,
        "vocab_size": 50432,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    },
    "mistral-large-123b": {
        **_llama(12288, 88, 96, 8, 28672, 32768, 131072),
        "model_type": "mistral",
        "head_dim": 128,
        "rope_theta": 1_000_000.0,
    },
    "mixtral-8x7b": {
        **_llama(4096, 32, 32, 8, 14336, 32000, 32768),
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "rope_theta": 1_000_000.0,
    },
    "qwen3-0.6b": {
        **_llama(1024, 28, 16, 8, 3072, 151936, 40960),
        "model_type": "qwen3",
        "head_dim": 128,
        "tie_word_embeddings": True,
        "rope_theta": 1_000_000.0,
    },
    "gemma2-2b": {
        **_llama(2304, 26, 8, 4, 9216, 256000, 8192),
        "model_type": "gemma2",
        "head_dim": 256,
        "tie_word_embeddings": True,
    },
    # T5 1.1 with the padded vocabulary that T5X trains with (32,128).
    "t5_1_1-small": _t5(512, 8, 6, 1024),
    "t5_1_1-base": _t5(768, 12, 12, 2048),
    "t5_1_1-large": _t5(1024, 24, 16, 2816),
    "t5_1_1-xl": _t5(2048, 24, 32, 5120),
    "t5_1_1-xxl": _t5(4096, 24, 64, 10240),
}
