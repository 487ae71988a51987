"""ML families of one cell: models and training loops written by hand with numpy."""

from workshop.experience.ml.metrics import ml_task

FAMILIES = (
    ml_task(
        "nearest_neighbours",
        (
            "predicts the class of each query point by the majority of its <<k>> nearest training points",
            "classifies points with k nearest neighbours (k = <<k>>, Euclidean distance)",
        ),
        """
        import numpy as np

        def <<fn>>(train, labels, queries, k=<<k>>):
            <<doc>>
            distances = np.linalg.norm(queries[:, None, :] - train[None, :, :], axis=2)
            nearest = np.argsort(distances, axis=1)[:, :k]
            return np.array([np.bincount(labels[row]).argmax() for row in nearest])
        """,
        """
        rng = np.random.default_rng(<<i>>)
        train = np.vstack([rng.normal(0, 1, (15, 2)), rng.normal(4, 1, (15, 2))])
        labels = np.repeat([0, 1], 15)
        <<fn>>(train, labels, np.array([[0.0, 0.5], [4.0, 3.5], [0.5, 0.0]])).tolist() ==>
        """,
        pick={"fn": ["knn_predict", "nearest_classes", "classify_knn", "neighbour_vote", "k_nearest"]},
        bugs=[
            ("shapes do not broadcast", "queries[:, None, :] - train[None, :, :]", "queries - train"),
            ("farthest points", "np.argsort(distances, axis=1)", "np.argsort(-distances, axis=1)"),
            ("one axis too few", "axis=2)", "axis=3)"),
        ],
    ),
    ml_task(
        "k_means",
        (
            "clusters points into `k` groups with Lloyd's k-means and returns centres and assignments",
            "runs k-means for `steps` iterations from the first `k` points as centres",
        ),
        """
        import numpy as np

        def <<fn>>(points, k, steps=<<s>>):
            <<doc>>
            centers = points[:k].astype(float)
            for _ in range(steps):
                distances = ((points[:, None] - centers[None]) ** 2).sum(axis=2)
                nearest = distances.argmin(axis=1)
                centers = np.array([points[nearest == index].mean(axis=0) for index in range(k)])
            return centers, nearest
        """,
        """
        rng = np.random.default_rng(<<big>>)
        points = np.vstack([rng.normal(center, 0.5, (20, 2)) for center in (0, 5)])[rng.permutation(40)]
        centers, nearest = <<fn>>(points, 2)
        sorted(np.bincount(nearest).tolist()) ==>
        np.sort(centers[:, 0]).round(1).tolist() ==>
        """,
        pick={
            "fn": ["k_means", "kmeans", "cluster_points", "lloyd", "find_clusters"],
            "s": ["8", "10", "12", "15", "20"],
        },
        bugs=[
            ("method name", "points[:k].astype(float)", "points[:k].asfloat()"),
            ("axis", "distances.argmin(axis=1)", "distances.argmin(axis=2)"),
            ("mean over all axes", ".mean(axis=0) for index", ".mean() for index"),
        ],
    ),
    ml_task(
        "normal_equation",
        (
            "fits a linear regression with intercept by least squares and returns intercept and weights",
            "solves ordinary least squares for features X and target y, with a bias column",
        ),
        """
        import numpy as np

        def <<fn>>(X, y):
            <<doc>>
            design = np.column_stack([np.ones(len(X)), X])
            weights, *_ = np.linalg.lstsq(design, y, rcond=None)
            return weights[0], weights[1:]
        """,
        """
        rng = np.random.default_rng(<<i>>)
        X = rng.uniform(-1, 1, (40, 2))
        y = <<k>> + X @ np.array([<<i>>.0, -1.5])
        bias, weights = <<fn>>(X, y)
        (round(float(bias), 3), weights.round(3).tolist()) ==>
        """,
        pick={"fn": ["fit_linear", "least_squares", "linear_regression", "ols", "fit_plane"]},
        bugs=[
            ("no intercept", "np.column_stack([np.ones(len(X)), X])", "X"),
            (
                "arrays as separate arguments",
                "np.column_stack([np.ones(len(X)), X])",
                "np.column_stack(np.ones(len(X)), X)",
            ),
            ("not unpacked", "weights, *_ = np.linalg", "weights = np.linalg"),
        ],
    ),
    ml_task(
        "gradient_descent",
        (
            "fits `<<number>> = slope * <<amount>> + bias` by gradient descent and returns slope, bias and the last loss",
            "trains a line by gradient descent on the mean squared error",
        ),
        """
        import numpy as np

        def fit_<<number>>(<<amount>>, <<number>>, rate=<<r>>, epochs=<<e>>):
            <<doc>>
            slope, bias = 0.0, 0.0
            for epoch in range(epochs):
                error = slope * <<amount>> + bias - <<number>>
                slope -= rate * 2 * np.mean(error * <<amount>>)
                bias -= rate * 2 * np.mean(error)
            return slope, bias, float(np.mean(error ** 2))
        """,
        """
        <<amount>> = np.linspace(0, 2, 25)
        slope, bias, loss = fit_<<number>>(<<amount>>, <<k>> * <<amount>> + <<i>>)
        (round(float(slope), 2), round(float(bias), 2), loss < 0.01) ==>
        """,
        pick={"r|e": [("0.1", "400"), ("0.2", "300"), ("0.15", "500"), ("0.25", "250"), ("0.05", "900")]},
        bugs=[
            ("climbs instead of descends", "slope -= rate", "slope += rate"),
            (
                "sign of the error",
                "error = slope * <<amount>> + bias - <<number>>",
                "error = <<number>> - slope * <<amount>> - bias",
            ),
            ("name not defined", "for epoch in range(epochs):", "for epoch in range(steps):"),
        ],
    ),
    ml_task(
        "ridge",
        (
            "fits ridge regression in closed form with penalty `alpha`",
            "computes the weights (X'X + alpha I)^-1 X'y of ridge regression",
        ),
        """
        import numpy as np

        def <<fn>>(X, y, alpha=<<a>>):
            <<doc>>
            penalty = alpha * np.eye(X.shape[1])
            return np.linalg.solve(X.T @ X + penalty, X.T @ y)
        """,
        """
        rng = np.random.default_rng(<<j>>)
        X = rng.normal(size=(30, 3))
        y = X @ np.array([1.0, -<<k>>.0, 0.5])
        <<fn>>(X, y).round(3).tolist() ==>
        bool(np.linalg.norm(<<fn>>(X, y, 100.0)) < np.linalg.norm(<<fn>>(X, y, 0.0))) ==>
        """,
        pick={
            "fn": ["ridge", "ridge_weights", "fit_ridge", "penalized_fit", "shrunk_weights"],
            "a": ["0.1", "0.5", "1.0", "2.0", "5.0"],
        },
        bugs=[
            ("shape attribute", "np.eye(X.shape[1])", "np.eye(X.shape)"),
            ("elementwise product", "X.T @ X + penalty", "X.T * X + penalty"),
            ("rows for columns", "np.eye(X.shape[1])", "np.eye(X.shape[0])"),
        ],
    ),
    ml_task(
        "logistic_regression",
        (
            "trains logistic regression by gradient descent and returns weights and bias",
            "fits a binary classifier with a sigmoid and gradient steps on the log loss",
        ),
        """
        import numpy as np

        def <<fn>>(X, y, rate=<<r>>, epochs=<<e>>):
            <<doc>>
            weights, bias = np.zeros(X.shape[1]), 0.0
            for _ in range(epochs):
                probability = 1 / (1 + np.exp(-(X @ weights + bias)))
                error = probability - y
                weights -= rate * X.T @ error / len(y)
                bias -= rate * error.mean()
            return weights, bias
        """,
        """
        rng = np.random.default_rng(<<i>>)
        X = np.vstack([rng.normal(-2, 1, (30, 2)), rng.normal(2, 1, (30, 2))])
        y = np.repeat([0, 1], 30)
        weights, bias = <<fn>>(X, y)
        float(np.mean(((X @ weights + bias) > 0) == y)) >= 0.9 ==>
        weights.shape ==>
        """,
        pick={
            "fn": ["fit_logistic", "logistic_regression", "train_classifier", "fit_sigmoid", "train_logit"],
            "r|e": [("0.1", "200"), ("0.3", "100"), ("0.2", "150"), ("0.5", "80"), ("0.05", "400")],
        },
        bugs=[
            ("transpose missing", "X.T @ error", "X @ error"),
            ("sign of the error", "error = probability - y", "error = y - probability"),
            ("integer weights", "np.zeros(X.shape[1])", "np.zeros(X.shape[1], dtype=int)"),
        ],
    ),
    ml_task(
        "perceptron",
        (
            "trains a perceptron on labels -1 and 1 and returns the weights with the bias first",
            "runs the perceptron rule until an epoch has no mistake",
        ),
        """
        import numpy as np

        def <<fn>>(X, y, epochs=<<e>>):
            <<doc>>
            X = np.column_stack([np.ones(len(X)), X])
            weights = np.zeros(X.shape[1])
            for _ in range(epochs):
                mistakes = 0
                for row, label in zip(X, y):
                    if label * (row @ weights) <= 0:
                        weights += label * row
                        mistakes += 1
                if mistakes == 0:
                    break
            return weights
        """,
        """
        X = np.array([[1, <<k>>], [2, <<i>>], [-1, -2], [-<<k>>, -1]], dtype=float)
        y = np.array([1, 1, -1, -1])
        weights = <<fn>>(X, y)
        weights.tolist() ==>
        np.sign(np.column_stack([np.ones(4), X]) @ weights).tolist() ==>
        """,
        pick={
            "fn": ["perceptron", "train_perceptron", "fit_perceptron", "learn_boundary", "separate"],
            "e": ["10", "20", "30", "50", "100"],
        },
        bugs=[
            ("never updates at zero", "(row @ weights) <= 0", "(row @ weights) < 0"),
            ("dimension mismatch", "weights = np.zeros(X.shape[1])", "weights = np.zeros(X.shape[1] - 1)"),
            ("returns too early", "    return weights", "    return weights[1:]"),
        ],
    ),
    ml_task(
        "pca",
        (
            "projects centred data on its first `count` principal components via the SVD",
            "computes PCA scores and the share of variance each component explains",
        ),
        """
        import numpy as np

        def <<fn>>(data, count=<<c>>):
            <<doc>>
            centered = data - data.mean(axis=0)
            _, singular, rows = np.linalg.svd(centered, full_matrices=False)
            explained = singular ** 2 / np.sum(singular ** 2)
            return centered @ rows[:count].T, explained[:count]
        """,
        """
        rng = np.random.default_rng(<<j>>)
        base = rng.normal(size=(50, 1))
        data = np.hstack([base, <<k>> * base + 0.1 * rng.normal(size=(50, 1)), rng.normal(size=(50, 1))])
        scores, explained = <<fn>>(data)
        (scores.shape, explained.round(3).tolist()) ==>
        """,
        pick={"fn": ["pca", "principal_components", "project", "pca_scores", "reduce_dimensions"], "c": ["2", "1"]},
        bugs=[
            ("wrong axis", "data - data.mean(axis=0)", "data - data.mean(axis=1)"),
            ("transpose missing", "rows[:count].T", "rows[:count]"),
            ("wrong unpacking", "_, singular, rows = np.linalg.svd", "singular, rows = np.linalg.svd"),
        ],
    ),
    ml_task(
        "naive_bayes",
        (
            "fits a Gaussian naive Bayes classifier and predicts classes of new rows",
            "classifies rows by Gaussian naive Bayes: class means, variances and priors",
        ),
        """
        import numpy as np

        def <<fn>>(X, y, queries):
            <<doc>>
            classes = np.unique(y)
            scores = []
            for label in classes:
                rows = X[y == label]
                mean, variance = rows.mean(axis=0), rows.var(axis=0) + 1e-9
                log_density = -0.5 * np.sum(np.log(2 * np.pi * variance) + (queries - mean) ** 2 / variance, axis=1)
                scores.append(np.log(len(rows) / len(X)) + log_density)
            return classes[np.argmax(scores, axis=0)]
        """,
        """
        rng = np.random.default_rng(<<i>>)
        X = np.vstack([rng.normal(0, 1, (20, 2)), rng.normal(<<j>>, 2, (20, 2))])
        y = np.array([<<g1>>] * 20 + [<<g2>>] * 20)
        <<fn>>(X, y, np.array([[0.0, 0.0], [<<j>>.0, <<j>>.0]])).tolist() ==>
        """,
        pick={"fn": ["naive_bayes", "gaussian_bayes", "predict_bayes", "bayes_classes", "classify_gaussian"]},
        bugs=[
            ("smallest score", "np.argmax(scores, axis=0)", "np.argmin(scores, axis=0)"),
            ("wrong axis", "variance, axis=1)", "variance, axis=2)"),
            ("index of a list", "rows = X[y == label]", "rows = X[list(y) == label]"),
        ],
    ),
    ml_task(
        "decision_stump",
        (
            "finds the threshold on one feature that splits 0/1 labels with the fewest errors",
            "returns (threshold, errors) of the best decision stump `value > threshold`",
        ),
        """
        import numpy as np

        def <<fn>>(values, labels):
            <<doc>>
            best = (None, len(labels) + 1)
            for threshold in np.unique(values):
                errors = int(np.sum((values > threshold) != labels))
                if errors < best[1]:
                    best = (float(threshold), errors)
            return best
        """,
        """
        <<number>> = np.array([<<k>>, <<i>>, <<j>>, 45, 50, 12])
        <<fn>>(<<number>>, (<<number>> > <<t>>).astype(int)) ==>
        """,
        pick={
            "fn": ["best_stump", "best_threshold", "find_split", "decision_stump", "split_feature"],
            "t": ["10", "13", "20", "44", "11"],
        },
        bugs=[
            ("list comparison", "np.sum((values > threshold) != labels)", "np.sum(list(values) > threshold != labels)"),
            ("keeps the worst", "if errors < best[1]:", "if errors > best[1]:"),
            ("tuple assignment", "best = (float(threshold), errors)", "best[0], best[1] = float(threshold), errors"),
        ],
    ),
    ml_task(
        "polynomial_fit",
        (
            "fits a polynomial of degree `degree` by least squares and returns the coefficients, lowest power first",
            "builds polynomial features with np.vander and solves for their weights",
        ),
        """
        import numpy as np

        def <<fn>>(x, y, degree=2):
            <<doc>>
            features = np.vander(x, degree + 1, increasing=True)
            coefficients, *_ = np.linalg.lstsq(features, y, rcond=None)
            return coefficients
        """,
        """
        x = np.linspace(-1, 1, 12)
        <<fn>>(x, <<k>> - <<i>> * x + 0.5 * x ** 2).round(3).tolist() ==>
        """,
        pick={"fn": ["fit_polynomial", "polynomial", "fit_curve", "poly_weights", "quadratic_fit"]},
        bugs=[
            ("highest power first", ", increasing=True", ""),
            ("one column too few", "degree + 1", "degree"),
            ("tuple not unpacked", "coefficients, *_ = ", "coefficients = "),
        ],
    ),
    ml_task(
        "learning_rate",
        (
            "returns the learning rate at a step: linear warm-up over `warmup` steps, then <<shape>> decay to zero",
            "computes a warm-up and <<shape>> decay schedule for a training step",
        ),
        """
        import numpy as np

        def <<fn>>(step, total, peak=<<p>>, warmup=<<w>>):
            <<doc>>
            if step < warmup:
                return peak * (step + 1) / warmup
            progress = (step - warmup) / max(total - warmup, 1)
            return float(peak * <<expr>>)
        """,
        """
        [round(<<fn>>(step, 50), 6) for step in (0, <<w>>, 25, 49)] ==>
        """,
        pick={
            "shape|expr": [
                ("cosine", "0.5 * (1 + np.cos(np.pi * progress))"),
                ("linear", "(1 - progress)"),
                ("square root", "np.sqrt(1 - progress)"),
            ],
            "fn": ["learning_rate", "rate_at", "schedule", "warmup_decay", "step_size"],
            "p|w": [("0.1", "5"), ("0.01", "10"), ("0.3", "4"), ("0.05", "8"), ("0.02", "6")],
        },
        bugs=[
            ("starts at zero", "(step + 1) / warmup", "step / warmup"),
            ("name not defined", "max(total - warmup, 1)", "max(steps - warmup, 1)"),
        ],
    ),
    ml_task(
        "mini_batches",
        (
            "yields shuffled mini-batches of X and y of at most `size` rows, in a new order per seed",
            "iterates over (X, y) in random batches of `size` rows",
        ),
        """
        import numpy as np

        def <<fn>>(X, y, size, seed=<<i>>):
            <<doc>>
            order = np.random.default_rng(seed).permutation(len(X))
            for start in range(0, len(X), size):
                rows = order[start:start + size]
                yield X[rows], y[rows]
        """,
        """
        X = np.arange(<<j>>).reshape(-1, 1)
        [len(batch) for batch, _ in <<fn>>(X, X[:, 0], 8)] ==>
        sorted(int(value) for _, batch in <<fn>>(X, X[:, 0], 8) for value in batch) == list(range(<<j>>)) ==>
        """,
        pick={"fn": ["mini_batches", "batches", "iterate_batches", "shuffled_batches", "batch_stream"]},
        bugs=[
            ("returns the first batch", "yield X[rows], y[rows]", "return X[rows], y[rows]"),
            ("step of one", "range(0, len(X), size)", "range(len(X))"),
            ("every row again", "order[start:start + size]", "order[:start + size]"),
        ],
    ),
    ml_task(
        "two_layer_network",
        (
            "trains a two-layer network with tanh on XOR by backpropagation and returns the last loss",
            "fits XOR with <<h>> hidden units, hand-written gradients and learning rate <<r>>",
        ),
        """
        import numpy as np

        def <<fn>>(epochs=<<e>>, hidden=<<h>>, rate=<<r>>, seed=<<i>>):
            <<doc>>
            rng = np.random.default_rng(seed)
            X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=float)
            y = np.array([[0], [1], [1], [0]], dtype=float)
            W1, b1 = rng.normal(size=(2, hidden)), np.zeros(hidden)
            W2, b2 = rng.normal(size=(hidden, 1)), np.zeros(1)
            for _ in range(epochs):
                layer = np.tanh(X @ W1 + b1)
                output = layer @ W2 + b2
                error = output - y
                gradient = (error @ W2.T) * (1 - layer ** 2)
                W2 -= rate * layer.T @ error
                b2 -= rate * error.sum(axis=0)
                W1 -= rate * X.T @ gradient
                b1 -= rate * gradient.sum(axis=0)
            return float(np.mean(error ** 2))
        """,
        """
        <<fn>>() < 0.05 ==>
        """,
        pick={
            "fn": ["train_xor", "learn_xor", "fit_network", "train_mlp", "backprop"],
            "h": ["6", "8", "10", "12", "16"],
            "e": ["900", "800", "700", "600", "1000"],
            "r": ["0.1", "0.08", "0.06", "0.05", "0.04"],
        },
        bugs=[
            ("transpose missing", "layer.T @ error", "layer @ error"),
            ("name not defined", "layer = np.tanh(X @ W1 + b1)", "layer = tanh(X @ W1 + b1)"),
            ("sign of the error", "error = output - y", "error = y - output"),
        ],
    ),
    ml_task(
        "convolution",
        (
            "slides a kernel over a 1-d signal (valid positions only) and returns the responses",
            "computes the valid 1-d convolution (cross-correlation) of a signal with a <<what>> kernel",
        ),
        """
        import numpy as np

        def <<fn>>(signal, kernel=<<kernel>>):
            <<doc>>
            windows = np.lib.stride_tricks.sliding_window_view(np.asarray(signal, dtype=float), len(kernel))
            return windows @ np.asarray(kernel, dtype=float)
        """,
        """
        <<fn>>(<<ints1>>).round(3).tolist() ==>
        <<fn>>([1, 1, 1, 1]).shape ==>
        """,
        pick={
            "fn": ["convolve", "filter_signal", "correlate", "apply_kernel", "slide"],
            "what|kernel": [
                ("smoothing", "(0.25, 0.5, 0.25)"),
                ("difference", "(-1, 1)"),
                ("edge", "(-1, 0, 1)"),
                ("mean", "(0.5, 0.5)"),
                ("sharpening", "(-1, 3, -1)"),
            ],
        },
        bugs=[
            ("same length", "windows @ np.asarray(kernel, dtype=float)", "windows * np.asarray(signal, dtype=float)"),
            ("missing import", "import numpy as np\n\n", ""),
        ],
    ),
    ml_task(
        "early_stopping",
        (
            "tells at which epoch training stops when the validation loss has not improved for `patience` epochs, and the best epoch",
            "implements early stopping over a list of losses: returns (stopped_at, best_epoch)",
        ),
        """
        import numpy as np

        def <<fn>>(losses, patience=<<p>>):
            <<doc>>
            best, best_epoch = np.inf, -1
            for epoch, loss in enumerate(losses):
                if loss < best:
                    best, best_epoch = loss, epoch
                elif epoch - best_epoch >= patience:
                    return epoch, best_epoch
            return len(losses) - 1, best_epoch
        """,
        """
        <<fn>>(<<l>>) ==>
        <<fn>>([3.0, 2.0, 1.0]) ==>
        """,
        pick={
            "fn": ["early_stopping", "stop_epoch", "patience_stop", "stopping_point", "when_to_stop"],
            "p": ["2", "3", "1", "2", "3"],
            "l": [
                "[0.9, 0.7, 0.72, 0.71, 0.8, 0.6]",
                "[1.2, 0.8, 0.85, 0.9, 0.95, 0.7]",
                "[0.5, 0.6, 0.4]",
                "[2.0, 1.5, 1.6, 1.7, 1.0]",
                "[0.8, 0.75, 0.76, 0.78, 0.79, 0.5]",
            ],
        },
        bugs=[
            ("missing enumerate", "in enumerate(losses):", "in losses:"),
            ("always the first epoch", "best, best_epoch = loss, epoch", "best = loss"),
            ("off by one", ">= patience:", "> patience:"),
        ],
    ),
)
