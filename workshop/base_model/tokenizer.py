"""The base model's tokenizer: byte-level BPE made for code, with chat roles and a chat template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

DOCUMENT_END = "<|endoftext|>"
PADDING = "<|pad|>"
TURN_END = "<|end|>"
ROLES = ("system", "user", "assistant")
SPECIAL_TOKENS = (DOCUMENT_END, PADDING, *(f"<|{role}|>" for role in ROLES), TURN_END)

# Pieces that BPE may merge within: a line break right after a special token alone (so that a prompt's tokens are a
# prefix of the whole conversation's, whatever the answer begins with); a word with the sign before it (".append",
# "_name", " return"); one digit; signs; a line break with the indentation that follows it, less the last space.
SPLIT = r"\A\n|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "{{ '<|assistant|>\\n' }}{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}{{ '\\n' }}"
    "{% elif message['role'] in ['system', 'user'] %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}"
    "{% else %}"
    "{{ raise_exception('capibara-nano knows the roles system, user and assistant, not ' + message['role']) }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def render_chat(messages: Iterable[tuple[str, str]]) -> str:
    """The chat template's rendering of (role, content) pairs, for building pre-training documents quickly."""
    return "".join(f"<|{role}|>\n{content}{TURN_END}\n" for role, content in messages)


def train_bpe(texts: Iterable[str], vocabulary: int = 4096) -> Tokenizer:
    """Train the byte-level BPE on ``texts``; special tokens take the first ids, in the order of ``SPECIAL_TOKENS``.

    Raises:
        InputError: the texts are too few to fill ``vocabulary``.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=24,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    if bpe.get_vocab_size() != vocabulary:
        raise InputError(f"the sample yields {bpe.get_vocab_size()} tokens, not {vocabulary}: give more text")
    return bpe


def wrap(bpe: Tokenizer, context: int = 2048) -> PreTrainedTokenizerFast:
    """The tokenizer as Transformers loads it, with the chat template and the roles as special tokens."""
    from transformers import PreTrainedTokenizerFast  # seconds, which processes that draw skills do without

    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=DOCUMENT_END,
        eos_token=TURN_END,
        pad_token=PADDING,
        additional_special_tokens=[f"<|{role}|>" for role in ROLES],
        chat_template=CHAT_TEMPLATE,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        padding_side="right",
    )


def token_bytes(bpe: Tokenizer) -> list[int]:
    """Bytes of text that each token stands for (0 for special tokens), by id."""
    specials = {bpe.token_to_id(token) for token in SPECIAL_TOKENS}
    # In the byte-level alphabet every byte is written as one character.
    return [0 if index in specials else len(bpe.id_to_token(index) or "") for index in range(bpe.get_vocab_size())]
