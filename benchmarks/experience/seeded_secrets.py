"""Made-up secrets strewn over real logs: the known answer that redaction is measured against.

Shapes are templates that a random generator fills, so that no key, real or real-looking, stands in this repository.
They are written from the providers' documentation, apart from the rules that look for them.
"""

import base64
import json
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

_ALPHABETS = {
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "dig": string.digits,
    "low": string.ascii_lowercase + string.digits,
    "let": string.ascii_letters,
    "up": string.ascii_uppercase + "234567",
    "an": string.ascii_letters + string.digits,
    "url": string.ascii_letters + string.digits + "-_",
    "b64": string.ascii_letters + string.digits + "+/",
    "pw": string.ascii_letters + string.digits + "!#%^*-_+.",
}
_HOLE = re.compile(r"\{(\w+):(\d+)\}")

#: Secrets that are known by their own shape: usual variable name -> templates.
SHAPED: dict[str, tuple[str, ...]] = {
    "E2B_API_KEY": ("e2b_{hex:40}", "e2b_{hex:39}", "e2b_{hex:41}"),
    "E2B_ACCESS_TOKEN": ("sk_e2b_{hex:40}",),
    "AWS_ACCESS_KEY_ID": ("AKIA{up:16}", "ASIA{up:16}"),
    "GOOGLE_API_KEY": ("AIza{url:35}",),
    "GOOGLE_CLIENT_SECRET": ("GOCSPX-{url:28}",),
    "GOOGLE_ACCESS_TOKEN": ("ya29.{url:120}",),
    "AZURE_CLIENT_SECRET": ("{an:3}8Q~{url:34}",),
    "GITHUB_TOKEN": ("ghp_{an:36}", "gho_{an:36}", "ghs_{an:36}", "github_pat_{an:22}_{an:59}"),
    "GITLAB_TOKEN": ("glpat-{url:20}",),
    "OPENAI_API_KEY": (
        "sk-{an:48}", "sk-proj-{url:74}T3BlbkFJ{url:74}", "sk-svcacct-{url:60}", "sk-{an:20}T3BlbkFJ{an:20}",
    ),
    "ANTHROPIC_API_KEY": ("sk-ant-api03-{url:93}AA",),
    "HF_TOKEN": ("hf_{let:34}",),
    "GROQ_API_KEY": ("gsk_{an:52}",),
    "XAI_API_KEY": ("xai-{an:80}",),
    "DEEPSEEK_API_KEY": ("sk-{hex:32}",),
    "OPENROUTER_API_KEY": ("sk-or-v1-{hex:64}",),
    "REPLICATE_API_TOKEN": ("r8_{an:37}",),
    "PERPLEXITY_API_KEY": ("pplx-{an:48}",),
    "NVIDIA_API_KEY": ("nvapi-{url:64}",),
    "LANGSMITH_API_KEY": ("lsv2_pt_{hex:32}_{hex:10}",),
    "PINECONE_API_KEY": ("pcsk_{an:6}_{an:63}",),
    "TAVILY_API_KEY": ("tvly-dev-{an:32}",),
    "DAYTONA_API_KEY": ("dtn_{hex:64}",),
    "SLACK_BOT_TOKEN": ("xoxb-{dig:12}-{dig:13}-{an:24}", "xoxp-{dig:12}-{dig:12}-{dig:13}-{hex:32}"),
    "SLACK_APP_TOKEN": ("xapp-1-A{up:10}-{dig:13}-{hex:64}",),
    "SLACK_WEBHOOK_URL": ("https://hooks.slack.com/services/T{up:10}/B{up:10}/{an:24}",),
    "STRIPE_API_KEY": ("sk_live_{an:24}", "sk_test_{an:99}", "rk_live_{an:24}"),
    "STRIPE_WEBHOOK_SECRET": ("whsec_{an:32}",),
    "SENDGRID_API_KEY": ("SG.{url:22}.{url:43}",),
    "MAILCHIMP_API_KEY": ("{hex:32}-us12",),
    "MAILGUN_API_KEY": ("key-{hex:32}",),
    "NPM_TOKEN": ("npm_{an:36}",),
    "PYPI_TOKEN": ("pypi-AgEIcHlwaS5vcmc{url:150}",),
    "DOCKERHUB_TOKEN": ("dckr_pat_{url:27}",),
    "DATABRICKS_TOKEN": ("dapi{hex:32}",),
    "DIGITALOCEAN_TOKEN": ("dop_v1_{hex:64}",),
    "TELEGRAM_BOT_TOKEN": ("{dig:10}:AA{url:33}",),
    "DISCORD_TOKEN": ("MT{an:24}.G{an:5}.{url:38}",),
    "TWILIO_API_KEY": ("SK{hex:32}",),
    "NOTION_TOKEN": ("ntn_{an:46}",),
    "LINEAR_API_KEY": ("lin_api_{an:40}",),
    "SHOPIFY_TOKEN": ("shpat_{hex:32}",),
    "SUPABASE_ACCESS_TOKEN": ("sbp_{hex:40}",),
    "VAULT_TOKEN": ("hvs.{url:96}",),
    "GRAFANA_TOKEN": ("glsa_{an:32}_{hex:8}",),
    "NEW_RELIC_API_KEY": ("NRAK-{up:27}",),
}  # fmt: skip

#: Secrets that only what stands before them gives away: variable name -> templates.
NAMED: dict[str, tuple[str, ...]] = {
    "AWS_SECRET_ACCESS_KEY": ("{b64:40}",),
    "MISTRAL_API_KEY": ("{an:32}",),
    "COHERE_API_KEY": ("{an:40}",),
    "TOGETHER_API_KEY": ("{hex:64}",),
    "WANDB_API_KEY": ("{hex:40}",),
    "DD_API_KEY": ("{hex:32}",),
    "SECRET_KEY": ("{hex:64}", "{url:50}"),
    "CLIENT_SECRET": ("{url:40}",),
    "SESSION_TOKEN": ("{an:48}",),
    "WEBHOOK_SIGNING_SECRET": ("{b64:43}=",),
    "DB_PASSWORD": ("{pw:16}", "{pw:24}"),
    "ENCRYPTION_KEY": ("{b64:43}=",),
}

#: Strings of which a part is secret: (kind, the part, the whole).
_PARTS = (
    ("PASSWORD", "{an:18}", "postgresql://app:%s@db.internal:5432/app"),
    ("PASSWORD", "{an:18}", "mysql+pymysql://root:%s@10.0.3.7/shop"),
    ("PASSWORD", "{an:24}", "mongodb+srv://svc:%s@cluster0.mongodb.net/x?retryWrites=true"),
    ("PASSWORD", "{an:18}", "redis://:%s@cache:6379/0"),
    ("PASSWORD", "{an:18}", "amqps://worker:%s@mq.internal/vhost"),
    ("PASSWORD", "{an:16}", "Server=tcp:db.internal,1433;User ID=app;Password=%s;Encrypt=yes"),
    ("AZURE_STORAGE_KEY", "{b64:86}==", "DefaultEndpointsProtocol=https;AccountName=s;AccountKey=%s;EndpointSuffix=x"),
    (
        "AZURE_ACCESS_KEY",
        "{b64:43}=",
        "Endpoint=sb://q.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=%s",
    ),
)


#: What only looks like a secret, and must stay.
LOOKALIKES = (
    "run_id = '{hex:8}-{hex:4}-4{hex:3}-a{hex:3}-{hex:12}'", "digest = '{hex:64}'", "commit {hex:40}",
    "assert md5(data) == '{hex:32}'", "sandbox_id = 'i{low:20}'", "api_key = os.environ['OPENAI_API_KEY']",
    "OPENAI_API_KEY=sk-your-key-goes-here-please", "HF_TOKEN = 'hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
    "token_count = {dig:12}", "model = 'claude-3-5-sonnet-20241022'", "tokenizer = load('bert-base-uncased-v{dig:4}')",
    "password = getpass.getpass('Database password: ')", "url = 'postgresql://user:password@localhost:5432/test'",
    "headers = {{'Authorization': f'Bearer {{token}}'}}", "<img src='data:image/png;base64,{b64:120}'>",
    "primary_key = 'customer_identifier_{dig:3}'", "https://cdn.example.com/assets/app.{hex:20}.js",
    "pad_token = '<|endoftext|>'", "etag: W/'{hex:16}'", "sha256:{hex:64}", "page {dig:4}:{dig:6}",
    "mail ada@example.com",    "msg_01{an:22}", "toolu_01{an:22}", "0x{hex:40}", "secret = input('The secret word? ')",
    "key = lambda row: row[{dig:1}]",
    "vector<{let:24}> {let:18};", "arn:aws:iam::{dig:12}:role/reader", "passwords = ['hunter', 'letmein']",
)  # fmt: skip


@dataclass(frozen=True)
class Seed:
    """One made-up secret and where it was put."""

    execution_id: str
    kind: str
    value: str


def filled(template: str, random: Random) -> str:
    """`template` with each hole `{alphabet:length}` filled at random."""
    return _HOLE.sub(lambda hole: "".join(random.choices(_ALPHABETS[hole[1]], k=int(hole[2]))), template)


def json_web_token(random: Random) -> str:
    """A token with a proper header and payload and a random signature."""
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": filled("{dig:10}", random), "iat": random.randrange(1 << 31)})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, filled("{url:43}", random)])


def private_key(random: Random) -> str:
    """A block of base64 between the lines that make it a private key."""
    kind = random.choice(("RSA ", "EC ", "OPENSSH ", ""))
    lines = [filled("{b64:64}", random) for _ in range(random.randint(3, 24))]
    mark = "PRIVATE " + "KEY-----"
    return "\n".join([f"-----BEGIN {kind}{mark}", *lines, f"-----END {kind}{mark}"])


# --- where it is put --------------------------------------------------------------------------------------------------

_CODE_NAMED = ('{name} = "{value}"', "os.environ['{name}'] = '{value}'", 'config = {{"{name}": "{value}", "n": 3}}',
               "const {name} = '{value}';", 'settings = Settings({lower}="{value}", retries=2)',
               'export {name}="{value}"', '{name}: str = "{value}"')  # fmt: skip
_OUT_NAMED = ("{name}={value}", "environ({{'HOME': '/root', '{name}': '{value}', 'LANG': 'C'}})",
              '{{"region": "eu-1", "{lower}": "{value}"}}', "{lower}: {value}",
              "PATH=/usr/bin\nHOME=/root\n{name}={value}\nLANG=C.UTF-8")  # fmt: skip
_CODE_ALONE = (
    'client = Client("{value}")',
    "run('{value}')  # do not commit",
    "# key: {value}",
    'f"{{url}}?k={value}"',
)
_OUT_ALONE = ("{value}", "using {value} for the next call", "['{value}', 200]", "token accepted: {value}.")
_RAISED = ("AuthenticationError: Incorrect API key provided: {value}. Check it.", "403 for {value}")
_HEADERS = ("headers = {{'Authorization': 'Bearer {value}'}}", "curl -H 'Authorization: Bearer {value}' https://api.x/v1",
            "> Authorization: Bearer {value}")  # fmt: skip

Put = Callable[[dict[str, Any], str], None]


def seed(lines: Sequence[bytes], count: int, random: Random) -> tuple[list[bytes], list[Seed]]:
    """`count` secrets, and half as many look-alikes, put into `lines` (envelopes, a line each), one in a record.

    Records that have no execution (timeouts) are left alone. Returns all lines, and which secret was put where.
    """
    out = list(lines)
    seeds: list[Seed] = []
    similar = 0
    for place in random.sample(range(len(out)), len(out)):
        if len(seeds) == count and similar >= count // 2:
            break
        record = json.loads(out[place])
        if not isinstance(record.get("execution"), dict) or not isinstance(record["execution"].get("logs"), str):
            continue
        if len(seeds) < count:
            kind, value, text, put = _choose(random, len(seeds))
            put(record, text)
            seeds.append(Seed(record["execution_id"], kind, value))
        else:
            text = filled(LOOKALIKES[similar % len(LOOKALIKES)], random).replace("{{", "{").replace("}}", "}")
            random.choice((_to_code, _to_stdout, _to_result))(record, text)
            similar += 1
        out[place] = json.dumps(record).encode()
    return out, seeds


def _choose(random: Random, number: int) -> tuple[str, str, str, Put]:
    """(kind, value, text that holds it, where it goes). Sorts take turns, so that each provider comes up."""
    name, template, whole = _TURNS[number % len(_TURNS)]
    if whole != "%s":
        value = filled(template, random)
        form, put = random.choice((('DATABASE_URL = "%s"', _to_code), ("DATABASE_URL=%s", _to_stdout)))
        return name, value, form % (whole % value), put
    if name == "JWT":
        value = json_web_token(random)
    elif name == "PRIVATE_KEY":
        value = private_key(random)
        return name, value, value, random.choice((_to_chunks, _to_result, _to_code_block))
    else:
        value = filled(template, random)
    forms: Sequence[str]
    names = {"name": name, "lower": name.lower(), "value": value}
    if name in NAMED:
        put = random.choice((_to_code, _to_stdout, _to_chunks, _to_traceback))
        forms = _CODE_NAMED if put is _to_code else _OUT_NAMED
        return name, value, random.choice(forms).format(**names), put
    put = random.choice((_to_code, _to_stdout, _to_chunks, _to_result, _to_traceback, _to_task))
    if put is _to_code:
        forms = (*_CODE_NAMED, *_CODE_ALONE, *_HEADERS[:2])
    elif put is _to_traceback:
        forms = _RAISED
    else:
        forms = (*_OUT_NAMED, *_OUT_ALONE, _HEADERS[2])
    return name, value, random.choice(forms).format(**names), put


_TURNS: tuple[tuple[str, str, str], ...] = (
    *((name, shape, "%s") for kinds in (SHAPED, NAMED) for name, shapes in kinds.items() for shape in shapes),
    *_PARTS,
    ("JWT", "", "%s"),
    ("PRIVATE_KEY", "", "%s"),
)


def _logs(record: dict[str, Any]) -> dict[str, Any]:
    logs: dict[str, Any] = json.loads(record["execution"]["logs"])
    return logs


def _to_code(record: dict[str, Any], text: str) -> None:
    record["code"] = f"{text}\n{record['code']}"


def _to_code_block(record: dict[str, Any], text: str) -> None:
    record["code"] = f'{record["code"]}\npem = """{text}"""'


def _to_stdout(record: dict[str, Any], text: str) -> None:
    logs = _logs(record)
    logs["stdout"] = [*logs["stdout"], "\n", f"{text}\n"]
    record["execution"]["logs"] = json.dumps(logs)


def _to_chunks(record: dict[str, Any], text: str) -> None:
    """As the kernel may flush it: cut in the middle of the secret."""
    logs, middle = _logs(record), len(text) * 2 // 3
    logs["stdout"] = [*logs["stdout"], "\n", text[:middle], text[middle:], "\n"]
    record["execution"]["logs"] = json.dumps(logs)


def _to_result(record: dict[str, Any], text: str) -> None:
    record["execution"]["results"] = [*record["execution"]["results"], {"text": text}]


def _to_traceback(record: dict[str, Any], text: str) -> None:
    colour, plain = "\x1b[31m", "\x1b[0m"
    error = {"name": "RuntimeError", "value": text, "traceback": f"{colour}RuntimeError{plain}: {text}"}
    record["execution"]["error"] = json.dumps(error)


def _to_task(record: dict[str, Any], text: str) -> None:
    record["task"] = f"Fetch the report.\n{text}\nand sum the second column."
