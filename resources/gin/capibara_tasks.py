"""SeqIO tasks `capibara_<domain>` for T5X: put this file on the TPU host's PYTHONPATH and set CAPIBARA_DATA.

`$CAPIBARA_DATA/<domain>/data/{train,validation}.jsonl`, which `capibara dataset export --storage` writes, hold one example a line,
{"messages": [{"role", "content"}, ...]}; the last message is the target, what stands before it the input.
"""

import functools
import json
import os

import seqio
import tensorflow as tf

DOMAINS = ("python", "sql", "javascript", "debug", "ml", "api")
VOCABULARY = seqio.SentencePieceVocabulary("gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model")
FEATURES = {
    "inputs": seqio.Feature(VOCABULARY, add_eos=True),
    "targets": seqio.Feature(VOCABULARY, add_eos=True),
}


def pair(line: str) -> dict[str, str]:
    """One example as input and target text."""
    *before, answer = json.loads(line)["messages"]
    if answer["role"] != "assistant" or not before:
        raise ValueError(f"the last of several messages has to be the assistant's: {line[:200]}")
    return {"inputs": "\n\n".join(message["content"] for message in before), "targets": answer["content"]}


def examples(domain: str, split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    """The examples of a split in file order; SeqIO shuffles them itself."""
    del shuffle_files, seed
    path = f"{os.environ['CAPIBARA_DATA'].rstrip('/')}/{domain}/data/{split}.jsonl"

    def read():
        with tf.io.gfile.GFile(path) as lines:
            for line in lines:
                if line.strip():
                    yield pair(line)

    text = tf.TensorSpec((), tf.string)
    return tf.data.Dataset.from_generator(read, output_signature={"inputs": text, "targets": text})


for name in DOMAINS:
    seqio.TaskRegistry.add(
        f"capibara_{name}",
        source=seqio.FunctionDataSource(functools.partial(examples, name), splits=("train", "validation")),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
        output_features=FEATURES,
        metric_fns=[],
    )
