"""Keys of services, found by the forms that their vendors give them.

The detectors of the package detect-secrets come first, then forms that it does not have, then a
random value where a service or a variable is named. None of them asks a service.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator

from culmen.core.errors import missing_extra

Span = tuple[int, int]

# detectors of it that are left out: rules of our own find more (logins, addresses, private keys),
# or the pattern takes quadratic time on a long line (npm)
_NOT_USED = ("BasicAuthDetector", "IPPublicDetector", "PrivateKeyDetector", "NpmDetector")
_WINDOW, _OVERLAP = 4_000, 1_000  # characters that their patterns see at once

# beginnings that no word has: what follows is the key
_BEGINNINGS = (
    r"sk-(?:ant-|proj-|or-|svcacct-|admin-)?[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}"
    r"|gl[a-z]{1,6}-[\w-]{16,}|xox[abeoprs][.-][\w.-]{10,}|xapp-[\w-]{10,}"
    r"|(?:AKIA|ASIA|AGPA|AIDA|AROA|ABIA|ACCA|LTAI)[A-Za-z0-9]{16,}|AIza[\w-]{20,}|ya29\.[\w.-]{20,}"
    r"|GOCSPX-[\w-]{20,}|hf_\w{20,}|api_org_\w{20,}|npm_\w{20,}|pypi-[\w-]{16,}"
    r"|[spr]k_(?:live|test|prod)_\w{10,}|whsec_\w{16,}|SG\.[\w-]{16,}\.[\w-]{16,}|do[por]_v1_\w{32,}"
    r"|gsk_\w{20,}|xai-\w{20,}|r8_\w{20,}|nvapi-[\w-]{20,}|hv[bs]\.[\w-]{20,}|dckr_[a-z]{3}_[\w-]{20,}"
    r"|shp(?:at|ss|ca|pa)_\w{20,}|lin_(?:api|oauth)_\w{20,}|tvly-[\w-]{16,}|AGE-SECRET-KEY-\w{20,}"
    r"|pplx-\w{20,}|tskey-[a-z]+-[\w-]{20,}|fw_[A-Za-z0-9]{20,}|csk-\w{20,}|tgp_v1_[\w-]{20,}|lsv2_[a-z]{2}_\w{20,}"
    r"|dapi[a-f0-9]{32}(?:-\d)?|dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{20,}|sb[pv]_\w{20,}"
    r"|sb_(?:secret|publishable)_[\w-]{16,}|NR(?:AK|JS|II|RA|SP)-[\w-]{16,}|\w{24,40}NRAL"
    r"|(?:pub)?key-[a-f0-9]{32}|[sptk]{2}\.eyJ[\w.-]{20,}|(?:SK|AC)[a-f0-9]{32}"
    r"|dt0[a-z]\d\d\.[\w-]{20,}\.[\w-]{20,}|EZ[AT]K\w{40,}|duffel_(?:test|live)_[\w=-]{20,}"
    r"|FLW(?:SECK|PUBK)(?:_TEST)?-[\w-]{12,}|fo1_[\w-]{30,}|fm[12][ar]?_[\w+/=]{40,}"
    r"|fio-u-[\w=-]{40,}|glc_[\w+/=]{30,}|glsa_\w{30,}|pat\.\w{16,}\.\w{16,}\.\w{16,}"
    r"|\w{14}\.atlasv1\.[\w=-]{40,}|ATATT3[\w=-]{40,}|ATCTT3[\w=-]{40,}|HRKU-[\w-]{30,}"
    r"|ico-\w{32}|ntn_\w{30,}|secret_[A-Za-z0-9]{40,}|API-[A-Z0-9]{20,}|sha256~[\w-]{40,}"
    r"|pscale_(?:tkn|oauth|pw)_[\w=.-]{20,}|PMAK-[\w-]{30,}|pn[ub]_\w{30,}|pul-[a-f0-9]{40}"
    r"|rdme_\w{40,}|rubygems_\w{40,}|tk-us-[\w-]{40,}|xkeysib-[\w-]{40,}|sntry[su]_[\w+/=]{30,}"
    r"|sm_[a-z]at_\w{16,}|shippo_(?:live|test)_\w{30,}|sgp_\w{30,}|(?:EAAA|sq0[a-z]{3}-)[\w-]{22,}"
    r"|EAA[A-Z]\w{60,}|tfp_[\w=.-]{40,}|AQVN[\w-]{30,}|YC[\w-]{38}|t1\.[\w=-]{10,}\.[\w=-]{60,}"
    r"|A3-[A-Z0-9]{6}-[A-Z0-9-]{20,}|ops_eyJ[\w+/=]{40,}|p8e-\w{32}|AKCp\w{60,}|cmVmd\w{50,}"
    r"|CLOJARS_\w{40,}|v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}|\w{6}_\w{29}_mmk|4b1d\w{38}"
    r"|dnkey-[\w=-]{40,}|s-s4t2(?:ud|af)-\w{40,}|sl\.[\w=-]{60,}|access-(?:sandbox|development"
    r"|production)-[a-f0-9-]{36}|(?:live|test)_(?:pub_)?[a-f0-9]{31,}|b_[\w=-]{44}|00[\w=-]{40}"
    r"|\d{15,25}-[A-Za-z0-9]{20,40}|\w{3}\dQ~[\w~.-]{31,}|s\.[A-Za-z0-9]{24}|A{22}[\w%]{60,}"
    r"|\d{8,16}:A[\w-]{34}|[a-f0-9]{32}-us\d{1,2}|[a-h0-9]{32}-[a-h0-9]{8}-[a-h0-9]{8}"
    r"|\d{15,16}\|[\w-]{27,40}|(?:s[ck]|ext|scauth|authress)_\w{5,30}\.\w{4,6}\.acc[_-][\w.+/=-]{30,}"
    r"|0x[0-9a-fA-F]{64}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
_VENDOR_FORMS = re.compile(rf"(?<![A-Za-z0-9])(?:{_BEGINNINGS})")
_WEBHOOKS = re.compile(
    r"(?:slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/"
    r"|webhook\.office\.com/webhookb2/|chat\.googleapis\.com/v1/spaces/"
    r"|logic\.azure\.com[^\s\"'<>]*?/workflows/)(?P<cut>[^\s\"'<>\[\]]+)"
)
# services whose keys are random letters or hexadecimal digits without a beginning
_SERVICES = (
    "adafruit|adobe|airtable|algolia|alibaba|aliyun|amplitude|asana|assemblyai|atlassian|auth0|azure"
    "|beamer|bitbucket|bittrex|bugsnag|circleci|clearbit|cloudflare|codecov|cohere|coinbase"
    "|confluence|confluent|contentful|datadog|deepgram|deepl|digitalocean|discord|droneci|dropbox"
    "|elevenlabs|etsy|facebook|fastly|figma|finicity|finnhub|firebase|flickr|freshbooks|freshdesk"
    "|gemini|gitter|gocardless|heroku|honeycomb|hubspot|intercom|jfrog|artifactory|jira|kraken"
    "|kucoin|launchdarkly|linear|linked[_-]?in|lob|logdna|mailchimp|mailgun|mapbox|mattermost|meraki"
    "|message[_-]?bird|mistral|mixpanel|netlify|new[_-]?relic|nytimes|okta|openai|opsgenie|pagerduty"
    "|pinecone|plaid|plivo|postmark|posthog|private[_-]?ai|pusher|rapidapi|razorpay|reddit|rollbar"
    "|salesforce|segment|sendbird|sendgrid|sentry|shodan|snyk|sonar|spotify|squarespace|stripe"
    "|sumo(?:logic)?|telegram|tencent|travis|trello|twilio|twitch|twitter|typeform|vercel|voyage"
    "|wakatime|yandex|zendesk|zoom"
)
_ASSIGNED = r"[\"'`\]]{0,2}\s{0,3}(?:=>|:=|[=:])\s{0,3}\\*[\"'`]?"
_AT_A_SERVICE = re.compile(
    rf"(?i)(?<![a-z])(?:{_SERVICES})(?![a-z])[\w.-]{{0,40}}{_ASSIGNED}(?P<cut>[\w=+/.~-]{{14,}})"
)
# a variable of the shell: what it holds is a path, a word, a number, or random
_EXPORTED = re.compile(
    r"(?:\bexport\s+|\bset(?:x|env)?\s+|\bENV\s+|\bARG\s+|(?:^|(?<=\s))-e\s+|\$env:)"
    r"[A-Za-z_]\w*(?:\s*=\s*|\s+)\\*[\"']?(?P<cut>[\w+/.~=-]{12,})"
)
_RANDOM_VALUE = re.compile(rf"(?<![\w-])[\w-]{{2,60}}{_ASSIGNED}(?P<cut>[\w+/~=-]{{20,}})")
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX = re.compile(r"(?:0[xb])?(?:[0-9a-f]+|[0-9A-F]+)")


@functools.cache
def _detectors() -> tuple[re.Pattern[str], ...]:
    """The patterns of detect-secrets."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.plugins.base import RegexBasedDetector
    except ImportError:
        raise missing_extra("culmen skill", "detect-secrets", "skills") from None
    classes = [
        each
        for each in get_mapping_from_secret_type_to_class().values()
        if issubclass(each, RegexBasedDetector) and each.__name__ not in _NOT_USED
    ]
    return tuple(pattern for each in classes for pattern in each.denylist)  # type: ignore[attr-defined]


def require_detectors() -> None:
    """Raise UserError if the package of detectors is not installed."""
    _detectors()


def find_keys(text: str) -> Iterator[Span]:
    """Spans of keys in a text, in no order; they may overlap."""
    for offset in range(0, max(len(text), 1), _WINDOW - _OVERLAP):
        window = text[offset : offset + _WINDOW]
        for pattern in _detectors():
            for found in pattern.finditer(window):
                start, end = _value_span(found)
                if any(map(str.isdigit, window[start:end])):
                    yield start + offset, end + offset
    for pattern in (_VENDOR_FORMS, _WEBHOOKS):
        for found in pattern.finditer(text):
            value = found[0]
            digest = is_hex(value) and not value.startswith("0x")
            if any(map(str.isdigit, value)) and not digest:
                yield found.span("cut" if pattern.groups else 0)
    yield from _find_assigned(text)


def _value_span(found: re.Match[str]) -> Span:
    """The last group of a match if it is long enough for a key, the whole match otherwise."""
    last = found.lastindex or 0
    group = last if len(found[last] or "") >= 16 else 0
    start, end = found.span(group)
    value = found.string[start:end]
    around = " \t\"'`=:"
    return start + len(value) - len(value.lstrip(around)), start + len(value.rstrip(around))


def _find_assigned(text: str) -> Iterator[Span]:
    for found in _AT_A_SERVICE.finditer(text):
        value = found["cut"]
        if is_mixed(value) or _UUID.search(value) or is_hex(value):
            yield found.span("cut")
    for pattern in (_EXPORTED, _RANDOM_VALUE):
        for found in pattern.finditer(text):
            if looks_random(found["cut"]) and not is_hex(found["cut"]):
                yield found.span("cut")


def is_hex(value: str) -> bool:
    """True if a value is hexadecimal digits alone, as digests are, or a UUID."""
    return _HEX.fullmatch(value) is not None or _UUID.fullmatch(value) is not None


def is_mixed(value: str) -> bool:
    """True if letters and digits follow one another more often than in a word or a number."""
    run = _longest_run(value)
    if len(run) < 12 or sum(map(str.isdigit, run)) < 2 or entropy(run) < 3.0:
        return False
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in run]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    # of random letters .4 (one case) to .6 (both) are beside one of another kind, in words .1
    return changes >= 0.25 * (len(run) - 1)


def looks_random(value: str) -> bool:
    """True if a value is mixed and no name of several words, as `sizeEndCentDir64Locator`."""
    return is_mixed(value) and (
        len(re.findall(r"\d+", _longest_run(value))) >= 3 or not has_words(value)
    )


def has_words(value: str) -> bool:
    """True if half of a value's letters and digits are words of four letters or more."""
    words = sum(map(len, re.findall(r"[A-Z][a-z]{3,}|[a-z]{4,}|[A-Z]{4,}", value)))
    return 2 * words >= sum(map(str.isalnum, value))


def _longest_run(value: str) -> str:
    return max(re.split(r"[^A-Za-z0-9]+", value), key=len)


def entropy(text: str) -> float:
    """Bits a character, of the text's own frequencies."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
