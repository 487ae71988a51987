"""Key formats of providers that detect-secrets 1.5 lacks or matches only in part, as each provider documents them.

(kind, anchors, expression): a text must hold one of the anchors before the expression is tried. Lengths are a little
wider than documented: keys are pasted with a character too few or too many, and half a key in a log is a leak too.
"""

import base64
import binascii
import json

from capibara_assets.executions.secrets.characters import entropy, has_digit

Shape = tuple[str, tuple[str, ...], str]

PROVIDER_SHAPES: tuple[Shape, ...] = (
    # E2B: e2b_ and 40 hex digits; a digit short or long is a badly pasted key, not another thing
    ("E2B_API_KEY", ("e2b_",), r"e2b_[0-9a-f]{32,48}"),
    ("E2B_ACCESS_TOKEN", ("sk_e2b_",), r"sk_e2b_[0-9a-f]{32,48}"),
    # model vendors and what agents are built with
    ("ANTHROPIC_API_KEY", ("sk-ant-",), r"sk-ant-[a-z]{2,12}\d{2}-[A-Za-z0-9_-]{20,}"),
    ("OPENAI_API_KEY", ("sk-proj-", "sk-svcacct-", "sk-admin-"), r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}"),
    ("OPENAI_API_KEY", ("T3BlbkFJ",), r"sk-[A-Za-z0-9_-]{0,200}T3BlbkFJ[A-Za-z0-9_-]{16,}"),
    ("OPENROUTER_API_KEY", ("sk-or-",), r"sk-or-v1-[0-9a-f]{56,66}"),
    ("LANGFUSE_KEY", ("k-lf-",), r"[sp]k-lf-[0-9a-f]{8}-[0-9a-f-]{20,32}"),
    ("OPENAI_API_KEY", ("sk-",), r"sk-[A-Za-z0-9]{46,52}"),
    ("DEEPSEEK_API_KEY", ("sk-",), r"sk-[0-9a-f]{30,34}"),
    ("HF_TOKEN", ("hf_", "api_org_"), r"(?:hf|api_org)_[A-Za-z0-9]{32,38}"),
    ("GOOGLE_API_KEY", ("AIza",), r"AIza[A-Za-z0-9_-]{33,37}"),
    ("GROQ_API_KEY", ("gsk_",), r"gsk_[A-Za-z0-9]{48,56}"),
    ("XAI_API_KEY", ("xai-",), r"xai-[A-Za-z0-9]{70,90}"),
    ("NVIDIA_API_KEY", ("nvapi-",), r"nvapi-[A-Za-z0-9_-]{60,72}"),
    ("REPLICATE_API_TOKEN", ("r8_",), r"r8_[A-Za-z0-9]{35,42}"),
    ("PERPLEXITY_API_KEY", ("pplx-",), r"pplx-[A-Za-z0-9]{40,60}"),
    ("FIREWORKS_API_KEY", ("fw_",), r"fw_[A-Za-z0-9]{22,30}"),
    ("CEREBRAS_API_KEY", ("csk-",), r"csk-[a-z0-9]{44,52}"),
    ("TOGETHER_API_KEY", ("tgp_v1_",), r"tgp_v1_[A-Za-z0-9_-]{40,46}"),
    ("VOYAGE_API_KEY", ("pa-",), r"pa-[A-Za-z0-9_-]{42,46}"),
    ("JINA_API_KEY", ("jina_",), r"jina_[A-Za-z0-9_-]{40,70}"),
    ("FIRECRAWL_API_KEY", ("fc-",), r"fc-[0-9a-f]{30,34}"),
    ("LLAMACLOUD_API_KEY", ("llx-",), r"llx-[A-Za-z0-9]{40,56}"),
    ("ELEVENLABS_API_KEY", ("sk_",), r"sk_[0-9a-f]{46,50}"),
    ("MODAL_TOKEN", ("ak-", "as-"), r"a[ks]-[A-Za-z0-9]{22}(?![A-Za-z0-9])"),
    ("PINECONE_API_KEY", ("pcsk_",), r"pcsk_[A-Za-z0-9_]{40,}"),
    ("LANGSMITH_API_KEY", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("TAVILY_API_KEY", ("tvly-",), r"tvly-[A-Za-z0-9-]{28,}"),
    ("APIFY_TOKEN", ("apify_api_",), r"apify_api_[A-Za-z0-9]{34,38}"),
    ("DAYTONA_API_KEY", ("dtn_",), r"dtn_[a-f0-9]{60,68}"),
    # clouds
    ("AWS_SESSION_TOKEN", ("FwoG", "IQoJ"), r"(?:FwoG|IQoJ)[A-Za-z0-9+/=]{100,}"),
    ("AWS_BEDROCK_KEY", ("ABSK",), r"ABSK[A-Za-z0-9+/]{100,}={0,2}"),
    ("GOOGLE_OAUTH", ("GOCSPX-", "ya29.", "1//0"),
     r"GOCSPX-[A-Za-z0-9_-]{20,}|ya29\.(?:[A-Za-z0-9]{1,4}\.)?[A-Za-z0-9_-]{20,}|1//0[A-Za-z0-9_-]{40,}"),
    ("AZURE_CLIENT_SECRET", ("Q~",), r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{30,35}"),
    ("AZURE_ACCESS_KEY", ("SharedAccessKey=",), r"(?<=SharedAccessKey=)[A-Za-z0-9+/]{42,44}={0,2}"),
    ("AZURE_SAS", ("sig=",), r"(?<=[?&]sig=)[A-Za-z0-9%+/]{43,70}(?:%3D|=)"),
    ("ALIBABA_ACCESS_KEY", ("LTAI",), r"LTAI[A-Za-z0-9]{16,24}"),
    ("TENCENT_SECRET_ID", ("AKID",), r"AKID[A-Za-z0-9]{30,36}"),
    ("DIGITALOCEAN_TOKEN", ("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[a-f0-9]{60,66}"),
    ("DATABRICKS_TOKEN", ("dapi",), r"dapi[a-f0-9]{30,34}(?:-\d)?"),
    ("HEROKU_API_KEY", ("HRKU-",), r"HRKU-[A-Za-z0-9_-]{36,64}"),
    ("FLY_TOKEN", ("fo1_", "fm1", "fm2_"), r"(?:fo1_[A-Za-z0-9_-]{40,46}|fm[12][ar]?_[A-Za-z0-9+/]{100,}={0,3})"),
    ("SUPABASE_TOKEN", ("sbp_", "sb_secret_"), r"(?:sbp_[a-f0-9]{38,42}|sb_secret_[A-Za-z0-9_-]{20,})"),
    ("PLANETSCALE_TOKEN", ("pscale_",), r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,64}"),
    ("NEON_API_KEY", ("napi_",), r"napi_[a-z0-9]{60,68}"),
    ("TERRAFORM_TOKEN", (".atlasv1.",), r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,70}"),
    ("PULUMI_TOKEN", ("pul-",), r"pul-[0-9a-f]{38,42}"),
    ("VAULT_TOKEN", ("hvs.", "hvb."), r"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    ("DOPPLER_TOKEN", ("dp.",), r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    ("ONEPASSWORD_TOKEN", ("ops_eyJ",), r"ops_eyJ[A-Za-z0-9+/]{100,}={0,3}"),
    ("AGE_SECRET_KEY", ("AGE-SECRET-KEY-",), r"AGE-SECRET-KEY-(?:[A-Z]{1,8}-)?1[0-9A-Za-z]{30,70}"),
    ("SUI_KEY", ("suiprivkey1",), r"suiprivkey1[02-9ac-hj-np-z]{50,66}"),
    # code hosts and registries
    ("GITHUB_TOKEN", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    ("GITHUB_TOKEN", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{34,38}"),
    ("BITBUCKET_TOKEN", ("ATBB",), r"ATBB[A-Za-z0-9]{30,34}"),
    ("ATLASSIAN_TOKEN", ("ATATT3", "ATCTT3"), r"AT[AC]TT3[A-Za-z0-9_=-]{60,}"),
    ("NPM_TOKEN", ("npm_",), r"npm_[A-Za-z0-9]{34,38}"),
    ("NPM_TOKEN", (":_authToken=",), r"(?<=:_authToken=)[^\s\"']{8,}"),
    ("NUGET_KEY", ("oy2",), r"oy2[a-z0-9]{43}(?![A-Za-z0-9])"),
    ("RUBYGEMS_KEY", ("rubygems_",), r"rubygems_[0-9a-f]{46,50}"),
    ("CRATES_TOKEN", ("cio",), r"cio[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("ARTIFACTORY_TOKEN", ("AKC",), r"AKC[A-Za-z0-9]{30,}"),
    ("DOCKER_TOKEN", ("dckr_",), r"dckr_[a-z]{3,4}_[A-Za-z0-9_-]{25,}"),
    # services
    ("SLACK_TOKEN", ("xox", "xapp-"), r"(?:xox[abcdeporst]|xapp)-[A-Za-z0-9][A-Za-z0-9-]{18,}"),
    ("DISCORD_WEBHOOK", ("discord",), r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[A-Za-z0-9_-]{40,}"),
    ("STRIPE_KEY", ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"),
     r"(?:[rs]k_(?:live|test)_[0-9a-zA-Z]{16,}|whsec_[A-Za-z0-9+/=]{24,})"),
    ("SQUARE_TOKEN", ("EAAA", "sq0atp-"), r"(?:EAAA[A-Za-z0-9_-]{58,62}|sq0atp-[A-Za-z0-9_-]{20,24})"),
    ("SHOPIFY_TOKEN", ("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{30,34}"),
    ("LINEAR_API_KEY", ("lin_api_",), r"lin_api_[A-Za-z0-9]{38,42}"),
    ("NOTION_TOKEN", ("ntn_", "secret_"), r"(?:ntn_|secret_)[A-Za-z0-9]{42,50}"),
    ("AIRTABLE_TOKEN", ("pat",), r"pat[A-Za-z0-9]{14}\.[0-9a-f]{60,66}"),
    ("HUBSPOT_TOKEN", ("pat-",), r"pat-(?:na|eu)\d-[0-9a-f]{8}-[0-9a-f-]{24,28}"),
    ("FIGMA_TOKEN", ("figd_",), r"figd_[A-Za-z0-9_-]{38,44}"),
    ("POSTMAN_KEY", ("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{32,36}"),
    ("GRAFANA_TOKEN", ("glsa_", "glc_"), r"(?:glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|glc_[A-Za-z0-9+/]{32,}={0,3})"),
    ("NEWRELIC_KEY", ("NRAK-",), r"NRAK-[A-Z0-9]{26,28}"),
    ("SENTRY_TOKEN", ("sntrys_", "sntryu_"), r"sntry(?:s_eyJ[A-Za-z0-9+/=_]{60,}|u_[0-9a-f]{62,66})"),
    ("MAILGUN_KEY", ("key-",), r"key-[0-9a-f]{31,33}(?![A-Za-z0-9])"),
    ("BREVO_KEY", ("xkeysib-",), r"xkeysib-[0-9a-f]{62,66}-[A-Za-z0-9]{16}"),
    ("RESEND_KEY", ("re_",), r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{23,25}(?![A-Za-z0-9])"),
    ("TWITTER_BEARER", ("AAAAAAAAAAAAAAAAAAAAA",), r"A{21,22}[A-Za-z0-9%]{60,120}"),
    ("FACEBOOK_TOKEN", ("EAA",), r"EAA[A-Za-z0-9]{100,}"),
    ("DROPBOX_TOKEN", ("sl.",), r"sl\.[A-Za-z0-9_-]{100,}"),
    ("ONEPASSWORD_SECRET_KEY", ("A3-",),
     r"A3-[A-Z0-9]{6}-[A-Z0-9]{5,6}-?[A-Z0-9]{5,6}-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}"),
    ("ADOBE_CLIENT_SECRET", ("p8e-",), r"p8e-[A-Za-z0-9_-]{30,34}"),
    ("ARTIFACTORY_TOKEN", ("cmVmd",), r"cmVmd[A-Za-z0-9]{56,64}"),
    ("CLICKHOUSE_KEY", ("4b1d",), r"4b1d[A-Za-z0-9]{38}"),
    ("CLOJARS_TOKEN", ("CLOJARS_",), r"CLOJARS_[A-Za-z0-9]{58,62}"),
    ("CLOUDFLARE_KEY", ("v1.0-",), r"v1\.0-[a-f0-9]{24}-[a-f0-9]{140,150}"),
    ("CONTENTFUL_TOKEN", ("CFPAT-",), r"CFPAT-[A-Za-z0-9_-]{40,46}"),
    ("DEFINED_NETWORKING_TOKEN", ("dnkey-",), r"dnkey-[A-Za-z0-9=_-]{26}-[A-Za-z0-9=_-]{50,54}"),
    ("DUFFEL_TOKEN", ("duffel_",), r"duffel_(?:test|live)_[A-Za-z0-9_=-]{41,45}"),
    ("DYNATRACE_TOKEN", ("dt0c01.",), r"dt0c01\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{62,66}"),
    ("EASYPOST_TOKEN", ("EZAK", "EZTK"), r"EZ[AT]K[A-Za-z0-9]{52,56}"),
    ("FLUTTERWAVE_KEY", ("FLWSECK",), r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,32}(?:-X)?"),
    ("FRAMEIO_TOKEN", ("fio-u-",), r"fio-u-[A-Za-z0-9_=-]{62,66}"),
    ("GITLAB_TOKEN", ("glffct-", "_gitlab_session="), r"glffct-[A-Za-z0-9_-]{18,22}|(?<=_gitlab_session=)[0-9a-z]{32}"),
    ("GITLAB_TOKEN", ("glpat-", "glrt-"), r"gl(?:pa|r)t-[A-Za-z0-9_-]{20,300}(?:\.[A-Za-z0-9]{2,9}){1,2}"),
    ("GRAFANA_TOKEN", ("eyJrIjoi",), r"eyJrIjoi[A-Za-z0-9]{70,400}={0,3}"),
    ("HARNESS_KEY", ("pat.", "sat."), r"[ps]at\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    ("INFRACOST_TOKEN", ("ico-",), r"ico-[A-Za-z0-9]{30,34}"),
    ("INTRA42_SECRET", ("s-s4t2",), r"s-s4t2(?:ud|af)-[a-f0-9]{62,66}"),
    ("LOB_KEY", ("live_", "test_"), r"(?:live|test)_(?:pub_)?[a-f0-9]{31,36}"),
    ("MAILGUN_KEY", ("pubkey-",), r"pubkey-[a-f0-9]{30,34}"),
    ("MAPBOX_TOKEN", ("sk.eyJ", "pk.eyJ", "tk.eyJ"), r"[spt]k\.eyJ[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{20,}"),
    ("MAXMIND_KEY", ("_mmk",), r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    ("TEAMS_WEBHOOK", ("webhook.office.com",),
     r"https://[a-z0-9]+\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{60,}"),
    ("NEWRELIC_KEY", ("NRJS-", "NRII-"), r"NR(?:JS-[a-f0-9]{18,20}|II-[A-Za-z0-9_-]{30,34})"),
    ("OCTOPUS_KEY", ("API-",), r"API-[A-Z0-9]{26}(?![A-Za-z0-9])"),
    ("PLAID_TOKEN", ("access-",), r"access-(?:sandbox|development|production)-[0-9a-f]{8}-[0-9a-f-]{27}"),
    ("README_TOKEN", ("rdme_",), r"rdme_[a-z0-9]{68,72}"),
    ("SENDGRID_KEY", ("SG.",), r"SG\.[A-Za-z0-9=_.-]{64,68}"),
    ("SETTLEMINT_TOKEN", ("sm_aat_", "sm_pat_", "sm_sat_"), r"sm_[aps]at_[A-Za-z0-9]{15,18}"),
    ("SHIPPO_TOKEN", ("shippo_",), r"shippo_(?:live|test)_[a-fA-F0-9]{38,42}"),
    ("SLACK_TOKEN", ("xoxe.", "hooks.slack.com"),
     r"xoxe\.xox[bp]-\d-[A-Za-z0-9]{20,}|https://hooks\.slack\.com/(?:services|workflows|triggers)/"
     r"[A-Za-z0-9+/]{40,60}"),
    ("SOURCEGRAPH_TOKEN", ("sgp_",), r"sgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{38,42}"),
    ("TWILIO_KEY", ("SK",), r"SK[0-9a-fA-F]{32}(?![A-Za-z0-9])"),
    ("TYPEFORM_TOKEN", ("tfp_",), r"tfp_[A-Za-z0-9_.=-]{57,61}"),
    ("VAULT_TOKEN", ("s.",), r"s\.[A-Za-z0-9]{24}(?![A-Za-z0-9])"),
    ("YANDEX_KEY", ("AQVN", "t1.", "YC"),
     r"AQVN[A-Za-z0-9_-]{35,38}|t1\.[A-Z0-9a-z_-]+={0,2}\.[A-Z0-9a-z_-]{86}={0,2}|YC[A-Za-z0-9_-]{38}(?!"
     r"[A-Za-z0-9])"),
    ("K3S_TOKEN", ("K10",), r"K10[0-9a-f]{64}::[\w.-]+:[0-9A-Za-z.]{16,64}"),
    ("KUBEADM_TOKEN", ("--token",), r"(?<=--token[ =])[a-z0-9]{6}\.[a-z0-9]{16}(?![A-Za-z0-9.])"),
    ("SWARM_TOKEN", ("SWMTKN-",), r"SWMTKN-1-[0-9a-z]{48,52}-[0-9a-z]{24,26}"),
    ("TAILSCALE_KEY", ("tskey-",), r"tskey-(?:[a-z]+-)?[A-Za-z0-9]{8,20}(?:-[A-Za-z0-9]{16,48})?"),
    ("EXTENDED_KEY", ("xprv", "yprv", "zprv", "tprv"), r"[xyzt]prv[1-9A-HJ-NP-Za-km-z]{100,115}"),
    ("NOSTR_KEY", ("nsec1",), r"nsec1[02-9ac-hj-np-z]{56,60}"),
    ("FCM_KEY", (":APA91b",), r"AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{100,}"),
    ("PREFECT_KEY", ("pnu_", "pnb_"), r"pn[ub]_[A-Za-z0-9]{34,38}"),
)  # fmt: skip


def json_web_token(value: str) -> bool:
    """Whether a value is a JWT: its first part decodes to a JSON object with an algorithm or a type."""
    head = value.split(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, binascii.Error):
        return False
    return isinstance(header, dict) and bool({"alg", "typ", "enc"} & header.keys())


def hex_letters_and_digits(value: str) -> bool:
    """Whether the part behind a prefix of two characters mixes letters and digits, and not the same few."""
    return has_digit(value) and any(c.isalpha() for c in value[2:]) and entropy(value[2:]) > 2.5
