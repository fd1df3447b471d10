"""Secrets in mined sessions: planted kinds that are cut, false alarms in ordinary code.

    python bench/bench_secrets.py                          the planted kinds
    python bench/bench_secrets.py --code FOLDER ...        and false alarms in Python files

A kind is a form that a service gives its keys, a place where passwords stand, or personal data. The
forms are those that the detectors detect-secrets and gitleaks publish, written as templates: a
vendor's beginning, an alphabet, a length. Every value is drawn at random here.

found     kinds of which every trial was cut; a trial fails if twelve letters of its value are left
unjudged  kinds that are withheld until a person confirms them, and count as found
alarms    lines of code in which something is cut, a thousand lines, e-mail addresses apart
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import string
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from culmen.extensions.skills.mining.redaction import Redactor

TRIALS = 20
_LOWER, _DIGITS = string.ascii_lowercase, string.digits
_ALPHABETS = {
    "hex": _DIGITS + "abcdef",
    "HEX": _DIGITS + "ABCDEF",
    "low": _LOWER + _DIGITS,
    "UP": string.ascii_uppercase + _DIGITS,
    "B32": string.ascii_uppercase + "234567",
    "mix": string.ascii_letters + _DIGITS,
    "url": string.ascii_letters + _DIGITS + "_-",
    "b64": string.ascii_letters + _DIGITS + "+/",
    "dig": _DIGITS,
}
_UUID = "{hex8}-{hex4}-{hex4}-{hex4}-{hex12}"

# keys that are known by their form wherever they stand
KEYS = """
1password-secret A3-{UP:6}-{UP:11}-{UP:5}-{UP:5}-{UP:5}
1password-service ops_eyJ{b64:260}
adobe-secret p8e-{low:32}
age AGE-SECRET-KEY-1{B32:58}
alibaba-id LTAI{mix:20}
anthropic sk-ant-api03-{url:93}AA
anthropic-admin sk-ant-admin01-{url:93}AA
artifactory AKCp{mix:69}
artifactory-reference cmVmd{mix:59}
atlassian ATATT3{url:186}
authress sc_{low:10}.{low:5}.acc-{low:20}.{url:60}
aws-id AKIA{B32:16}
aws-session ASIA{B32:16}
azure-secret {mix:3}8Q~{mix:34}
clickhouse 4b1d{mix:38}
clojars CLOJARS_{low:60}
cloudflare-origin v1.0-{hex:24}-{hex:146}
databricks dapi{hex:32}
defined-networking dnkey-{low:26}-{low:52}
digitalocean dop_v1_{hex:64}
digitalocean-oauth doo_v1_{hex:64}
digitalocean-refresh dor_v1_{hex:64}
discord-bot M{mix:24}.{mix:6}.{url:27}
docker dckr_pat_{url:27}
doppler dp.pt.{mix:43}
doppler-service dp.st.{mix:43}
dropbox sl.{url:135}
duffel duffel_live_{url:43}
dynatrace dt0c01.{UP:24}.{UP:64}
easypost EZAK{mix:54}
easypost-test EZTK{mix:54}
facebook {dig:15}|{mix:27}
facebook-page EAAC{mix:120}
flutterwave FLWSECK_TEST-{hex:32}-X
fly fo1_{url:43}
fly-macaroon fm2_{b64:120}
frameio fio-u-{url:64}
github ghp_{mix:36}
github-app ghs_{mix:36}
github-fine github_pat_{mix:22}_{mix:59}
github-oauth gho_{mix:36}
github-refresh ghr_{mix:36}
gitlab glpat-{url:20}
gitlab-ci glcbt-{hex:2}_{url:20}
gitlab-deploy gldt-{url:20}
gitlab-feed glft-{url:20}
gitlab-mail glimt-{low:25}
gitlab-oauth gloas-{hex:64}
gitlab-runner glrt-{url:20}
gitlab-trigger glptt-{hex:40}
google AIza{url:35}
google-oauth ya29.{url:60}
google-client GOCSPX-{url:28}
grafana glsa_{mix:32}_{hex:8}
grafana-cloud glc_{b64:60}
groq gsk_{mix:52}
harness pat.{mix:22}.{hex:24}.{mix:20}
heroku HRKU-AA{url:58}
huggingface hf_{mix:34}
huggingface-organization api_org_{mix:34}
infracost ico-{mix:32}
jwt eyJ{url:30}.eyJ{url:60}.{url:43}
langsmith lsv2_pt_{hex:32}_{hex:10}
linear lin_api_{mix:40}
mailchimp {hex:32}-us19
mailgun key-{hex:32}
mailgun-public pubkey-{hex:32}
mailgun-signing {hex:32}-{hex:8}-{hex:8}
mapbox pk.eyJ{mix:60}.{mix:22}
mapbox-secret sk.eyJ{mix:60}.{mix:22}
maxmind {mix:6}_{mix:29}_mmk
new-relic NRAK-{UP:27}
new-relic-browser NRJS-{hex:19}
new-relic-insert NRII-{url:32}
new-relic-licence {hex:36}NRAL
notion ntn_{dig:11}{mix:35}
npm npm_{mix:36}
nvidia nvapi-{url:64}
octopus API-{UP:26}
openai sk-{mix:20}T3BlbkFJ{mix:20}
openai-project sk-proj-{url:74}T3BlbkFJ{url:74}
openrouter sk-or-v1-{hex:64}
openshift sha256~{url:43}
perplexity pplx-{mix:48}
plaid access-production-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}
planetscale pscale_tkn_{url:43}
planetscale-password pscale_pw_{url:43}
postman PMAK-{hex:24}-{hex:34}
prefect pnu_{mix:36}
pulumi pul-{hex:40}
pypi pypi-AgEIcHlwaS5vcmc{url:80}
readme rdme_{low:70}
replicate r8_{mix:37}
rubygems rubygems_{hex:48}
scalingo tk-us-{url:48}
sendgrid SG.{url:22}.{url:43}
sendinblue xkeysib-{hex:64}-{mix:16}
sentry-organisation sntrys_eyJ{b64:120}_{b64:43}
sentry-user sntryu_{hex:64}
settlemint sm_pat_{mix:16}
shippo shippo_live_{hex:40}
shopify shpat_{hex:32}
shopify-custom shpca_{hex:32}
shopify-private shppa_{hex:32}
shopify-shared shpss_{hex:32}
slack-app xapp-1-{UP:11}-{dig:13}-{hex:64}
slack-bot xoxb-{dig:12}-{dig:12}-{mix:24}
slack-config xoxe.xoxp-1-{UP:163}
slack-user xoxp-{dig:12}-{dig:12}-{dig:12}-{hex:32}
sourcegraph sgp_{hex:40}
square sq0atp-{url:22}
square-oauth sq0csp-{url:43}
square-token EAAA{url:60}
stripe sk_live_{mix:24}
stripe-restricted rk_live_{mix:24}
stripe-test sk_test_{mix:24}
stripe-webhook whsec_{mix:32}
supabase sbp_{hex:40}
supabase-secret sb_secret_{url:31}
tailscale tskey-auth-{mix:12}-{mix:32}
tavily tvly-{mix:32}
telegram {dig:10}:A{url:34}
terraform {mix:14}.atlasv1.{url:67}
together tgp_v1_{url:43}
twilio SK{hex:32}
twilio-account AC{hex:32}
twitter {dig:19}-{mix:40}
typeform tfp_{url:59}
vault hvs.{url:95}
vault-batch hvb.{url:140}
xai xai-{mix:80}
yandex AQVN{url:36}
yandex-cloud t1.{url:40}.{url:86}
ethereum 0x{hex:64}
slack-webhook https://hooks.slack.com/services/T{UP:8}/B{UP:8}/{mix:24}
discord-webhook https://discord.com/api/webhooks/{dig:18}/{url:68}
teams-webhook https://a.webhook.office.com/webhookb2/{hex:8}-{hex:4}-4{hex:3}-a{hex:3}-{hex:12}/IncomingWebhook/{hex:32}
"""
# keys without a form: the service is named beside them
NAMED = """
adafruit {low:32}
airtable {mix:17}
algolia {hex:32}
asana {low:32}
beamer b_{low:44}
bitbucket {mix:64}
bittrex {hex:32}
cloudflare {url:40}
codecov {hex:32}
cohere {mix:40}
coinbase {url:64}
confluent {b64:64}
contentful {url:43}
datadog {hex:40}
discord {hex:64}
droneci {low:32}
dropbox {low:15}
etsy {low:24}
fastly {url:32}
finicity {hex:32}
finnhub {low:20}
flickr {hex:32}
freshbooks {low:64}
heroku {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}
hubspot {HEX:8}-{HEX:4}-{HEX:4}-{HEX:4}-{HEX:12}
intercom {url:60}
jfrog {low:73}
jira {low:20}{hex:4}
kraken {b64:88}
kucoin {hex:24}
launchdarkly sdk-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}
linkedin {mix:16}
lob live_{hex:35}
mattermost {low:26}
meraki {hex:40}
messagebird {mix:25}
netlify {url:43}
nytimes {mix:32}
okta 00{url:40}
rapidapi {low:50}
sendbird {hex:40}
sentry {hex:64}
snyk {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}
sonar {hex:40}
squarespace {hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}
sumologic {mix:64}
travis {mix:22}
twitch {low:30}
zendesk {hex:40}
"""
# where a service's key stands, its name in capitals or small letters
_BESIDE = ("{N}_API_KEY={v}", '{n}_token: "{v}"', "export {N}={v}", '"{n}": "{v}"')
PASSWORD_WORDS = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "Passwort",
    "Kennwort",
    "contraseña",
    "contrasena",
    "senha",
    "parola",
    "wachtwoord",
    "lösenord",
    "adgangskode",
    "salasana",
    "hasło",
    "heslo",
    "jelszó",
    "şifre",
    "пароль",
    "密码",
    "密碼",
    "パスワード",
    "비밀번호",
]
# places of a password or token that is not random: {v} is a word with digits
PLACES = """
mot-de-passe mot de passe : {v}
spoken the password is {v}
login-url postgres://app:{v}@db.example.com/main
pgpass db.example.com:5432:main:app:{v}
pgpass-any *:*:*:app:{v}
netrc machine example.com login me password {v}
curl-user curl -u admin:{v} https://example.com
docker-login docker login -u me -p {v}
mysql mysql -uroot -p{v} main
sshpass sshpass -p {v} ssh host
sudo echo {v} | sudo -S ls
option deploy --password {v}
npmrc //registry.example.org/:_authToken={v}
header-auth curl -H 'X-Auth: {v}' https://example.com
header-auth-token curl -H "X-Auth-Token: {v}" https://example.com
header-bearer Authorization: Bearer {v}
header-basic Authorization: Basic {v}
cookie Cookie: session={v}
query https://example.com/a?access_token={v}&page=2
ini db_password = {v}
json {"client_secret": "{v}"}
yaml secret_key_base: {v}
"""
# a random value whose variable says nothing
EXPORTS = """
export export FOO={v}
export-quoted export FOO_BAR="{v}"
docker-env docker run -e FOO={v} image
dockerfile ENV FOO {v}
fish set -x FOO {v}
powershell $env:FOO = "{v}"
python foo = "{v}"
"""
TELEPHONES = """
france 06 {dig:2} {dig:2} {dig:2} {dig:2}
france-dots 01.{dig:2}.{dig:2}.{dig:2}.{dig:2}
france-abroad +33 6 {dig:2} {dig:2} {dig:2} {dig:2}
germany +49 30 {dig:7}
germany-slash 030/{dig:7}
britain +44 20 {dig:4} {dig:4}
america (555) {dig:3}-{dig:4}
america-dashes 555-{dig:3}-{dig:4}
italy +39 06 {dig:4} {dig:4}
spain +34 6{dig:2} {dig:3} {dig:3}
india +91 {dig:5} {dig:5}
japan +81 3 {dig:4} {dig:4}
zeros 0041 44 {dig:3} {dig:2} {dig:2}
"""
DEVICES = """
colons b8:{hex:2}:{hex:2}:{hex:2}:{hex:2}:{hex:2}
dashes B8-{HEX:2}-{HEX:2}-{HEX:2}-{HEX:2}-{HEX:2}
dots b8{hex:2}.{hex:4}.{hex:4}
"""
MAILS = """
plain {low:6}{dig:2}@example.org
plus {low:6}{dig:2}+news@mail.example.co.uk
quoted "{low:5} {low:5}{dig:2}"@example.org
"""
_WORDS = [
    "apple",
    "river",
    "stone",
    "cloud",
    "tiger",
    "maple",
    "ocean",
    "silver",
    "garden",
    "winter",
    "candle",
    "forest",
    "mirror",
    "planet",
    "puzzle",
    "rocket",
    "salmon",
    "tunnel",
    "velvet",
    "walnut",
    "yellow",
    "zebra",
    "anchor",
    "basket",
    "copper",
    "dragon",
    "ember",
    "fabric",
    "glacier",
    "harbor",
    "island",
    "jacket",
    "kitten",
    "ladder",
    "magnet",
    "needle",
    "orange",
    "pepper",
    "quartz",
    "ribbon",
]
_IBAN = {"DE": 18, "FR": 23, "GB": 18, "NL": 14, "ES": 20, "IT": 23, "CH": 17, "PL": 24}


def fill(template: str, dice: random.Random) -> str:
    """A template with random letters in the place of each `{alphabet:count}`."""

    def letters(found: re.Match[str]) -> str:
        made = [dice.choice(_ALPHABETS[found[1]]) for _ in range(int(found[2]))]
        if len(made) >= 12:  # a key of this length has digits
            made[3], made[7] = dice.choice("234567"), dice.choice("234567")
        return "".join(made)

    return re.sub(r"\{(\w+):(\d+)\}", letters, template)


def _rows(table: str) -> Iterator[tuple[str, str]]:
    for line in table.strip().splitlines():
        name, _, form = line.partition(" ")
        yield name, form


# a kind's maker returns the secret and the text that it stands in
Maker = Callable[[random.Random], tuple[str, str]]


def _key(form: str) -> Maker:
    def make(dice: random.Random) -> tuple[str, str]:
        key = fill(form, dice)
        return key, dice.choice(
            ("the output was {}", "{}", "export X={}", '"{}"', "a, {}, b")
        ).format(key)

    return make


def _beside(form: str, service: str) -> Maker:
    def make(dice: random.Random) -> tuple[str, str]:
        key = fill(form, dice)
        text = dice.choice(_BESIDE).replace("{N}", service.upper()).replace("{n}", service)
        return key, text.replace("{v}", key)

    return make


def _place(form: str, value: str) -> Maker:
    def make(dice: random.Random) -> tuple[str, str]:
        secret = fill(value, dice)
        return secret, form.replace("{v}", secret)

    return make


def _card(start: str, count: int, gap: str) -> Maker:
    def make(dice: random.Random) -> tuple[str, str]:
        digits = start + "".join(dice.choice(_DIGITS) for _ in range(count - len(start) - 1))
        total = 0
        for place, digit in enumerate(reversed(digits)):
            doubled = int(digit) * (2 if place % 2 == 0 else 1)
            total += doubled - 9 * (doubled > 9)
        digits += str(-total % 10)
        groups = [digits[i : i + 4] for i in range(0, count, 4)]
        if count == 15:
            groups = [digits[:4], digits[4:10], digits[10:]]
        shown = gap.join(groups)
        return shown, f"paid with {shown} today"

    return make


def _iban(country: str, count: int, gap: str) -> Maker:
    def make(dice: random.Random) -> tuple[str, str]:
        body = "".join(dice.choice(_DIGITS) for _ in range(count))
        number = int("".join(str(int(each, 36)) for each in f"{body}{country}00"))
        whole = f"{country}{98 - number % 97:02d}{body}"
        shown = gap.join(whole[i : i + 4] for i in range(0, len(whole), 4))
        return shown, f"send it to {shown}."

    return make


def _phrase(count: int, before: str) -> Maker:
    def make(dice: random.Random) -> tuple[str, str]:
        phrase = " ".join(dice.sample(_WORDS, count))
        return phrase, f"{before}{phrase}"

    return make


def _hidden(hide: Callable[[str], str]) -> Maker:
    def make(dice: random.Random) -> tuple[str, str]:
        key = fill("ghp_{mix:36}", dice)
        return key, hide(key)

    return make


def _wide(text: str) -> str:
    return "".join(chr(ord(each) + 0xFEE0) for each in text)


_HIDDEN: dict[str, Callable[[str], str]] = {
    "full-width letters": _wide,
    "JSON in JSON": lambda text: json.dumps(json.dumps({"token": text})),
    "escapes": lambda text: "".join(f"\\u{ord(each):04x}" for each in text),
    "URL": lambda text: "".join(f"%{ord(each):02X}" for each in text),
    "no width": "\u200b".join,
    "base64": lambda text: base64.b64encode(f"token={text}".encode()).decode(),
    "colours": lambda text: f"\x1b[31m{text}\x1b[0m",
}


def kinds() -> dict[str, Maker]:
    """Every planted kind with its maker."""
    word = "Winter{low:3}{dig:3}"
    found: dict[str, Maker] = {f"key: {name}": _key(form) for name, form in _rows(KEYS)}
    found |= {f"named: {name}": _beside(form, name) for name, form in _rows(NAMED)}
    found |= {f"word: {each}": _place(f"{each}: {{v}}", word) for each in PASSWORD_WORDS}
    found |= {f"place: {name}": _place(form, word) for name, form in _rows(PLACES)}
    found |= {f"variable: {name}": _place(form, "{mix:24}") for name, form in _rows(EXPORTS)}
    found |= {f"mail: {name}": _place("write to {v} now", form) for name, form in _rows(MAILS)}
    found |= {f"phone: {name}": _place("call {v} now", form) for name, form in _rows(TELEPHONES)}
    found |= {f"device: {name}": _place("link {v} up", form) for name, form in _rows(DEVICES)}
    found |= {f"iban: {name}": _iban(name, count, " ") for name, count in _IBAN.items()}
    found["iban: DE without gaps"] = _iban("DE", _IBAN["DE"], "")
    for name, start, count in (("visa", "4", 16), ("mastercard", "53", 16), ("amex", "37", 15)):
        for gap in ("", " ", "-"):
            found[f"card: {name} {gap!r}"] = _card(start, count, gap)
    for count in (12, 24):
        found[f"phrase: {count} announced"] = _phrase(count, "my seed phrase: ")
        found[f"phrase: {count} alone"] = _phrase(count, "")
    found["address: IPv4"] = _place("ping {v}", "203.0.113.1{dig:1}")
    found["address: IPv6"] = _place("ping {v}", "2001:db8::{hex:4}:a{hex:3}")
    found["user: home"] = _place("/home/{v}/work/notes.txt", "{low:8}{dig:1}")
    found["user: windows"] = _place("C:\\Users\\{v}\\x", "{low:8}{dig:1}")
    return found | {f"hidden: {name}": _hidden(hide) for name, hide in _HIDDEN.items()}


def is_left(secret: str, text: str) -> bool:
    """True if a text shows the secret, or twelve letters of its beginning or end."""
    plain = text.translate({0xFF01 + offset: 0x21 + offset for offset in range(94)})
    ends = (secret[-12:],) if len(secret) >= 24 else ()
    return secret in plain or any(end in plain for end in ends)


def measure_kinds(seed: int, trials: int = TRIALS) -> dict[str, tuple[int, int]]:
    """By kind the trials that were cut, and those of them that were withheld as unjudged."""
    dice = random.Random(seed)
    found: dict[str, tuple[int, int]] = {}
    for name, make in kinds().items():
        cut = withheld = 0
        for _ in range(trials):
            secret, text = make(dice)
            redactor = Redactor()
            left = is_left(secret, redactor.cut(text))
            cut += not left
            withheld += not left and set(redactor.counts) == {"unjudged"}
        found[name] = (cut, withheld)
    return found


def measure_code(files: Sequence[Path]) -> tuple[int, Counter[str], list[str]]:
    """Lines of Python files, lines in which something is cut by kind, and these lines."""
    lines, alarms, shown = 0, Counter[str](), []
    for file in files:
        try:
            with tokenize.open(file) as stream:
                text = stream.read()
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            lines += 1
            redactor = Redactor()
            redactor.cut(line)
            alarms.update(redactor.counts.keys())
            if redactor.counts.keys() - {"email"}:
                shown.append(f"{file.name}:{number}: {[*redactor.counts]} {line.strip()[:140]}")
    return lines, alarms, shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--code", type=Path, nargs="*", default=[], metavar="FOLDER")
    parser.add_argument("--show", action="store_true", help="print the lines with alarms")
    given = parser.parse_args(arguments)
    found = measure_kinds(given.seed, given.trials)
    held = [name for name, (cut, _) in found.items() if cut == given.trials]
    trials = sum(cut for cut, _ in found.values())
    withheld = [name for name, (_, unjudged) in found.items() if unjudged > given.trials / 2]
    print(
        f"found {len(held)} of {len(found)} kinds ({100 * len(held) / len(found):.1f} %), ", end=""
    )
    print(f"{trials} of {given.trials * len(found)} trials; unjudged: {len(withheld)} kinds")
    for name in found.keys() - set(held):
        print(f"  {name}: {found[name][0]} of {given.trials}")
    print(*(f"  unjudged: {name}" for name in withheld), sep="\n")
    for folder in given.code:
        lines, alarms, shown = measure_code(sorted(folder.rglob("*.py")))
        rate = 1000 * len(shown) / max(lines, 1)
        print(f"{folder.name}: {lines} lines, {rate:.2f} alarms a thousand, {dict(alarms)}")
        if given.show:
            print(*shown, sep="\n")


if __name__ == "__main__":
    main()
