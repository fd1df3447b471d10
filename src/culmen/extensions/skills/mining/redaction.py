"""Keys and personal data, found in texts and cut before anything is written or asked.

Each distinct secret becomes a placeholder of its kind, `[key-1]`, the same one wherever it stands.
Escapes of JSON and of URLs are resolved first, so that they hide nothing; a run of base64 is
decoded, and cut if there is a secret in it.

Not found: a password that no word, address or option announces, names and postal addresses, and a
secret that is broken over several lines (private keys apart).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from urllib.parse import unquote

_RANDOM = 32  # characters of a token that is cut wherever it stands
_PREFIXES = (
    r"sk-(?:ant-|proj-|or-|svcacct-)?[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}|(?:AKIA|ASIA|AGPA|AIDA)[A-Z0-9]{16}|AIza[\w-]{20,}"
    r"|ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,}|hf_\w{20,}|npm_\w{20,}|pypi-[\w-]{16,}"
    r"|[spr]k_(?:live|test)_\w{16,}|whsec_\w{16,}|SG\.[\w-]{16,}\.[\w-]{16,}|dop_v1_\w{32,}"
    r"|gsk_\w{20,}|xai-\w{20,}|r8_\w{20,}|nvapi-[\w-]{20,}|hvs\.[\w-]{20,}|dckr_pat_[\w-]{20,}"
    r"|shp(?:at|ss|ca|pa)_\w{20,}|lin_api_\w{20,}|tvly-[\w-]{16,}|AGE-SECRET-KEY-\w{20,}"
    r"|0x[0-9a-fA-F]{64}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
_SECRET_WORD = (
    r"(?:pass(?:word|wd|phrase)?|pwd|(?<=_)pat|\bsig|\"auth|secret|token|credentials?|cookie|session[_-]?id|signature"
    r"|api[_-]?key|access[_-]?key|private[_-]?key|signing[_-]?key|encryption[_-]?key|account[_-]?key"
    r"|auth[_-]?key|license[_-]?key|app[_-]?key|master[_-]?key|client[_-]?key|key)"
)
_QUOTE = r"\\*[\"'`]"
_VALUE = (
    rf"(?:{_QUOTE}(?P<quoted>[^\"'`\n\\]{{4,}})\\*[\"'`]"
    rf"|(?:{_QUOTE})?(?P<cut>[^\s\"'`<>,;&|)}}\]\\]{{4,}}))"
)
_NO_VALUES = re.compile(
    r"(?i)(?:none|null|true|false|undefined|required|missing|invalid|expired|string|str|int|bool"
    r"|bytes|self|error|failed|default|optional|your\W?.*|x+|\*+|\.+|\$.*|%.*|\{.*|\[.*|os\..*|process\.env.*"
    r"|.*\(.*|[\w.-]*_(?:key|token|secret|password)|[a-z]{1,15})"
)
_LOOSE = re.compile(r"(?i)pass|pwd|secret|credential|cookie")  # words whose values may be words
_COMMON_NAMES = re.compile(
    r"(?i)root|users?|runner|ubuntu|debian|admin|vscode|node|apps?|work|dev|test|shared|public"
    r"|default|guest|home|linuxbrew|me|you|(?:user)?name"
)
_RUN = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_TOKEN = re.compile(rf"(?<![\w/.+-])[A-Za-z0-9_+-]{{{_RANDOM},}}={{0,2}}(?![\w/])")
_HOME = re.compile(
    r"(?:(?<![\w.-])/home/|(?<![\w.-])/Users/|(?i:\b[a-z]:[\\/]+users[\\/]+|(?<!\w)-(?:home|users)-))"
    r"(?P<cut>[^\s/\\:\"'`<>()\[\]{},;|&*?=-]+(?:-(?!home-|users-)[^\s/\\:\"'`<>()\[\]{},;|&*?=-]+)*?)(?=[/\\\s:\"'`)\],;-]|$)"
)
_WHOLE = (
    (
        "private-key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
            r"(?:.*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|.*)",
            re.DOTALL,
        ),
    ),
    ("user", _HOME),
)
_ENCODED = re.compile(r"(?:%(?:[2-6][0-9a-fA-F]|7[0-9a-eA-E]))+")
_NO_WIDTH = re.compile(
    "[\u00ad\u200b-\u200f\u2060\ufeff]|" r"\\+u(?:200[b-fB-F]|2060|feff|FEFF|00ad|00AD)"
)
_COLOUR = re.compile(r"(?:\x1b|%1[bB]|\\+u001[bB]|\\+x1[bB]|\\+033)\[[0-9;]*[A-Za-z]")
_LINE_ENDS = re.compile(r"(\\+[nrtbf]|%0[9aAdD])")
RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("login", re.compile(r"\b[a-zA-Z][\w+.-]{0,30}://(?P<cut>[^\s/@\"'<>\[]*:[^\s/\"'<>\[]+)@")),
    ("login", re.compile(r"\bhttps?://(?P<cut>[^\s/@:\"'<>\[]{16,})@")),
    (
        "login",
        re.compile(
            r"\b(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?)(?:\+\w+)?://"
            r"(?P<cut>[^\s:@/\"'<>\[]*:[^\s@\"'<>\[]+)@"
        ),
    ),
    (
        "key",
        re.compile(
            r"\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)="
            r"(?P<cut>[^\s\"'$<>{}\[\]]{8,})"
            r"|\b(?i:x-[\w-]*(?:key|token|secret)):\s*(?P<header>[^\s\"'$<>{}\[\]]{6,})"
        ),
    ),
    (
        "secret",
        re.compile(
            r"(?i)\b(?:password|passwd|passphrase)\s*[:=]\s*([\"'])(?P<cut>[^\n\[]{4,120}?)\1"
        ),
    ),
    (
        "login",
        re.compile(
            r"(?:(?<=\s)-u\s*|--user[ =])[\"']?[\w.@-]+:(?P<cut>[^\s\"'<>\[]+)"
            r"|\b(?:docker|podman)\s+login\s(?:.*\s)?-p\s*(?P<option>[^\s\[]+)"
            r"|\becho\s+[\"']?(?P<piped>[^\s\"'\[]+)[\"']?\s*\|\s*sudo\s+-S"
            r"|:_auth=(?P<npm>[^\s\"'\[]+)"
        ),
    ),
    (
        "key",
        re.compile(
            r"(?i)\b(?:bearer|basic|(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:\w+\s+)?)"
            r"\s*(?P<cut>[\w.~+/-]{8,}=*)"
        ),
    ),
    ("key", re.compile(rf"(?<![A-Za-z0-9])(?:{_PREFIXES})")),
    (
        "key",
        re.compile(
            r"(?:slack\.com/services/|discord(?:app)?\.com/api/webhooks/)(?P<cut>[^\s\"'<>\[\]]+)"
        ),
    ),
    (
        "secret",
        re.compile(rf"(?i){_SECRET_WORD}[\w.-]{{0,40}}(?:{_QUOTE})?\s*(?::=|=>|[:=])\s*{_VALUE}"),
    ),
    ("secret", re.compile(rf"(?i)(?<!\w)--?[\w-]{{0,40}}{_SECRET_WORD}[\w-]{{0,40}}[ =]+{_VALUE}")),
    (
        "secret",
        re.compile(rf"(?i)\b{_SECRET_WORD}\s+(?:is|was|ist|to|of)?\s*:?\s*{_VALUE}"),
    ),
    (
        "secret",
        re.compile(rf"(?i)\b(?:sshpass\s+-p\s*|mysql\w*\s(?:.*\s)?-p(?=\S)){_VALUE}"),
    ),
    ("email", re.compile(r"(?<![\w.+-])(?!git@)[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b")),
    (
        "phone",
        re.compile(
            r"(?<![\w.+-])(?:\+\d{1,3}[ ./-]?(?:\(?\d{1,5}\)?[ ./-]?){2,5}\d{2,}"
            r"|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}|\(0\d{1,5}\)[ ]?\d{3,}(?:[ -]?\d{2,})*"
            r"|0\d{2,4}[ /-]\d{3,}(?:[ -]?\d{2,})*)(?![\w.-]*\w)"
        ),
    ),
    (
        "address",
        re.compile(
            r"(?<![\w.-])(?!127\.|0\.0\.0\.0|255\.)"
            r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.-]*\w)"
            r"|(?i:(?<![\w:])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:]))"
            r"|(?i:(?<![\w:])(?:[0-9a-f]{1,4}:){1,6}:(?:[0-9a-f]{1,4}:){0,6}[0-9a-f]{1,4}(?![\w:]))"
        ),
    ),
)


class Redactor:
    """Cuts secrets out of texts, and counts the distinct ones by kind."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[str, str], str] = {}
        self._names: set[str] = set()
        self._numbers: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """Number of distinct secrets that were cut, by kind."""
        return dict(sorted(self._numbers.items()))

    def learn_names(self, texts: Iterable[str]) -> None:
        """Note the users of home folders: their names are cut where they stand alone, too."""
        for text in texts:
            for found in _HOME.finditer(_resolve_escapes(text)):
                name = found["cut"]
                if not _COMMON_NAMES.fullmatch(name) and len(name) > 3 and not name.isdigit():
                    self._names.add(name)

    def cut(self, text: str) -> str:
        """The text without its secrets. Idempotent."""
        if not text:
            return text
        text = text.encode("utf-8", "replace").decode()  # half a pair of surrogates
        text = _resolve_escapes(text)
        for kind, pattern in _WHOLE:
            text = self._replace(kind, pattern, text)
        # behind an escaped line end a secret would seem to be the rest of a word
        text = "".join(map(self._cut_piece, _LINE_ENDS.split(text)))
        if self._names:
            names = "|".join(map(re.escape, sorted(self._names, key=len, reverse=True)))
            pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])", re.IGNORECASE)
            text = self._replace("user", pattern, text)
        return text

    def _cut_piece(self, text: str) -> str:
        text = _RUN.sub(lambda found: self._cut_encoded(found[0]), text)
        for kind, pattern in RULES:
            text = self._replace(kind, pattern, text)
        return _TOKEN.sub(lambda found: self._cut_random(found[0]), text)

    def _replace(self, kind: str, pattern: re.Pattern[str], text: str) -> str:
        def replace(found: re.Match[str]) -> str:
            groups = [name for name, value in found.groupdict().items() if value is not None]
            group = groups[0] if groups else 0
            value = found[group]
            if not _is_secret(kind, value, found[0]):
                return found[0]
            before, after = found.start(group) - found.start(), found.end(group) - found.start()
            return f"{found[0][:before]}{self._placeholder(kind, value)}{found[0][after:]}"

        return pattern.sub(replace, text)

    def _placeholder(self, kind: str, value: str) -> str:
        key = (kind, value.lower() if kind in ("email", "user") else value)
        if key not in self._placeholders:
            self._numbers[kind] += 1
            self._placeholders[key] = f"[{kind}-{self._numbers[kind]}]"
        return self._placeholders[key]

    def _cut_encoded(self, run: str) -> str:
        """The run of characters, or a placeholder if it is base64 with a secret in it."""
        decoded = _decode(run)
        if not decoded and "/" in run:  # a path, or an address, in front of it
            return "/".join(map(self._cut_encoded, run.split("/")))
        inner = Redactor()
        inner._names = self._names
        if not decoded or inner.cut(decoded) == decoded:
            return run
        return self._placeholder("encoded", run)

    def _cut_random(self, token: str) -> str:
        kinds: tuple[Callable[[str], bool], ...] = (str.isupper, str.islower, str.isdigit)
        mixed = all(any(kind(letter) for letter in token) for kind in kinds)
        # bits a character of a random token; words and paths have less
        if not mixed or _entropy(token) < 3.8:
            return token
        return self._placeholder("key", token)


def _is_secret(kind: str, value: str, whole: str) -> bool:
    """True if a value is none of the words that stand in such places without being secret."""
    if re.fullmatch(r".*\[[a-z-]+-\d+", value):  # a placeholder
        return False
    if kind == "user":
        return not _COMMON_NAMES.fullmatch(value)
    if kind == "phone":
        return 8 <= sum(map(str.isdigit, value)) <= 15
    if kind != "secret":
        return True
    word = whole[: whole.find(value)]
    assigned = re.search(r"[:=]\W*$|--?[\w-]+\W*$", word) is not None
    if _LOOSE.search(word) and assigned and not value.startswith(("$", "{", "[", "%")):
        return value.lower() not in ("none", "null", "true", "false", "str", "string")
    if _NO_VALUES.fullmatch(value):
        return False
    # letters of both cases that are no word where a key is announced
    if len(value) >= 16 and value.isalpha() and not (value.islower() or value.isupper()):
        return True
    has_digit = any(map(str.isdigit, value))
    return has_digit and (len(value) >= 8 or _LOOSE.search(word) is not None)


def _resolve_escapes(text: str) -> str:
    """The text with escaped letters of JSON and URLs as letters, without invisible characters."""
    for _ in range(3):  # levels of JSON within JSON
        before = text
        text = _NO_WIDTH.sub("", text)
        text = re.sub(r"\\+u00([2-7][0-9a-fA-F])", lambda code: chr(int(code[1], 16)), text)
        text = re.sub(r"\\+x([2-7][0-9a-fA-F])", lambda code: chr(int(code[1], 16)), text)
        text = re.sub(r"\\+/", "/", text)
        text = _ENCODED.sub(lambda code: unquote(code[0]), text)
        if text == before:
            break
    return _COLOUR.sub("", text)


def _decode(run: str) -> str:
    """The text that base64 encodes; "" if it is none."""
    try:
        data = run.rstrip("=").replace("-", "+").replace("_", "/")
        text = base64.b64decode(data + "=" * (-len(data) % 4), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
    return text if all(letter.isprintable() or letter.isspace() for letter in text) else ""


def _entropy(text: str) -> float:
    """Bits a character, of the text's own frequencies."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
