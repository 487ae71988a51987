"""The public names of training: the arithmetic of differential privacy.

| function | takes | returns |
|---|---|---|
| `dp_clipped_mean` | clients' vectors, clip, noise | the clipped and noised mean |
| `dp_epsilon` | noise, sampling rate, steps, delta | the privacy budget epsilon that training spent |
| `dp_noise_multiplier` | a budget, sampling rate, steps | the least noise with which all steps fit the budget |
| `predicted_snr` | noise, clients, numbers | signal-to-noise ratio of the clients' summed change |
| `privacy_problems` | a manifest's `published.privacy` | what of it does not follow from its parameters |

Trainings themselves are started by `capibara train` and the graph. torch is imported when a name is first used.
"""

from typing import TYPE_CHECKING

from capibara_assets.deployment.public_names import public_names

if TYPE_CHECKING:
    from capibara_assets.training.strategies.privacy import (
        dp_clipped_mean,
        dp_epsilon,
        dp_noise_multiplier,
        predicted_snr,
        privacy_problems,
    )

__all__ = ["dp_clipped_mean", "dp_epsilon", "dp_noise_multiplier", "predicted_snr", "privacy_problems"]

__getattr__, __dir__ = public_names(__name__, dict.fromkeys(__all__, "training.strategies.privacy"))
