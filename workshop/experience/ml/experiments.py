"""ML families of several cells: small experiments from simulated data to a score."""

from workshop.experience.ml.metrics import cell, ml_session

_LINEAR_DATA = cell(
    "Simulate <<n>> <<things>>: `<<number>>` depends linearly on `<<amount>>` and `<<extra>>` plus noise. Build X and y.",
    """
    import numpy as np

    rng = np.random.default_rng(<<i>>)
    <<amount>> = rng.uniform(0, 10, <<n>>)
    <<extra>> = rng.normal(5, 2, <<n>>)
    X = np.column_stack([<<amount>>, <<extra>>])
    y = <<k>> * <<amount>> - 1.5 * <<extra>> + 10 + rng.normal(0, 0.5, <<n>>)
    X.shape, y.shape
    """,
)
_NOISY_DATA = cell(
    "Generate a regression data set of <<n>> <<things>> with three features and a known weight vector for <<number>>.",
    """
    import numpy as np

    true_weights = np.array([<<k>>.0, -1.0, 0.<<i>>])
    X = np.random.default_rng(<<j>>).standard_normal((<<n>>, 3)) * [1.0, 4.0, 0.5]
    y = X @ true_weights + <<i>>
    print("<<things>>:", X.shape, "mean <<number>>", y.mean().round(2))
    """,
)
_BLOBS = cell(
    "Simulate two classes of <<things>> (<<g1>> and <<g2>>) with two features each, <<n>> rows per class.",
    """
    import numpy as np

    rng = np.random.default_rng(<<j>>)
    low = rng.normal([0, 0], 1.0, (<<n>>, 2))
    high = rng.normal([3, <<k>>], 1.0, (<<n>>, 2))
    X = np.vstack([low, high])
    y = np.repeat([0, 1], <<n>>)
    print(X.shape, y.mean())
    """,
)
_SHUFFLED_BLOBS = cell(
    "Draw <<n>> <<things>> from two clouds around (1, 1) and (6, <<k>>), shuffled, with the cloud's number as y.",
    """
    import numpy as np

    rng = np.random.default_rng(<<big>>)
    y = rng.integers(0, 2, <<n>>)
    means = np.array([[1.0, 1.0], [6.0, <<k>>.0]])
    X = means[y] + rng.normal(scale=0.8, size=(<<n>>, 2))
    np.bincount(y).tolist()
    """,
)

_SIZES = ["40", "50", "60", "80", "30"]
_EXTRAS = ["<<amount>>_ratio", "temperature", "distance_km", "noise_level", "discount_rate"]

FAMILIES = (
    ml_session(
        "regression_experiment",
        (
            _LINEAR_DATA,
            cell(
                (
                    "Hold out the last <<held>>% of the rows, standardize with the training statistics, and fit least squares.",
                    "Split off the last <<held>>% in order, scale by the training mean and deviation, and solve for the weights.",
                ),
                """
                cut = int(len(X) * (1 - 0.<<held>>))
                mean, std = X[:cut].mean(axis=0), X[:cut].std(axis=0)
                train, test = (X[:cut] - mean) / std, (X[cut:] - mean) / std
                design = np.column_stack([np.ones(len(train)), train])
                weights, *_ = np.linalg.lstsq(design, y[:cut], rcond=None)
                print(weights.round(2))
                """,
                "weights.shape ==>",
            ),
            cell(
                ("Evaluate: test RMSE and R2.", "How good is the fit on the held-out rows (RMSE, R2)?"),
                """
                prediction = np.column_stack([np.ones(len(test)), test]) @ weights
                rmse = np.sqrt(np.mean((prediction - y[cut:]) ** 2))
                r2 = 1 - np.sum((prediction - y[cut:]) ** 2) / np.sum((y[cut:] - y[cut:].mean()) ** 2)
                print(f"<<number>>: rmse {rmse:.3f}, r2 {r2:.3f}")
                """,
                "r2 > 0.9 ==>",
            ),
        ),
        pick={"n": _SIZES, "extra": _EXTRAS, "held": ["20", "25", "30", "15", "10"]},
        bugs=[
            ("bias column missing", "np.column_stack([np.ones(len(test)), test]) @ weights", "test @ weights"),
            ("train targets", "prediction - y[cut:]) ** 2))", "prediction - y[:cut]) ** 2))"),
            (
                "list stacked wrongly",
                "np.column_stack([np.ones(len(test)), test])",
                "np.vstack([np.ones(len(test)), test])",
            ),
        ],
    ),
    ml_session(
        "gradient_experiment",
        (
            _NOISY_DATA,
            cell(
                (
                    "Standardize X and train a linear model by gradient descent; keep the loss of every <<every>>th epoch.",
                    "Write the training loop (<<epochs>> epochs, rate <<rate>>) and log the loss every <<every>> epochs.",
                ),
                """
                Z = (X - X.mean(axis=0)) / X.std(axis=0)
                weights, bias, history = np.zeros(Z.shape[1]), 0.0, []
                for epoch in range(<<epochs>>):
                    error = Z @ weights + bias - y
                    weights -= <<rate>> * Z.T @ error / len(y)
                    bias -= <<rate>> * error.mean()
                    if epoch % <<every>> == 0:
                        history.append(round(float(np.mean(error ** 2)), 3))
                print(history)
                """,
                "history[-1] < history[0] ==>",
            ),
            cell(
                (
                    "Is the loss falling at every logged epoch, and what are the final parameters?",
                    "Check that the logged losses only fall; print weights and bias.",
                ),
                """
                falling = all(later <= earlier for earlier, later in zip(history, history[1:]))
                print("<<things>>", falling, weights.round(2), round(float(bias), 2))
                """,
                "falling ==>",
            ),
        ),
        pick={
            "n": _SIZES,
            "extra": _EXTRAS,
            "epochs|every|rate": [
                ("200", "40", "0.1"),
                ("150", "30", "0.2"),
                ("300", "60", "0.05"),
                ("100", "20", "0.3"),
                ("250", "50", "0.08"),
            ],
        },
        bugs=[
            ("transpose missing", "Z.T @ error", "Z @ error"),
            ("climbs", "weights -= <<rate>>", "weights += <<rate>>"),
            ("list method", "history.append(", "history.add("),
        ],
        bug_cell=1,
    ),
    ml_session(
        "classification_experiment",
        (
            _BLOBS,
            cell(
                (
                    "Train logistic regression on it with a bias term for <<epochs>> epochs.",
                    "Fit a logistic model by gradient descent (<<epochs>> epochs).",
                ),
                """
                def sigmoid(z):
                    return 1 / (1 + np.exp(-z))

                design = np.column_stack([np.ones(len(X)), X])
                weights = np.zeros(design.shape[1])
                for _ in range(<<epochs>>):
                    gradient = design.T @ (sigmoid(design @ weights) - y) / len(y)
                    weights -= 0.3 * gradient
                print(weights.round(2))
                """,
                "weights.shape ==>",
            ),
            cell(
                (
                    "Report accuracy and the confusion counts at threshold 0.5.",
                    "What are accuracy, false positives and false negatives?",
                ),
                """
                predicted = (sigmoid(design @ weights) >= 0.5).astype(int)
                accuracy = np.mean(predicted == y)
                false_positive = int(np.sum((predicted == 1) & (y == 0)))
                false_negative = int(np.sum((predicted == 0) & (y == 1)))
                print(f"<<things>>: accuracy {accuracy:.3f}, fp {false_positive}, fn {false_negative}")
                """,
                "accuracy > 0.8 ==>",
            ),
        ),
        pick={"n": _SIZES, "epochs": ["150", "200", "250", "300", "400"]},
        bugs=[
            ("bias column missing", "(sigmoid(design @ weights) >= 0.5)", "(sigmoid(X @ weights) >= 0.5)"),
            ("operator precedence", "np.sum((predicted == 1) & (y == 0))", "np.sum(predicted == 1 and y == 0)"),
            ("probabilities compared", "(sigmoid(design @ weights) >= 0.5).astype(int)", "sigmoid(design @ weights)"),
        ],
    ),
    ml_session(
        "clustering_experiment",
        (
            _SHUFFLED_BLOBS,
            cell(
                (
                    "Run k-means with two clusters from two random rows and give the cluster sizes.",
                    "Cluster X into two groups with k-means (<<steps>> steps) and print the centres.",
                ),
                """
                centers = X[rng.choice(len(X), 2, replace=False)]
                for _ in range(<<steps>>):
                    nearest = np.linalg.norm(X[:, None] - centers, axis=2).argmin(axis=1)
                    centers = np.array([X[nearest == c].mean(axis=0) for c in range(2)])
                print(np.bincount(nearest), centers.round(2).tolist())
                """,
                "int(np.bincount(nearest).sum()) == len(X) ==>",
            ),
            cell(
                (
                    "How well do the clusters agree with the true classes?",
                    "Compare clusters with the labels, whichever way they are numbered.",
                ),
                """
                agreement = max(np.mean(nearest == y), np.mean(nearest != y))
                inertia = float(np.sum((X - centers[nearest]) ** 2))
                print(f"<<things>>: agreement {agreement:.2f}, inertia {inertia:.1f}")
                """,
                "agreement > 0.7 ==>",
            ),
        ),
        pick={"n": _SIZES, "steps": ["10", "12", "15", "20", "25"]},
        bugs=[
            ("shapes do not broadcast", "X[:, None] - centers", "X - centers"),
            ("axis", "axis=2).argmin(axis=1)", "axis=2).argmin(axis=2)"),
        ],
        bug_cell=1,
    ),
    ml_session(
        "model_selection",
        (
            cell(
                (
                    "Generate <<n>> noisy points of a curve <<curve>> for x in 0..1.",
                    "Simulate y = <<curve>> plus noise at <<n>> points.",
                ),
                """
                import numpy as np

                rng = np.random.default_rng(<<i>>)
                x = np.sort(rng.uniform(0, 1, <<n>>))
                y = <<expr>> + rng.normal(0, 0.1, <<n>>)
                x[:3].round(3).tolist()
                """,
            ),
            cell(
                (
                    "Compare polynomial degrees 1 to 6 by their error on every third point, held out.",
                    "Choose the polynomial degree with the smallest validation error (every third point).",
                ),
                """
                held = np.arange(len(x)) % 3 == 0
                errors = {}
                for degree in range(1, 7):
                    coefficients = np.polyfit(x[~held], y[~held], degree)
                    errors[degree] = float(np.mean((np.polyval(coefficients, x[held]) - y[held]) ** 2))
                best = min(errors, key=errors.get)
                print("<<number>>", best, {degree: round(error, 4) for degree, error in errors.items()})
                """,
                "1 <= best <= 6 ==>",
            ),
        ),
        pick={
            "n": _SIZES,
            "curve|expr": [
                ("sin(6x)", "np.sin(6 * x)"),
                ("x^2", "x ** 2"),
                ("exp(x)", "np.exp(x)"),
                ("cos(4x)", "np.cos(4 * x)"),
                ("|x - 0.5|", "np.abs(x - 0.5)"),
            ],
        },
        bugs=[
            ("not on an array", "x[~held], y[~held]", "x[not held], y[not held]"),
            ("argument order", "np.polyval(coefficients, x[held])", "np.polyval(x[held], coefficients, degree)"),
            ("method not passed", "key=errors.get", "key=errors[degree]"),
        ],
    ),
)
