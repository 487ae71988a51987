"""Table of known libraries: which domain importing or calling them suggests, and how strongly.

The lists name well-known packages of the Python and JavaScript ecosystems and their central methods; none was drawn
from any collection of logs. Some libraries are *helpers*: numpy, pandas and plots turn up in sessions about anything,
and so does an HTTP client that only fetches a file. They decide where nothing more telling stands beside them.
"""

from typing import NamedTuple

from capibara_assets.domains import Domain


class Signal(NamedTuple):
    """The domain that a library, method or name suggests, and its weight as evidence."""

    domain: Domain
    weight: float
    helper: bool = False


_STRONG, _MEDIUM, _WEAK = 4.0, 2.5, 1.0

# domain -> (weight of an import, whether the libraries are helpers, their dotted names)
_MODULES: dict[Domain, tuple[tuple[float, bool, str], ...]] = {
    Domain.ML: (
        (_STRONG, False, """sklearn torch torchvision torchaudio torchtext torchmetrics pytorch_lightning lightning
            tensorflow keras keras_cv keras_nlp keras_hub keras_tuner tensorflow_datasets tensorflow_hub
            tensorflow_probability tensorflow_addons tflite_runtime jax jaxlib flax optax haiku equinox xgboost
            lightgbm catboost statsmodels imblearn mlxtend transformers peft accelerate diffusers trl unsloth
            bitsandbytes vllm llama_cpp ctransformers auto_gptq awq optimum sentence_transformers timm fastai fastbook
            mxnet gluonts paddle theano onnx onnxruntime gensim spacy stanza flair fasttext optuna hyperopt skopt
            bayes_opt nevergrad shap lime eli5 interpret umap hdbscan pacmap openTSNE prophet sktime tsfresh pmdarima
            darts neuralprophet skorch gym gymnasium stable_baselines3 torch_geometric dgl spektral ray.tune ray.train
            mlflow wandb tensorboard tensorboardX comet_ml neptune dvclive skimage pymc pymc3 arviz pystan cmdstanpy
            pyro numpyro gpytorch botorch GPy surprise lightfm implicit tokenizers evaluate sacrebleu rouge_score
            albumentations kornia ultralytics detectron2 mmdet mmcv segmentation_models_pytorch monai torchio
            monai nibabel einops xformers deepspeed safetensors open_clip clip whisper faster_whisper kmodes
            category_encoders feature_engine featuretools tpot autosklearn pycaret autogluon h2o cuml river
            dask_ml pyspark.ml sparknlp d2l deepchem pyod alibi captum sklearn_crfsuite textblob bertopic"""),
        (_MEDIUM, True, """numpy pandas scipy matplotlib pylab mpl_toolkits seaborn nltk cv2 plotly polars dask cupy
            numba cudf altair bokeh datasets huggingface_hub pyarrow missingno patsy librosa pydotplus yellowbrick
            xarray geopandas modin vaex ydata_profiling pandas_profiling sweetviz lifelines plotnine holoviews hvplot
            graphviz folium ipywidgets wordcloud pandas_datareader yfinance kaggle opendatasets squarify janitor
            siuba datashader cartopy rasterio faiss annoy hnswlib"""),
        (_WEAK, True, "PIL networkx sympy tqdm joblib h5py imageio tables openpyxl cvxpy pulp ortools"),
    ),
    Domain.API: (
        (_STRONG, False, """fastapi flask flask_restful flask_login flask_jwt_extended flask_cors django
            rest_framework ninja starlette sanic bottle falcon quart litestar cherrypy pyramid robyn
            uvicorn gunicorn hypercorn daphne mangum websockets websocket grpc grpc_tools graphene strawberry ariadne
            gql sgqlc zeep responses respx requests_mock httpretty vcr pytest_httpserver boto3 botocore aioboto3
            stripe paypalrestsdk braintree square twilio sendgrid mailchimp_marketing slack_sdk slack_bolt tweepy
            praw openai anthropic cohere mistralai groq together replicate litellm cerebras fireworks ai21
            dashscope zhipuai ollama google.generativeai google.genai vertexai googleapiclient
            google.cloud.aiplatform langchain langchain_core langchain_community langchain_openai
            langchain_anthropic langchain_google_genai langchain_mistralai langchain_cohere langgraph langsmith
            llama_index llama_parse haystack autogen autogen_agentchat crewai camel metagpt smolagents swarm
            agents phi agno dspy guidance outlines instructor pydantic_ai semantic_kernel guardrails promptflow
            promptlayer langfuse traceloop helicone portkey_ai mcp fastmcp composio pinecone voyageai weaviate
            tavily firecrawl unstructured_client exa_py telegram discord github gitlab jira
            atlassian notion_client pyairtable hubspot simple_salesforce shopify msal msgraph requests_oauthlib
            authlib oauthlib kubernetes docker paramiko deepgram elevenlabs assemblyai serpapi e2b
            e2b_code_interpreter http.server xmlrpc socketio tornado.web apispec connexion
            flasgger spyne suds marshmallow pika aio_pika kafka confluent_kafka nats paho celery
            google.oauth2 google.auth google_auth_oauthlib google.cloud.storage google.cloud.pubsub
            google.cloud.vision google.cloud.translate google.cloud.speech azure.identity azure.storage azure.ai
            azure.core hvac consul plaid coinbase binance ccxt alpaca_trade_api spotipy wikipediaapi wikipedia
            zulip openapi_client swagger_client prance schemathesis locust webob webtest webargs werkzeug wsgiref
            blacksheep hug responder tastypie apistar emmett microdot channels asgiref niquests httpcore h11
            graphql uplink aiogram telethon pyrogram mastodon atproto slowapi fastapi_users drf_spectacular"""),
        (_STRONG, True, "requests httpx aiohttp urllib3 http.client urllib.request pycurl treq tornado.httpclient"),
        (_MEDIUM, True, """google.cloud azure qdrant_client chromadb starlette.testclient opensearchpy elasticsearch
            redis redisvl pymongo motor streamlit gradio chainlit"""),
        (_WEAK, True, """pydantic msgspec jsonschema urllib socket ssl smtplib email jwt itsdangerous bs4 asyncio
            aiofiles anyio trio dotenv getpass tenacity backoff feedparser selenium playwright scrapy nest_asyncio
            tiktoken"""),
    ),
    Domain.SQL: (
        (_STRONG, False, """sqlite3 aiosqlite psycopg psycopg2 psycopg_pool asyncpg aiopg pg8000 pymysql MySQLdb
            aiomysql mysql.connector mariadb duckdb duckdb_engine pyodbc aioodbc pypyodbc ibm_db oracledb cx_Oracle
            sqlglot sqlparse sqlfluff pandasql ibis clickhouse_driver clickhouse_connect chdb snowflake.connector
            google.cloud.bigquery google.cloud.spanner redshift_connector trino prestodb pyhive impala
            databricks.sql pymssql apsw records dataset peewee pony ponyorm sqlite_utils pypika jaydebeapi
            turbodbc adbc_driver_sqlite adbc_driver_postgresql questdb vertica_python teradatasql pydal orator yoyo
            alembic aiosql sql jupysql sqlean libsql"""),
        (_MEDIUM, False, "sqlalchemy sqlmodel databases pyspark.sql tortoise awswrangler connectorx dbt"),
    ),
}  # fmt: skip

#: Dotted module -> what importing it says.
MODULES: dict[str, Signal] = {
    module: Signal(domain, weight, helper)
    for domain, groups in _MODULES.items()
    for weight, helper, names in groups
    for module in names.split()
}

#: Libraries for any kind of computing: importing one says nothing, only what is called of it may.
GENERAL = frozenset(("numpy", "scipy", "cupy", "numba", "PIL", "networkx", "sympy", "tqdm", "joblib", "h5py"))

_PLAIN = """
gcd lcm prod sum cumsum max min maximum minimum abs absolute fabs sqrt cbrt power pow exp log log2 log10 ceil
floor round rint trunc mod fmod remainder divide floor_divide divmod add subtract multiply sign isclose
allclose array_equal all any array asarray zeros ones full empty arange diff sort unique roll flip rot90
transpose diag trace eye identity ravel flatten tolist append insert delete where nonzero count_nonzero pi e
inf nan int8 int32 int64 uint8 float32 float64 bool_ ndarray isnan isinf bitwise_and bitwise_or bitwise_xor
base_repr binary_repr roots poly1d polyval comb factorial binom perm isprime prime primerange factorint
divisors Symbol symbols sympify simplify njit jit vectorize constants special"""
#: What any program computes with them: arithmetic, number theory, making and ordering arrays.
ARITHMETIC = frozenset(_PLAIN.split())

#: Distributions (as in `!pip install`) whose name is not that of their module.
DISTRIBUTIONS: dict[str, str] = {
    "scikit_learn": "sklearn",
    "scikit_image": "skimage",
    "imbalanced_learn": "imblearn",
    "opencv_python": "cv2",
    "umap_learn": "umap",
    "faiss_cpu": "faiss",
    "faiss_gpu": "faiss",
    "openai_whisper": "whisper",
    "beautifulsoup4": "bs4",
    "python_dotenv": "dotenv",
    "pillow": "PIL",
    "psycopg2_binary": "psycopg2",
    "mysql_connector_python": "mysql.connector",
    "mysqlclient": "MySQLdb",
    "snowflake_connector_python": "snowflake.connector",
    "google_cloud_bigquery": "google.cloud.bigquery",
    "google_generativeai": "google.generativeai",
    "google_genai": "google.genai",
    "google_api_python_client": "googleapiclient",
    "ipython_sql": "sql",
    "python_telegram_bot": "telegram",
    "pygithub": "github",
    "pinecone_client": "pinecone",
    "weaviate_client": "weaviate",
    "djangorestframework": "rest_framework",
    "websocket_client": "websocket",
    "grpcio": "grpc",
    "llama_index_core": "llama_index",
}

#: Names under which libraries are customarily used; a session whose first cells are missing uses them unimported.
ALIASES: dict[str, str] = {
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib",
    "sns": "seaborn",
    "tf": "tensorflow",
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
    "openai": "openai",
    "sqlite3": "sqlite3",
    "duckdb": "duckdb",
}

_METHOD_NAMES: tuple[tuple[Domain, float, bool, str], ...] = (
    (
        Domain.ML,
        1.5,
        False,
        """fit fit_transform fit_predict predict predict_proba decision_function backward zero_grad
        train_test_split cross_val_score state_dict load_state_dict requires_grad_ named_parameters
        plot_confusion_matrix from_pretrained push_to_hub value_and_grad partial_fit fit_generator train_on_batch""",
    ),
    (
        Domain.ML,
        1.5,
        True,
        """inverse_transform read_csv read_parquet read_excel to_csv groupby fillna dropna value_counts pivot_table
        get_dummies imshow subplots savefig xlabel ylabel set_xlabel set_ylabel scatter hist contourf argmax argmin
        argsort linspace reshape astype randn manual_seed unsqueeze squeeze isnull isna describe nunique corr to_numpy
        scatter_matrix heatmap add_subplot tight_layout legend linalg meshgrid concatenate vstack hstack""",
    ),
    (Domain.ML, 0.5, True, "mean std sum shape max min dot score transform plot show cumsum clip drop merge head tail"),
    (
        Domain.API,
        1.5,
        False,
        """raise_for_status add_api_route include_router add_middleware test_client websocket_connect jsonify
        make_response send_json receive_json add_api_websocket_route dependency_overrides openapi
        register_blueprint add_url_rule chat_completion get_paginator iter_lines aiter_lines invoke_model
        bind_tools with_structured_output""",
    ),
    (Domain.API, 1.5, True, "urlopen urlretrieve iter_content"),
    (Domain.API, 0.5, False, "json raise_server_exceptions set_cookie redirect"),
    (
        Domain.SQL,
        2.0,
        False,
        "executemany executescript read_sql read_sql_query read_sql_table to_sql fetchdf",
    ),
    (Domain.SQL, 1.0, False, "fetchall fetchone fetchmany rollback cursor row_factory create_engine"),
)

#: Method names that by themselves speak for a domain.
METHODS: dict[str, Signal] = {
    name: Signal(domain, weight, helper) for domain, weight, helper, names in _METHOD_NAMES for name in names.split()
}

#: Attributes that are read rather than called.
ATTRIBUTES: dict[str, Signal] = {
    "status_code": Signal(Domain.API, 1.5),
    "headers": Signal(Domain.API, 0.5),
    "iloc": Signal(Domain.ML, 1.5, helper=True),
    "loc": Signal(Domain.ML, 1.0, helper=True),
    "dtypes": Signal(Domain.ML, 1.0, helper=True),
    "shape": Signal(Domain.ML, 0.7, helper=True),
    "coef_": Signal(Domain.ML, 1.5),
    "feature_importances_": Signal(Domain.ML, 1.5),
    "cuda": Signal(Domain.ML, 1.0),
}

#: Names of variables that practically everybody who does machine learning uses.
VARIABLES: dict[str, Signal] = {
    name: signal
    for signal, names in (
        (Signal(Domain.ML, 1.0), "X_train X_test y_train y_test y_pred X_val y_val y_hat train_loader test_loader"),
        (Signal(Domain.ML, 0.7), "train_dl learning_rate n_epochs num_epochs"),
        (Signal(Domain.API, 1.0), "api_key API_KEY access_token base_url BASE_URL"),
    )
    for name in names.split()
}

#: Keyword arguments of calls.
KEYWORDS: dict[str, Signal] = {
    "api_key": Signal(Domain.API, 1.5),
    "base_url": Signal(Domain.API, 1.0),
    "max_tokens": Signal(Domain.API, 1.0),
    "messages": Signal(Domain.API, 1.0),
    "status_code": Signal(Domain.API, 1.5),
    "response_model": Signal(Domain.API, 1.5),
    "random_state": Signal(Domain.ML, 1.5),
    "n_estimators": Signal(Domain.ML, 1.5),
    "batch_size": Signal(Domain.ML, 0.7),
    "epochs": Signal(Domain.ML, 1.0),
    "axis": Signal(Domain.ML, 0.7, helper=True),
    "figsize": Signal(Domain.ML, 1.5, helper=True),
}

#: HTTP methods, as client calls (`client.get("/items")`) and as routing decorators (`@app.get("/items")`).
HTTP_METHODS = frozenset(
    ("get", "post", "put", "delete", "patch", "head", "options", "request", "websocket", "route", "api_route")
)

#: Cell magics whose cell, and line magics whose line, is SQL.
SQL_MAGICS = frozenset(("sql", "bigquery", "sparksql", "dql", "duckdb", "read_sql"))

_JAVASCRIPT_NAMES: tuple[tuple[Domain, str], ...] = (
    (
        Domain.API,
        """express koa fastify @hapi/hapi @nestjs/core restify hono axios node-fetch undici got superagent ky supertest
        http https http2 net ws socket.io socket.io-client @grpc/grpc-js graphql apollo-server @apollo/server
        @apollo/client graphql-request openai @anthropic-ai/sdk @google/generative-ai @mistralai/mistralai cohere-ai
        langchain @langchain/core @langchain/openai ai stripe twilio @slack/web-api @slack/bolt @octokit/rest octokit
        aws-sdk googleapis nodemailer jsonwebtoken passport msw nock @modelcontextprotocol/sdk""",
    ),
    (
        Domain.SQL,
        """pg mysql mysql2 sqlite3 better-sqlite3 sql.js mssql oracledb tedious knex sequelize typeorm @prisma/client
        drizzle-orm kysely postgres duckdb @duckdb/node-api sqlite objection slonik""",
    ),
    (
        Domain.ML,
        """@tensorflow/tfjs @tensorflow/tfjs-node @xenova/transformers @huggingface/transformers onnxruntime-node
        onnxruntime-web brain.js ml5 ml-regression danfojs natural synaptic""",
    ),
)

#: npm package -> domain of the programs that import it.
JAVASCRIPT_MODULES: dict[str, Domain] = {name: domain for domain, names in _JAVASCRIPT_NAMES for name in names.split()}


def module_signal(module: str) -> tuple[str, Signal] | None:
    """The longest known prefix of a dotted module name, with its signal; None when none is known."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in MODULES:
            return name, MODULES[name]
    return None


def distribution_signal(distribution: str) -> tuple[str, Signal] | None:
    """The module that a distribution (`scikit-learn`) installs, with its signal; None when unknown."""
    name = distribution.lower().replace("-", "_")
    if (module := DISTRIBUTIONS.get(name)) is not None:
        return module_signal(module)
    # distributions are often named after a part of their module: llama-index-llms-openai, google-cloud-storage
    parts = name.split("_")
    for length in range(len(parts), 0, -1):
        for joint in ("_", "."):
            if (signal := MODULES.get(joint.join(parts[:length]))) is not None:
                return joint.join(parts[:length]), signal
    return None
