"""General knowledge of Python libraries: what importing or calling them says about a program's domain.

The lists name well-known packages and their central methods; none was drawn from any collection of logs.
"""

from capibara_assets.domains import Domain

_STRONG, _MEDIUM, _WEAK = 4.0, 2.5, 1.0

_MODULES: dict[Domain, dict[float, str]] = {
    Domain.ML: {
        _STRONG: """sklearn torch torchvision torchaudio torchtext torchmetrics pytorch_lightning lightning tensorflow
            keras tensorflow_datasets tensorflow_hub jax flax optax haiku equinox xgboost lightgbm catboost
            statsmodels imblearn mlxtend transformers peft accelerate diffusers sentence_transformers timm
            fastai mxnet paddle theano onnx onnxruntime gensim spacy optuna hyperopt shap lime umap hdbscan
            prophet sktime skorch gym gymnasium stable_baselines3 torch_geometric dgl ray.tune mlflow wandb
            skimage pymc arviz surprise tokenizers evaluate""",
        _MEDIUM: """numpy pandas scipy matplotlib seaborn nltk cv2 plotly polars dask cupy numba cudf altair bokeh
            datasets huggingface_hub pyarrow missingno patsy librosa pydotplus yellowbrick""",
        _WEAK: "PIL networkx sympy tqdm joblib h5py imageio",
    },
    Domain.API: {
        _STRONG: """fastapi flask django rest_framework starlette sanic bottle falcon quart litestar aiohttp httpx
            requests uvicorn gunicorn hypercorn websockets websocket grpc graphene strawberry ariadne gql zeep
            responses respx requests_mock httpretty vcr boto3 botocore stripe twilio sendgrid slack_sdk
            slack_bolt tweepy praw openai anthropic cohere mistralai groq together replicate litellm
            google.generativeai google.genai vertexai googleapiclient langchain langchain_core
            langchain_community langchain_openai langchain_anthropic langgraph llama_index pinecone voyageai
            telegram discord github notion_client hubspot msal requests_oauthlib authlib kubernetes docker
            paramiko deepgram elevenlabs assemblyai serpapi wikipedia e2b e2b_code_interpreter http.server
            http.client xmlrpc urllib3 socketio tornado.web apispec connexion spyne suds pydantic_ai instructor""",
        _MEDIUM: """urllib.request google.cloud google.oauth2 azure ollama pika kafka weaviate chromadb qdrant_client
            starlette.testclient""",
        _WEAK: "pydantic urllib socket ssl smtplib email jwt itsdangerous bs4 asyncio oauthlib dotenv",
    },
    Domain.SQL: {
        _STRONG: """sqlite3 aiosqlite psycopg psycopg2 asyncpg pymysql MySQLdb mysql.connector duckdb pyodbc oracledb
            cx_Oracle sqlglot sqlparse pandasql ibis clickhouse_driver clickhouse_connect snowflake.connector
            google.cloud.bigquery pymssql apsw records dataset peewee pony""",
        _MEDIUM: "sqlalchemy sqlmodel databases",
    },
}  # fmt: skip

#: Dotted module -> (domain, weight of importing it).
MODULES: dict[str, tuple[Domain, float]] = {
    module: (domain, weight)
    for domain, groups in _MODULES.items()
    for weight, names in groups.items()
    for module in names.split()
}

#: Names under which libraries are customarily used; a later cell of a session uses them without the import.
ALIASES: dict[str, str] = {
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib",
    "sns": "seaborn",
    "tf": "tensorflow",
    "keras": "keras",
    "torch": "torch",
    "nn": "torch",
    "optim": "torch",
    "jnp": "jax",
    "sp": "scipy",
    "sm": "statsmodels",
    "xgb": "xgboost",
    "lgb": "lightgbm",
    "px": "plotly",
    "pl": "polars",
    "requests": "requests",
    "httpx": "httpx",
    "sqlite3": "sqlite3",
}

_METHOD_NAMES: tuple[tuple[Domain, float, str], ...] = (
    (
        Domain.ML,
        1.5,
        """fit fit_transform predict predict_proba decision_function inverse_transform backward zero_grad
        train_test_split cross_val_score state_dict load_state_dict requires_grad_ read_csv read_parquet to_csv groupby
        fillna dropna value_counts pivot_table get_dummies imshow subplots savefig xlabel ylabel set_xlabel set_ylabel
        scatter hist contourf argmax argmin argsort linspace reshape astype randn manual_seed unsqueeze squeeze isnull
        isna describe nunique corr to_numpy scatter_matrix heatmap plot_confusion_matrix named_parameters add_subplot
        tight_layout legend linalg meshgrid concatenate vstack hstack""",
    ),
    (Domain.ML, 0.5, "mean std sum shape max min dot score transform plot show cumsum clip drop merge head tail title"),
    (
        Domain.API,
        1.5,
        """raise_for_status add_api_route include_router add_middleware test_client websocket_connect urlopen jsonify
        make_response send_json receive_json add_api_websocket_route dependency_overrides openapi mount
        prepare_request""",
    ),
    (Domain.API, 0.5, "json raise_server_exceptions set_cookie redirect"),
    (Domain.SQL, 2.0, "executemany executescript read_sql read_sql_query read_sql_table to_sql fetchdf"),
    (Domain.SQL, 1.0, "fetchall fetchone fetchmany rollback cursor row_factory"),
)

#: Method names that by themselves speak for a domain.
METHODS: dict[str, tuple[Domain, float]] = {
    name: (domain, weight) for domain, weight, names in _METHOD_NAMES for name in names.split()
}

#: Attributes that are read rather than called.
ATTRIBUTES: dict[str, tuple[Domain, float]] = {
    "status_code": (Domain.API, 1.5),
    "headers": (Domain.API, 0.5),
    "iloc": (Domain.ML, 1.5),
    "loc": (Domain.ML, 1.0),
    "dtypes": (Domain.ML, 1.0),
    "shape": (Domain.ML, 0.7),
    "coef_": (Domain.ML, 1.5),
    "feature_importances_": (Domain.ML, 1.5),
    "cuda": (Domain.ML, 1.0),
}

#: Names of variables that practically everybody who does machine learning uses.
VARIABLES: dict[str, tuple[Domain, float]] = {
    name: (Domain.ML, weight)
    for weight, names in (
        (1.0, "X_train X_test y_train y_test y_pred X_val y_val y_hat"),
        (0.7, "df train_loader test_loader train_dl learning_rate n_epochs num_epochs"),
    )
    for name in names.split()
}

#: Keyword arguments of calls.
KEYWORDS: dict[str, tuple[Domain, float]] = {
    "api_key": (Domain.API, 1.5),
    "base_url": (Domain.API, 1.0),
    "max_tokens": (Domain.API, 1.0),
    "random_state": (Domain.ML, 1.5),
    "n_estimators": (Domain.ML, 1.5),
    "batch_size": (Domain.ML, 0.7),
    "epochs": (Domain.ML, 1.0),
    "axis": (Domain.ML, 0.7),
    "figsize": (Domain.ML, 1.5),
    "status_code": (Domain.API, 1.5),
    "response_model": (Domain.API, 1.5),
}

#: HTTP methods, as client calls (`client.get("/items")`) and as routing decorators (`@app.get("/items")`).
HTTP_METHODS = frozenset(
    ("get", "post", "put", "delete", "patch", "head", "options", "request", "websocket", "route", "api_route")
)


def module_signal(module: str) -> tuple[str, Domain, float] | None:
    """The longest known prefix of a dotted module with its domain and weight."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in MODULES:
            return name, *MODULES[name]
    return None
