"""LoRA's targets: the rule by which they are found, and the experts' fused parameters, which are no linear layers.

Transformers keeps the experts of a mixture as one parameter of three dimensions (experts, out, in). PEFT adapts such a
parameter as a whole (`target_parameters`): the change of each expert is a product of its own, so the adapter is no
longer pairs of one A and one B, and voters' adapters cannot be compared by them.
"""

EVERY_LINEAR = "every linear layer of the blocks but the head, as PEFT's all-linear"


def is_expert(name: str) -> bool:
    """Whether a name stands for a fused parameter of experts and not for a linear layer."""
    return name.startswith("experts.")
