"""ML families of one cell: metrics, preprocessing and statistics with numpy."""

from collections.abc import Sequence

from capibara_assets.domains import Domain
from workshop.experience.families import Cell, Family, Picks, block, bugs_of


def ml_task(
    name: str,
    statement: str | tuple[str, ...],
    code: str,
    check: str = "",
    pick: Picks | None = None,
    bugs: Sequence[tuple[str, str, str]] = (),
) -> Family:
    """A family of one numpy or pandas cell."""
    return ml_session(name, (Cell(statement, block(code), block(check)),), pick, bugs)


def ml_session(
    name: str,
    cells: Sequence[Cell],
    pick: Picks | None = None,
    bugs: Sequence[tuple[str, str, str]] = (),
    bug_cell: int = -1,
) -> Family:
    """A family of several cells that share their variables; `bugs` are for cell `bug_cell`."""
    return Family(name, Domain.ML, "python", tuple(cells), pick or {}, bugs_of(bugs), bug_cell)


def cell(statement: str | tuple[str, ...], code: str, check: str = "") -> Cell:
    return Cell(statement, block(code), block(check))


FAMILIES = (
    ml_task(
        "regression_error",
        (
            "computes the <<long>> between targets and predictions with numpy",
            "returns the <<long>> of predictions, as a float",
        ),
        """
        import numpy as np

        def <<fn>>(y_true, y_pred):
            <<doc>>
            errors = np.asarray(y_true, dtype=float) - np.asarray(y_pred, dtype=float)
            return float(<<expr>>)
        """,
        """
        round(<<fn>>(<<ints1>>[:5], <<ints2>>[:5]), 4) ==>
        <<fn>>([1, 2], [1, 2]) ==>
        """,
        pick={
            "fn|long|expr": [
                ("mse", "mean squared error", "np.mean(errors ** 2)"),
                ("mae", "mean absolute error", "np.mean(np.abs(errors))"),
                ("rmse", "root mean squared error", "np.sqrt(np.mean(errors ** 2))"),
                ("max_error", "largest absolute error", "np.max(np.abs(errors))"),
                ("median_error", "median absolute error", "np.median(np.abs(errors))"),
                ("bias", "mean error", "np.mean(errors)"),
            ]
        },
        bugs=[
            ("list arithmetic", "np.asarray(y_true, dtype=float) - np.asarray(y_pred, dtype=float)", "y_true - y_pred"),
            ("missing import", "import numpy as np\n\n", ""),
        ],
    ),
    ml_task(
        "r_squared",
        (
            "computes the coefficient of determination R2 of predictions",
            "returns R2: one minus residual over total sum of squares",
        ),
        """
        import numpy as np

        def <<fn>>(y_true, y_pred):
            <<doc>>
            y_true, y_pred = np.asarray(y_true, dtype=float), np.asarray(y_pred, dtype=float)
            residual = np.sum((y_true - y_pred) ** 2)
            total = np.sum((y_true - y_true.mean()) ** 2)
            return float(1 - residual / total)
        """,
        """
        round(<<fn>>([<<i>>, <<j>>, <<k>>, 7], [<<i>>, <<j>> - 2, <<k>> + 1, 8]), 4) ==>
        <<fn>>([1, 2, 3], [1, 2, 3]) ==>
        """,
        pick={"fn": ["r2_score", "r_squared", "determination", "explained", "fit_quality", "r2"]},
        bugs=[
            (
                "list has no mean",
                "y_true, y_pred = np.asarray(y_true, dtype=float), np.asarray(y_pred, dtype=float)",
                "y_pred = np.asarray(y_pred, dtype=float)",
            ),
            ("centre forgotten", "(y_true - y_true.mean()) ** 2", "y_true ** 2"),
        ],
    ),
    ml_task(
        "classification_scores",
        (
            "returns precision, recall and F1 of binary labels as a dictionary, rounded to <<k>> digits",
            "computes precision, recall and F1 for the positive class 1",
        ),
        """
        import numpy as np

        def <<fn>>(y_true, y_pred):
            <<doc>>
            y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
            hits = np.sum((y_true == 1) & (y_pred == 1))
            precision = hits / max(np.sum(y_pred == 1), 1)
            recall = hits / max(np.sum(y_true == 1), 1)
            f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
            return {"precision": round(float(precision), <<k>>), "recall": round(float(recall), <<k>>), "f1": round(float(f1), <<k>>)}
        """,
        """
        <<fn>>(<<t>>, <<p>>) ==>
        <<fn>>([0, 0], [0, 0]) ==>
        """,
        pick={
            "fn": [
                "precision_recall",
                "binary_scores",
                "classification_report",
                "f1_report",
                "score_labels",
                "evaluate_binary",
            ],
            "t|p": [
                ("[1, 0, 1, 1, 0, 1]", "[1, 1, 1, 0, 0, 1]"),
                ("[0, 1, 1, 0, 1, 0, 1]", "[0, 1, 0, 0, 1, 1, 1]"),
                ("[1, 1, 0, 0]", "[1, 0, 0, 0]"),
                ("[1, 0, 0, 1, 1, 1, 0]", "[1, 1, 1, 1, 1, 0, 0]"),
                ("[0, 0, 1, 1, 1]", "[0, 1, 1, 1, 1]"),
            ],
        },
        bugs=[
            ("and between arrays", "np.sum((y_true == 1) & (y_pred == 1))", "np.sum((y_true == 1) and (y_pred == 1))"),
            ("operator precedence", "(y_true == 1) & (y_pred == 1)", "y_true == 1 & y_pred == 1"),
            ("swapped", "recall = hits / max(np.sum(y_true == 1), 1)", "recall = hits / len(y_true)"),
        ],
    ),
    ml_task(
        "confusion_matrix",
        (
            "counts a confusion matrix (rows: true class, columns: predicted class) for <<k>> classes",
            "builds the <<k>>x<<k>> confusion matrix of integer labels with numpy",
        ),
        """
        import numpy as np

        def <<fn>>(y_true, y_pred, classes=<<k>>):
            <<doc>>
            matrix = np.zeros((classes, classes), dtype=int)
            np.add.at(matrix, (y_true, y_pred), 1)
            return matrix
        """,
        """
        <<fn>>([0, 1, 1, 0, 1, 1], <<p>>).tolist() ==>
        int(np.trace(<<fn>>([0, 1], [0, 1]))) ==>
        """,
        pick={
            "fn": ["confusion_matrix", "confusion", "count_confusions", "error_matrix", "label_table", "class_matrix"],
            "p": [
                "[0, 1, 0, 0, 1, 1]",
                "[1, 1, 1, 0, 0, 1]",
                "[0, 0, 1, 1, 1, 1]",
                "[0, 1, 1, 1, 1, 0]",
                "[1, 1, 0, 0, 1, 1]",
            ],
        },
        bugs=[
            ("shape as two arguments", "np.zeros((classes, classes), dtype=int)", "np.zeros(classes, classes)"),
            ("repeated index counts once", "np.add.at(matrix, (y_true, y_pred), 1)", "matrix[y_true, y_pred] += 1"),
        ],
    ),
    ml_task(
        "one_hot",
        (
            "turns <<group>> labels into a one-hot matrix with a column per known <<group>>",
            "encodes a list of <<group>>s as one-hot rows",
        ),
        """
        import numpy as np

        def one_hot_<<group>>(values, categories=<<groups>>):
            <<doc>>
            columns = {category: index for index, category in enumerate(categories)}
            encoded = np.zeros((len(values), len(categories)))
            encoded[np.arange(len(values)), [columns[value] for value in values]] = 1.0
            return encoded
        """,
        """
        one_hot_<<group>>([<<g2>>, <<g1>>, <<g3>>, <<g1>>]).tolist() ==>
        one_hot_<<group>>([<<g1>>, <<g1>>]).sum(axis=0).tolist() ==>
        """,
        bugs=[
            ("missing enumerate", "for index, category in enumerate(categories)", "for index, category in categories"),
            ("labels as index", "[columns[value] for value in values]", "values"),
            ("rows not numbered", "encoded[np.arange(len(values)), [", "encoded[:, ["),
        ],
    ),
    ml_task(
        "scaling",
        (
            "<<does>> each column of a matrix of <<thing>> features and also returns the parameters",
            "takes a 2-d array of <<thing>> features and <<does>> every column; constant columns stay finite",
        ),
        """
        import numpy as np

        def <<fn>>(features):
            <<doc>>
            features = np.asarray(features, dtype=float)
            <<a>> = features.<<fa>>(axis=0)
            <<b>> = <<fb>>
            <<b>> = np.where(<<b>> == 0, 1.0, <<b>>)
            return (features - <<a>>) / <<b>>, <<a>>, <<b>>
        """,
        """
        scaled, *_ = <<fn>>([[<<i>>, 1.0], [<<j>>, 1.0], [<<k>>, 1.0]])
        scaled.round(3).tolist() ==>
        """,
        pick={
            "fn|does|a|fa|b|fb": [
                ("standardize", "standardizes", "mean", "mean", "std", "features.std(axis=0)"),
                ("min_max", "scales to 0..1", "low", "min", "span", "features.max(axis=0) - low"),
                ("center_scale", "centres and scales", "mean", "mean", "std", "features.std(axis=0)"),
                ("rescale", "rescales to the unit interval", "low", "min", "span", "np.ptp(features, axis=0)"),
                ("zscore", "computes z-scores of", "center", "mean", "spread", "features.std(axis=0)"),
            ]
        },
        bugs=[
            ("wrong axis", "features.<<fa>>(axis=0)", "features.<<fa>>(axis=1)"),
            ("wrong method", "features.<<fa>>(axis=0)", "features.<<fa>>_(axis=0)"),
            ("list arithmetic", "    features = np.asarray(features, dtype=float)\n", ""),
        ],
    ),
    ml_task(
        "train_test_split",
        (
            "splits arrays X and y at random into train and test parts, reproducibly by seed",
            "shuffles rows with a seed and holds out a share of them as test set",
        ),
        """
        import numpy as np

        def <<fn>>(X, y, test_share=<<share>>, seed=<<i>>):
            <<doc>>
            order = np.random.default_rng(seed).permutation(len(X))
            held_out = int(round(len(X) * test_share))
            test, train = order[:held_out], order[held_out:]
            return X[train], X[test], y[train], y[test]
        """,
        """
        X, y = np.arange(<<j>> * 2).reshape(-1, 2), np.arange(<<j>>)
        X_train, X_test, y_train, y_test = <<fn>>(X, y)
        (X_train.shape, X_test.shape) ==>
        sorted(y_train.tolist() + y_test.tolist()) == y.tolist() ==>
        """,
        pick={
            "fn": ["train_test_split", "split_rows", "hold_out", "make_split", "split_data"],
            "share": ["0.2", "0.25", "0.3", "0.4", "0.1"],
        },
        bugs=[
            ("float as index", "int(round(len(X) * test_share))", "len(X) * test_share"),
            ("rows and labels apart", "order[:held_out], order[held_out:]", "order[:held_out], order[:held_out]"),
            (
                "old generator",
                "np.random.default_rng(seed).permutation(len(X))",
                "np.random.default_rng(seed).shuffle(len(X))",
            ),
        ],
    ),
    ml_task(
        "k_fold",
        (
            "yields (train, validation) index arrays for k-fold cross-validation",
            "splits n rows in <<k>> folds and yields the indices of train and validation rows",
        ),
        """
        import numpy as np

        def <<fn>>(n, folds=<<k>>):
            <<doc>>
            parts = np.array_split(np.arange(n), folds)
            for number, validation in enumerate(parts):
                train = np.concatenate([part for other, part in enumerate(parts) if other != number])
                yield train, validation
        """,
        """
        [validation.tolist() for _, validation in <<fn>>(<<i>>)] ==>
        all(len(train) + len(validation) == <<i>> for train, validation in <<fn>>(<<i>>)) ==>
        """,
        pick={"fn": ["k_fold", "folds_of", "cross_validation", "fold_indices", "make_folds"]},
        bugs=[
            ("uneven split fails", "np.array_split(np.arange(n), folds)", "np.split(np.arange(n * folds + 1), folds)"),
            ("validation leaks", " if other != number", ""),
            (
                "list of arrays",
                "np.concatenate([part for other, part in enumerate(parts) if other != number])",
                "[part for other, part in enumerate(parts) if other != number]",
            ),
        ],
    ),
    ml_task(
        "sigmoid_loss",
        (
            "computes the binary cross-entropy of logits against 0/1 labels, stable for large logits",
            "returns the mean log loss of logits with the log-sum-exp form",
        ),
        """
        import numpy as np

        def <<fn>>(logits, labels):
            <<doc>>
            logits, labels = np.asarray(logits, dtype=float), np.asarray(labels, dtype=float)
            losses = np.maximum(logits, 0) - logits * labels + np.log1p(np.exp(-np.abs(logits)))
            return float(losses.mean())
        """,
        """
        round(<<fn>>([0.5, -1.<<k>>, 2.0], [1, 0, 0]), 4) ==>
        round(<<fn>>([1000.0, -1000.0], [1, 0]), 4) ==>
        """,
        pick={"fn": ["log_loss", "binary_cross_entropy", "bce_with_logits", "logit_loss", "cross_entropy"]},
        bugs=[
            ("max of arrays", "np.maximum(logits, 0)", "max(logits, 0)"),
            ("sign", "- logits * labels", "+ logits * labels"),
        ],
    ),
    ml_task(
        "softmax",
        (
            "turns rows of scores into probabilities with a stable softmax",
            "applies softmax to each row; large scores do not overflow",
        ),
        """
        import numpy as np

        def <<fn>>(scores, temperature=<<t>>):
            <<doc>>
            scores = np.asarray(scores, dtype=float) / temperature
            shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
            return shifted / shifted.sum(axis=1, keepdims=True)
        """,
        """
        <<fn>>([[1, 2, <<k>>], [<<i>>, 1000, 1000]]).round(4).tolist() ==>
        bool(np.allclose(<<fn>>([[3, 1], [2, 9]]).sum(axis=1), 1)) ==>
        """,
        pick={
            "fn": ["softmax", "row_softmax", "probabilities", "normalize_scores", "soft_choice"],
            "t": ["1.0", "2.0", "0.5", "1.5", "3.0"],
        },
        bugs=[
            ("shape does not broadcast", "scores.max(axis=1, keepdims=True)", "scores.max(axis=1)"),
            ("sum over everything", "shifted.sum(axis=1, keepdims=True)", "shifted.sum()"),
            ("max of a list", "    scores = np.asarray(scores, dtype=float) / temperature\n", ""),
        ],
    ),
    ml_task(
        "entropy",
        (
            "computes the entropy of class labels in bits",
            "returns the Shannon entropy (base 2) of a list of <<group>>s",
        ),
        """
        import numpy as np

        def <<fn>>(labels):
            <<doc>>
            _, counts = np.unique(labels, return_counts=True)
            shares = counts / counts.sum()
            return float(-np.sum(shares * np.log2(shares)))
        """,
        """
        round(<<fn>>([<<g1>>, <<g2>>, <<g1>>, <<g3>>]), 4) ==>
        abs(<<fn>>([<<g1>>] * <<k>>)) ==>
        """,
        pick={"fn": ["entropy", "label_entropy", "impurity", "information", "uncertainty"]},
        bugs=[
            ("counts not asked for", "np.unique(labels, return_counts=True)", "np.unique(labels)"),
            ("natural logarithm", "np.log2(shares)", "np.log(shares)"),
            ("minus forgotten", "float(-np.sum(", "float(np.sum("),
        ],
    ),
    ml_task(
        "roc_auc",
        (
            "computes the area under the ROC curve as the share of correctly ordered pairs",
            "returns the AUC of scores for 0/1 labels; ties count one half",
        ),
        """
        import numpy as np

        def <<fn>>(labels, scores):
            <<doc>>
            labels, scores = np.asarray(labels), np.asarray(scores, dtype=float)
            positive, negative = scores[labels == 1], scores[labels == 0]
            difference = positive[:, None] - negative[None, :]
            return float(np.mean((difference > 0) + 0.5 * (difference == 0)))
        """,
        """
        <<fn>>([1, 0, 1, 0, 1], [0.9, 0.<<k>>, 0.4, 0.4, 0.8]) ==>
        <<fn>>([0, 1], [0.2, 0.7]) ==>
        """,
        pick={"fn": ["roc_auc", "auc", "ranking_score", "area_under_curve", "pair_accuracy"]},
        bugs=[
            ("shapes do not broadcast", "positive[:, None] - negative[None, :]", "positive - negative"),
            (
                "boolean index of a list",
                "    labels, scores = np.asarray(labels), np.asarray(scores, dtype=float)\n",
                "    labels = np.asarray(labels)\n",
            ),
            ("reversed order", "(difference > 0)", "(difference < 0)"),
        ],
    ),
    ml_task(
        "bootstrap",
        (
            "estimates a <<pct>>% confidence interval of the mean <<number_words>> by the bootstrap",
            "returns the bootstrap interval (<<pct>>%) of the mean of a sample, reproducible by seed",
        ),
        """
        import numpy as np

        def <<fn>>(sample, repeats=<<r>>, seed=<<i>>):
            <<doc>>
            sample = np.asarray(sample, dtype=float)
            rng = np.random.default_rng(seed)
            means = rng.choice(sample, size=(repeats, len(sample))).mean(axis=1)
            tail = (100 - <<pct>>) / 2
            low, high = np.percentile(means, [tail, 100 - tail])
            return round(float(low), 2), round(float(high), 2)
        """,
        """
        low, high = <<fn>>(<<ints1>>)
        low <= float(np.mean(<<ints1>>)) <= high ==>
        (low, high) ==>
        """,
        pick={
            "fn": ["bootstrap_mean", "confidence_interval", "resample_mean", "interval_of_mean", "bootstrap"],
            "pct": ["90", "95", "80", "99", "85"],
            "r": ["500", "800", "1000", "400", "600"],
        },
        bugs=[
            ("wrong axis", ".mean(axis=1)", ".mean(axis=2)"),
            ("size misplaced", "size=(repeats, len(sample))", "repeats, len(sample)"),
            (
                "percent as fraction",
                "np.percentile(means, [tail, 100 - tail])",
                "np.quantile(means, [tail, 100 - tail])",
            ),
        ],
    ),
    ml_task(
        "cosine_similarity",
        (
            "returns the matrix of cosine similarities between the rows of two arrays",
            "computes cosine similarity of every row of A with every row of B",
        ),
        """
        import numpy as np

        def <<fn>>(A, B):
            <<doc>>
            A, B = np.asarray(A, dtype=float), np.asarray(B, dtype=float)
            norms = np.linalg.norm(A, axis=1)[:, None] * np.linalg.norm(B, axis=1)[None, :]
            return A @ B.T / norms
        """,
        """
        <<fn>>([[1, 0], [<<i>>, <<k>>]], [[0, 2], [1, 1], [<<j>>, 1]]).round(3).tolist() ==>
        """,
        pick={"fn": ["cosine_similarity", "cosines", "similarity_matrix", "compare_rows", "angle_scores"]},
        bugs=[
            ("transpose missing", "A @ B.T", "A @ B"),
            (
                "norms do not broadcast",
                "np.linalg.norm(A, axis=1)[:, None] * np.linalg.norm(B, axis=1)[None, :]",
                "np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)",
            ),
        ],
    ),
)
