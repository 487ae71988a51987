"""A T5 and a BERT of a few thousand random weights with a tokenizer of words, without a chat template."""

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

WORDS = (
    "user", "assistant", "Write", "a", "function", "that", "adds", "def", "return", "done", "add", "x", "is", "answer",
)  # fmt: skip


def word_tokenizer(special: dict[str, str], wrap: str) -> PreTrainedTokenizerFast:
    """Words, digits and signs as tokens.

    Args:
        special: Transformers' name of each special token -> the token.
        wrap: what stands around a text, as the tokenizers library writes it ("$A </s>").
    """
    tokens = [*special.values(), *WORDS, *string.printable.strip()]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk_token"], continuing_subword_prefix=""))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single=wrap, special_tokens=[(token, vocabulary[token]) for token in special.values()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def save_t5(folder: Path, layers: int = 2) -> Path:
    """A T5 of width 32 with so many layers on each side; returns the folder."""
    tokenizer = word_tokenizer({"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}, "$A </s>")
    torch.manual_seed(7)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=16, d_ff=64, num_layers=layers, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, initializer_factor=1.0,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_bert(folder: Path) -> Path:
    """A BERT of width 32 with two layers; returns the folder."""
    tokenizer = word_tokenizer(
        {
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        },
        "[CLS] $A [SEP]",
    )
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=256, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0,
        initializer_range=0.2,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
