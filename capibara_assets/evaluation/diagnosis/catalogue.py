"""The catalogue of diagnoses: for each its symptom, evidence, severity and remedy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class CatalogueEntry:
    """The description of one diagnosis.

    Attributes:
        symptom: what users notice.
        evidence: what is checked.
        remedy: a command or a line of code; `{name}` stands for a figure of the evidence.
    """

    symptom: str
    evidence: str
    severity: Severity
    remedy: str


@dataclass(frozen=True)
class Diagnosis:
    """One problem of a model, with its evidence.

    Attributes:
        id: its name in the catalogue.
        found: a sentence with the figures.
        evidence: the same figures, as JSON.
    """

    id: str
    found: str
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        """From the catalogue."""
        return CATALOGUE[self.id].severity

    @property
    def remedy(self) -> str:
        """From the catalogue, with the figures of the evidence filled in."""
        return CATALOGUE[self.id].remedy.format_map(_Named(self.evidence))

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "severity": self.severity,
            "found": self.found,
            "evidence": dict(self.evidence),
            "remedy": self.remedy,
        }


class _Named(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return key.upper()  # as a command line would name what is to be filled in


CATALOGUE: Mapping[str, CatalogueEntry] = {
    # files
    "weights_torn": CatalogueEntry(
        "loading ends with a header or size error",
        "safetensors headers against file sizes, and the files that the index names",
        "error",
        "copy or download {file} again; `capibara checkpoint verify` says whether the store's own copy is intact",
    ),
    "does_not_load": CatalogueEntry(
        "loading ends with an error",
        "the error of Transformers, of PEFT or of the reader",
        "error",
        "fix what the message names, or `capibara checkpoint load REF --format huggingface --out FOLDER` once more",
    ),
    "weights_not_finite": CatalogueEntry(
        "loss is NaN; the same token repeated endlessly; an error in sampling",
        "every value of every tensor",
        "error",
        "take an earlier checkpoint: `capibara checkpoint load MODEL@step:N --format huggingface --out FOLDER`; train "
        "again with --precision bf16 or fp32 and a lower --learning-rate",
    ),
    "tied_weights_differ": CatalogueEntry(
        "gibberish after saving and loading, good before",
        "embedding against head, if the config ties them",
        "error",
        'config.json: "tie_word_embeddings": false keeps both; or delete {head} from the file to keep the embedding',
    ),
    "head_missing": CatalogueEntry(
        "gibberish that differs at each start",
        "the output layer is in none of the files, and not tied to the embedding",
        "error",
        "load with the class that it was saved from (AutoModelForCausalLM), or copy the head from the base's file; "
        'config.json: "tie_word_embeddings": true if the head is the embedding',
    ),
    "weights_missing": CatalogueEntry(
        "a warning about newly initialised weights; nonsense",
        "parameters that are in no file and are therefore initialised at random",
        "error",
        "copy the whole model again, with all shards that model.safetensors.index.json names",
    ),
    "weights_unread": CatalogueEntry(
        "the model behaves as if parts of it were untrained",
        "tensors in the files that match no parameter of the model",
        "warning",
        "merge the adapter first (`model.merge_and_unload().save_pretrained(FOLDER)`), or rename the tensors to what "
        "the architecture of config.json expects",
    ),
    "vocabulary_resized": CatalogueEntry(
        "index out of range in the embedding; size mismatch while loading",
        "rows of embedding and head, vocab_size of the config, tokens of the tokenizer",
        "error",
        "model.resize_token_embeddings(len(tokenizer)); model.save_pretrained(FOLDER), and train the new rows",
    ),
    "token_rows_untrained": CatalogueEntry(
        "turns are not recognised after tokens were added",
        "rows of the template's control tokens: all zero, or equal to one another",
        "warning",
        "train the rows: LoraConfig(..., trainable_token_indices={{'embed_tokens': {ids}}}), or use control tokens "
        "that the base knows",
    ),
    "quantised_merge": CatalogueEntry(
        "the merged model is worse than base with adapter",
        "a quantisation_config with a merged adapter, and the share of its change that is lost to rounding",
        "warning",
        "merge into the base from before quantisation, or serve the adapter beside the quantised base "
        "(PeftModel.from_pretrained(base, adapter))",
    ),
    # tokenizer and template
    "tokenizer_of_another_model": CatalogueEntry(
        "fluent nonsense, or gibberish",
        "tokens and ids against the base's tokenizer",
        "error",
        "copy tokenizer.json and tokenizer_config.json from {base}",
    ),
    "special_ids_differ": CatalogueEntry(
        "answers never end, or end at once",
        "bos, eos and pad of the config against the tokenizer's",
        "error",
        "config.json: set {ids_in_config} to the tokenizer's ids: {ids_in_tokenizer}",
    ),
    "template_missing": CatalogueEntry(
        "chat requests are refused, or the model continues the question",
        "the tokenizer's chat template",
        "error",
        "copy chat_template.jinja of the model that it was trained from",
    ),
    "template_refuses": CatalogueEntry(
        "chat requests end with an error, or lose a turn",
        "a conversation rendered by the template",
        "error",
        "copy chat_template.jinja of the model that it was trained from",
    ),
    "template_unknown_tokens": CatalogueEntry(
        "the model writes turn markers as text, or answers for the user",
        "markers that the template writes but the tokenizer has no token for",
        "error",
        "use the template that the model was trained with; or add the tokens and train their rows: "
        "tokenizer.add_special_tokens({{'additional_special_tokens': {tokens}}})",
    ),
    "template_wrong": CatalogueEntry(
        "good in validation, poor in chat",
        "a rendered turn against that of the base or of the training, or turn tokens that the template never writes",
        "error",
        "copy chat_template.jinja of {reference}",
    ),
    "end_of_turn_not_eos": CatalogueEntry(
        "answers run on to the limit, and answer themselves",
        "the token that ends a turn in the template against those at which generation stops",
        "error",
        "generation_config.json: add {end_id} to eos_token_id",
    ),
    # adapters
    "adapter_b_zero": CatalogueEntry(
        "the adapter changes nothing",
        "every B is zero: LoRA starts there and was never trained, or was saved before the first step",
        "error",
        "take a later checkpoint (`capibara epochs OUTPUT`); training: optimizer over the parameters that "
        "require a gradient, model.print_trainable_parameters() > 0",
    ),
    "adapter_scale_zero": CatalogueEntry(
        "the adapter changes nothing",
        "lora_alpha / r of adapter_config.json",
        "error",
        "adapter_config.json: set lora_alpha to what it was trained with (often 2 x r)",
    ),
    "adapter_targets_missing": CatalogueEntry(
        "the adapter changes nothing, or only some layers",
        "modules of the adapter that the base does not have",
        "error",
        "give the base that it was trained on (--base), or rename the tensors' prefix to base_model.model.<module>",
    ),
    "adapter_without_effect": CatalogueEntry(
        "the adapter changes nothing",
        "logits with and without it",
        "error",
        "train longer or with a higher --learning-rate; check that serving really loads it (model.active_adapters)",
    ),
    "adapter_factors_differ": CatalogueEntry(
        "the change is too strong or too weak",
        "rank of A and B against r of adapter_config.json",
        "error",
        "adapter_config.json: set r to {rank} and lora_alpha so that lora_alpha / r stays what it was trained with",
    ),
    "base_mismatch": CatalogueEntry(
        "gibberish with the adapter, good without",
        "digest of the base, shapes of its layers",
        "error",
        "give the base that it was trained on: --base FOLDER (its digest begins {wanted})",
    ),
    "base_unverified": CatalogueEntry(
        "an adapter of unknown origin",
        "base_model_name_or_path against the base's folder; no digest is written beside the adapter",
        "warning",
        "give the base that adapter_config.json names: --base {named}, or keep training_info.json beside the adapter",
    ),
    # loaded
    "split_devices": CatalogueEntry(
        "expected all tensors on the same device; or very slow",
        "devices of parameters and buffers, and the map of parts",
        "error",
        'load in one place: AutoModelForCausalLM.from_pretrained(FOLDER, device_map={{"": 0}}), quantised if it does '
        "not fit",
    ),
    "meta_parameters": CatalogueEntry(
        "cannot copy out of meta tensor",
        "parameters without storage",
        "error",
        "load without init_empty_weights, or give from_pretrained a device_map that names every part",
    ),
    "device_map_under_deepspeed": CatalogueEntry(
        "DeepSpeed stops, or every process holds the model on the first GPU",
        "a device_map while DeepSpeed places the model: its settings, or the training script's source",
        "error",
        "leave device_map out under DeepSpeed: AutoModelForCausalLM.from_pretrained(FOLDER)",
    ),
    "logits_not_finite": CatalogueEntry(
        "the same token repeated endlessly, or an error in sampling",
        "logits over sane texts in float32, with finite weights",
        "error",
        "look for the layer with `capibara checkpoint diff BASE MODEL`; take an earlier checkpoint",
    ),
    "fp16_overflow": CatalogueEntry(
        "good in bf16 or fp32, NaN in fp16",
        "largest activation over sane texts against 65,504",
        "error",
        'config.json: "dtype": "bfloat16", and serve it so (vllm serve FOLDER --dtype bfloat16)',
    ),
    "gibberish": CatalogueEntry(
        "meaningless text",
        "loss on sane texts against the base and against guessing, entropy, broken characters in answers",
        "error",
        "take an earlier epoch (`capibara compare-epochs OUTPUT`), train with a lower --learning-rate; after a merge, "
        "a smaller scale",
    ),
    "repetition": CatalogueEntry(
        "the same words repeated endlessly",
        "loops at the end of greedy and of sampled answers, distinct 2-grams",
        "error",
        "take an earlier epoch (`capibara compare-epochs OUTPUT`) and look for copies in the data; until then "
        "`capibara test-model --model FOLDER --temperature 0.8`, model.generate(repetition_penalty=1.1)",
    ),
    "never_ends": CatalogueEntry(
        "answers run on to the limit",
        "probability of the end of turn where sane answers end",
        "warning",
        "train with the end of turn among the labels (`capibara dataset validate` audits the masks)",
    ),
}


def table() -> str:
    """The catalogue as a Markdown table, as in docs/debugging-models.md."""
    head = "| symptom | diagnosis | evidence | remedy |\n| --- | --- | --- | --- |\n"
    rows = [
        (known.symptom, f"`{name}`", known.evidence, Diagnosis(name, "").remedy.replace("|", "\\|"))
        for name, known in CATALOGUE.items()
    ]
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)
