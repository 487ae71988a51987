"""Sessions written for the tests, of kinds that no shared log holds: name -> (domain, cells)."""

from capibara_assets.domains import Domain

SESSIONS: dict[str, tuple[Domain, tuple[str, ...]]] = {
    # --- machine learning -------------------------------------------------------------------------------------------
    "numpy notebook": (
        Domain.ML,
        (
            "import numpy as np\nrng = np.random.default_rng(3)",
            "signal = rng.normal(size=(40, 3))\nsignal.mean(axis=0)",
            "cov = np.cov(signal.T)\nvalues, vectors = np.linalg.eigh(cov)",
            "order = values.argsort()[::-1]\nprojected = signal @ vectors[:, order[:2]]\nprojected.shape",
            "projected[:3]",
        ),
    ),
    "pandas notebook": (
        Domain.ML,
        (
            "import pandas as pd\ntrips = pd.read_csv('trips.csv', parse_dates=['start'])",
            "trips.head()",
            "trips['hour'] = trips['start'].dt.hour",
            "by_hour = trips.groupby('hour')['minutes'].median()\nby_hour",
            "trips[trips['minutes'] > 90].shape",
            "by_hour.plot(kind='bar')",
        ),
    ),
    "pandas whose import is missing": (
        Domain.ML,
        (
            "late = df[df['delay'] > 15]\nlate.groupby('carrier').size()",
            "pd.crosstab(df['carrier'], df['delay'] > 15)",
            "late['delay'].describe()",
        ),
    ),
    "boosted trees": (
        Domain.ML,
        (
            "from xgboost import XGBRegressor\nfrom sklearn.model_selection import train_test_split",
            "train, test, goal, held = train_test_split(table, prices, test_size=0.2)",
            "booster = XGBRegressor(n_estimators=300, max_depth=5)",
            "booster.fit(train, goal)",
            "guess = booster.predict(test)\nround(abs(guess - held).mean(), 2)",
        ),
    ),
    "keras": (
        Domain.ML,
        (
            "from tensorflow import keras\nfrom tensorflow.keras import layers",
            "net = keras.Sequential([layers.Dense(32, activation='relu'), layers.Dense(1)])",
            "net.compile(optimizer='adam', loss='mse')",
            "log = net.fit(inputs, targets, epochs=5, verbose=0)",
            "log.history['loss'][-1]",
        ),
    ),
    "jax": (
        Domain.ML,
        (
            "import jax\nimport jax.numpy as jnp\nimport optax",
            "def loss(params, x, y):\n    return jnp.mean((x @ params['w'] + params['b'] - y) ** 2)",
            "grad = jax.jit(jax.value_and_grad(loss))",
            "value, step = grad(params, x, y)\nprint(float(value))",
        ),
    ),
    "transformers": (
        Domain.ML,
        (
            "from transformers import AutoTokenizer, AutoModelForSequenceClassification\nimport torch",
            "tokenizer = AutoTokenizer.from_pretrained('distilbert-base-uncased')",
            "model = AutoModelForSequenceClassification.from_pretrained('distilbert-base-uncased')",
            "batch = tokenizer(['good', 'bad'], return_tensors='pt', padding=True)",
            "with torch.no_grad():\n    scores = model(**batch).logits\nscores.softmax(-1)",
        ),
    ),
    "training that downloads its data": (
        Domain.ML,
        (
            "import requests, io\nimport pandas as pd\nfrom sklearn.ensemble import RandomForestClassifier",
            "raw = requests.get('https://example.org/wine.csv').text\nwine = pd.read_csv(io.StringIO(raw))",
            "forest = RandomForestClassifier(random_state=0).fit(wine.drop(columns='kind'), wine['kind'])",
            "forest.feature_importances_",
        ),
    ),
    # --- services ---------------------------------------------------------------------------------------------------
    "a model's API behind helpers": (
        Domain.API,
        (
            "from openai import OpenAI\nclient = OpenAI()",
            "def ask(question, style='short'):\n"
            "    reply = client.chat.completions.create(model='gpt-4o-mini',"
            " messages=[{'role': 'user', 'content': f'{style}: {question}'}])\n"
            "    return reply.choices[0].message.content",
            "questions = ['Why is the sky blue?', 'What is a quasar?']",
            "answers = [ask(question) for question in questions]",
            "for question, answer in zip(questions, answers):\n    print(question, '->', answer)",
            "print(ask('Summarise all of that', style='long'))",
            "comparison = {style: ask('What is dew?', style) for style in ('short', 'long')}",
        ),
    ),
    "prompts whose client is in another file": (
        Domain.API,
        (
            "from helpers import run_llm, parse_tags",
            "SYSTEM = '''You are a careful proofreader. Mark each mistake in <mistake></mistake> tags and do not"
            " change anything else in the text.'''",
            "draft = 'Their going to the libary tommorow.'",
            "marked = run_llm(SYSTEM, draft)\nprint(parse_tags('mistake', marked))",
            "print(run_llm(SYSTEM.replace('proofreader', 'translator'), draft))",
        ),
    ),
    "embeddings of a service, shown with pandas": (
        Domain.API,
        (
            "!pip install -q cohere pandas matplotlib",
            "import cohere\nimport numpy as np\nimport pandas as pd",
            "co = cohere.ClientV2(api_key=KEY)",
            "faq = pd.read_csv('faq.csv')\nfaq.head()",
            "vectors = co.embed(texts=list(faq['question']), model='embed-english-v3.0',"
            " input_type='search_document').embeddings",
            "def search(query):\n"
            "    hit = co.embed(texts=[query], model='embed-english-v3.0', input_type='search_query')\n"
            "    return faq.iloc[int(np.argmax(np.dot(vectors, hit.embeddings[0])))]",
            "search('How do I return a parcel?')",
        ),
    ),
    "requests": (
        Domain.API,
        (
            "import requests\nBASE = 'https://api.example.org/v2'",
            "session = requests.Session()\nsession.headers['Accept'] = 'application/json'",
            "reply = session.get(f'{BASE}/stations', params={'near': '52.5,13.4'}, timeout=10)\nreply.status_code",
            "stations = reply.json()['items']\nlen(stations)",
            "first = session.get(f\"{BASE}/stations/{stations[0]['id']}\").json()\nfirst['name']",
        ),
    ),
    "httpx, asynchronous": (
        Domain.API,
        (
            "import asyncio, httpx",
            "async def fetch(client, page):\n    r = await client.get('/items', params={'page': page})\n"
            "    r.raise_for_status()\n    return r.json()",
            "async with httpx.AsyncClient(base_url='https://api.example.org') as client:\n"
            "    pages = await asyncio.gather(*(fetch(client, n) for n in range(3)))",
            "sum(len(page['items']) for page in pages)",
        ),
    ),
    "a cloud's client": (
        Domain.API,
        (
            "import boto3\ns3 = boto3.client('s3', region_name='eu-west-1')",
            "names = [bucket['Name'] for bucket in s3.list_buckets()['Buckets']]\nnames",
            "for page in s3.get_paginator('list_objects_v2').paginate(Bucket=names[0]):\n"
            "    print(len(page.get('Contents', [])))",
            "s3.upload_file('report.pdf', names[0], 'reports/2026.pdf')",
        ),
    ),
    "flask": (
        Domain.API,
        (
            "from flask import Flask, abort, request\napp = Flask(__name__)\nnotes = {}",
            "@app.post('/notes')\ndef add():\n    notes[len(notes)] = request.get_json()['text']\n"
            "    return {'id': len(notes) - 1}, 201",
            "@app.get('/notes/<int:number>')\ndef show(number):\n    return {'text': notes.get(number) or abort(404)}",
            "client = app.test_client()\nclient.post('/notes', json={'text': 'milk'}).status_code",
            "client.get('/notes/7').status_code",
        ),
    ),
    "django rest": (
        Domain.API,
        (
            "from rest_framework import serializers, viewsets\nfrom shop.models import Order",
            "class OrderSerializer(serializers.ModelSerializer):\n    class Meta:\n        model = Order\n"
            "        fields = ['id', 'total']",
            "class OrderView(viewsets.ModelViewSet):\n    queryset = Order.objects.all()\n"
            "    serializer_class = OrderSerializer",
        ),
    ),
    "grpc": (
        Domain.API,
        (
            "import grpc\nimport greeter_pb2, greeter_pb2_grpc",
            "channel = grpc.insecure_channel('localhost:50051')\nstub = greeter_pb2_grpc.GreeterStub(channel)",
            "reply = stub.SayHello(greeter_pb2.HelloRequest(name='Ada'))\nprint(reply.message)",
        ),
    ),
    # --- databases --------------------------------------------------------------------------------------------------
    "duckdb": (
        Domain.SQL,
        (
            "import duckdb\ncon = duckdb.connect()",
            "con.sql(\"CREATE TABLE rides AS SELECT * FROM 'rides.parquet'\")",
            "con.sql('SELECT city, avg(minutes) AS m FROM rides GROUP BY city ORDER BY m DESC').df()",
            "longest = con.sql('SELECT * FROM rides QUALIFY row_number() OVER (PARTITION BY city ORDER BY m) = 1')\n"
            "longest.df().head()",
        ),
    ),
    "psycopg": (
        Domain.SQL,
        (
            "import psycopg\nconn = psycopg.connect('dbname=shop')",
            "cur = conn.cursor()\ncur.execute('SELECT id, total FROM orders WHERE total > %s', (100,))",
            "rows = cur.fetchall()\nlen(rows)",
            "cur.execute('UPDATE orders SET paid = true WHERE id = %s', (rows[0][0],))\nconn.commit()",
        ),
    ),
    "sqlalchemy": (
        Domain.SQL,
        (
            "from sqlalchemy import create_engine, select, func\nfrom models import Order, Base",
            "engine = create_engine('sqlite://')\nBase.metadata.create_all(engine)",
            "query = select(Order.city, func.sum(Order.total)).group_by(Order.city)",
            "with engine.connect() as connection:\n    for row in connection.execute(query):\n        print(row)",
        ),
    ),
    "queries through pandas": (
        Domain.SQL,
        (
            "import sqlite3\nimport pandas as pd\nconn = sqlite3.connect('school.db')",
            "grades = pd.read_sql('SELECT pupil, avg(mark) AS mark FROM grades GROUP BY pupil', conn)",
            "grades.sort_values('mark').head(10)",
            "pd.read_sql('SELECT name FROM pupils JOIN grades USING (pupil) WHERE mark < 3', conn)",
        ),
    ),
    "SQL magics": (
        Domain.SQL,
        (
            "%load_ext sql\n%sql sqlite:///library.db",
            "%%sql\nSELECT author, count(*) AS books\nFROM book\nGROUP BY author",
            "late = %sql SELECT * FROM loan WHERE due < '2026-10-01'",
            "late.DataFrame().head()",
        ),
    ),
    "queries in f-strings": (
        Domain.SQL,
        (
            "from db import connection",
            "def count(table):\n    return connection.execute(f'SELECT count(*) FROM {table}').fetchone()[0]",
            "{name: count(name) for name in ('orders', 'items', 'people')}",
            "connection.execute(f'DELETE FROM orders WHERE id = {7}')",
        ),
    ),
    # --- plain Python -----------------------------------------------------------------------------------------------
    "a puzzle about models": (
        Domain.PYTHON,
        (
            'def best_model(models):\n    """Return the model with the highest score."""\n'
            "    return max(models, key=lambda model: model['score'])",
            "assert best_model([{'name': 'a', 'score': 1}, {'name': 'b', 'score': 3}])['name'] == 'b'",
        ),
    ),
    "a puzzle about requests": (
        Domain.PYTHON,
        (
            "def serve(requests, limit):\n    done = []\n    for request in requests:\n"
            "        if len(done) < limit:\n            done.append(request)\n    return done",
            "assert serve(['get', 'post', 'put'], 2) == ['get', 'post']",
        ),
    ),
    "a class with fit and a table": (
        Domain.PYTHON,
        (
            "class Suitcase:\n    def __init__(self, room):\n        self.room = room\n"
            "    def fits(self, thing):\n        return thing <= self.room",
            "table = {'shoes': 3, 'coat': 5}\n[name for name, size in table.items() if Suitcase(4).fits(size)]",
        ),
    ),
    "text that says select and from": (
        Domain.PYTHON,
        (
            "def menu(options):\n    print('Please select one from these options:')\n"
            "    for number, option in enumerate(options, 1):\n        print(number, option)",
            "menu(['tea', 'coffee'])",
            "answer = 'update all of them'",
        ),
    ),
    "a docstring that sets a task": (
        Domain.PYTHON,
        (
            "def rotate(grid):\n"
            "    '''You are a player on a square grid. Your task is to turn the grid by ninety degrees, and to"
            " answer the following question: which value is at the top left now?'''\n"
            "    return [list(row) for row in zip(*grid[::-1])]",
            "assert rotate([[1, 2], [3, 4]]) == [[3, 1], [4, 2]]",
        ),
    ),
    "files and dates": (
        Domain.PYTHON,
        (
            "import json, pathlib, datetime as dt",
            "config = json.loads(pathlib.Path('config.json').read_text())",
            "age = dt.date.today() - dt.date.fromisoformat(config['since'])\nage.days",
            "print(config.get('/name'), sorted(config))",
        ),
    ),
}
