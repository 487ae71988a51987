"""Recognises programs that use hosted language models: client methods, model names, credentials and prompts.

Notebooks about a model's API mostly call helper functions; the text they pass identifies them.
"""

import re
from functools import lru_cache

#: The ends of the dotted calls by which common clients call a model.
MODEL_ENDPOINTS = (
    "messages.create",
    "messages.stream",
    "completions.create",
    "completions.parse",
    "responses.create",
    "embeddings.create",
    "images.generate",
    "models.generate_content",
    "chat.complete",
    "chat.stream",
)
_CALL_WORDS = frozenset({"llm", "completion", "completions", "chat"})
_VENDOR = r"(?:(?:openai|anthropic|google|mistral|mistralai|cohere|meta-llama|deepseek|groq|vertex_ai|bedrock)/)?"
_MODELS = "|".join(
    (
        r"gpt-\d|chatgpt|o[134](?:-|$)|text-(?:embedding|davinci|curie)-|dall-e-|whisper-1$",
        r"claude-|gemini-|deepseek-(?:chat|reasoner|coder)|voyage-|rerank-|embed-|command-(?:r|a|light|x)",
        r"mistral-(?:tiny|small|medium|large|embed|ocr)|open-mi[sx]tral|codestral",
    )
)
_MODEL = re.compile(rf"{_VENDOR}(?:{_MODELS})[\w.:@-]*$")
_CREDENTIAL = re.compile(
    r"\w*(?:API_KEY|API_TOKEN|ACCESS_TOKEN|CLIENT_SECRET|ACCESS_KEY_ID|SECRET_ACCESS_KEY)$|Bearer "
)
_SPEAKER = r"(?:^|\n)[^\S\n]*(?:Human|Assistant|System|User|\[INST\]|<\|\w+\|>|### ?Instruction)\s*:?"
_PART = "|".join(
    (
        r"[Yy]ou are an? ",
        r"[Yy]our (?:task|job|goal|role) is ",
        r"[Aa]ct as an? ",
        r"[Rr]espond (?:only )?(?:with|in) ",
        r"[Aa]nswer the (?:following )?question",
    )
)
_PROMPT = re.compile(rf"{_SPEAKER}|\b(?:{_PART})")
_PROMPT_LENGTH = 80  # characters; shorter texts are messages for people


@lru_cache(maxsize=4096)
def is_model_call(function: str) -> bool:
    """Whether a function's name says that it calls a model: `llm_call`, `get_completion`."""
    return not _CALL_WORDS.isdisjoint(function.lower().split("_"))


def hosted_model_text(text: str) -> str | None:
    """Describes how a string literal relates to a hosted model ("a hosted model's name"); None when it does not."""
    if len(text) >= _PROMPT_LENGTH:
        return "a prompt for a language model" if _PROMPT.search(text) else None
    if _MODEL.match(text):
        return "a hosted model's name"
    return "a credential's name" if _CREDENTIAL.match(text) else None
