"""The assets of the Dagster graph, one module per stage, and the stages' order.

Imports the libraries, `metadata`, `resources` and `launching`; only `checks`, `automation`, `definitions` and `cli`
import it.
"""

from capibara_assets.assets import (
    consensus,
    datasets,
    evaluation,
    experience,
    imports,
    knowledge,
    plans,
    promotion,
    routing,
    training,
)

STAGES = (experience, imports, knowledge, datasets, plans, training, consensus, routing, evaluation, promotion)
