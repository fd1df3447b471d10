"""Keys and personal data, found in texts and cut before anything is written or asked.

Each distinct secret becomes a placeholder of its kind, `[key-1]`, the same one wherever it stands.
Escapes of JSON and of URLs and full-width letters are resolved first, so that they hide nothing; a
run of base64 is decoded, and cut if there is a secret in it. What looks random and has no form that
a rule knows (a digest, an identifier, or a key) is `[unjudged-1]` until a person has confirmed that
it may be quoted.

Not found: a password that no word, address or option announces, names and postal addresses, and a
secret that is broken over several lines (private keys apart).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from urllib.parse import unquote

from culmen.extensions.skills.mining.keys import (
    Span,
    entropy,
    find_keys,
    has_words,
    is_hex,
    is_mixed,
    looks_random,
)
from culmen.extensions.skills.mining.persons import PERSONS, find_phrases, is_personal

_RANDOM = 32  # characters of a token that is cut wherever it stands
_LONG_LINE = 4_000  # characters that the rules see at once: some take time with its square
_PASSWORD_WORDS = (  # their values may be words
    r"pass(?:word|wd|phrase|wort|ord|code)?|pwd|mot[ _-]?de[ _-]?passe|contrase[ñn]a|contrasenya"
    r"|senha|palavra-passe|parola|passwort|kennwort|wachtwoord|l[öo]senord|adgangskode|salasana"
    r"|has[łl]o|heslo|jelsz[óo]|[şs]ifre|lozinka|geslo|slapta[žz]odis|parool|pasahitz|mật khẩu"
    r"|kata sandi|пароль|гасло|парола|лозинка|κωδικός|סיסמ[הא]|كلمة (?:ال)?(?:مرور|سر)|पासवर्ड"
    r"|รหัสผ่าน|密码|密碼|口令|パスワード|暗証番号|비밀번호|암호"
)
_SECRET_WORD = (
    rf"(?:{_PASSWORD_WORDS}|(?<=_)pat|\bsig|\"auth|secret|token|credentials?|cookie|signature"
    r"|session[_-]?id|(?:api|access|private|signing|encryption|account|auth|license|app|master"
    r"|client)[_-]?key|key|\bmdp\b|schl[üu]ssel|\bcl[ée]\b|\bclave|chiave|\bchave|ключ|密钥|秘钥)"
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
_LOOSE = re.compile(  # words whose values may be words; "pass" itself with "=" alone
    rf"(?i)(?!pass(?![a-z])(?!=))(?:{_PASSWORD_WORDS})|secret|credential"
)
_CODE = re.compile(  # a call, an item, an attribute: what programs assign
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*[(\[].*"
    r"|(?:self|cls|this|os|sys|args|opts?|options|config|settings|request|req|ctx|app|env|user|auth"
    r"|process|http|base64|getpass|netrc)\.[A-Za-z_][\w.]*"
)
_NAME = re.compile(r"_*[A-Za-z][a-z0-9]*(?:[._]+[A-Za-z_]\w*)+")  # of several words
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
_FULL_WIDTH = {0xFF01 + offset: 0x21 + offset for offset in range(94)} | {0x3000: 0x20}
_COLOUR = re.compile(r"(?:\x1b|%1[bB]|\\+u001[bB]|\\+x1[bB]|\\+033)\[[0-9;]*[A-Za-z]")
_LINE_ENDS = re.compile(r"(\\+[nrtbf]|%0[9aAdD])")
_PLACEHOLDER = re.compile(r"\[[a-z-]+-\d+")
_UNJUDGED = re.compile(r"(?<![\w/.+%@-])[A-Za-z0-9_-]{16,}(?![\w/@-])")
_DIGEST = re.compile(  # words before hexadecimal digits that are public
    r"(?i)\b(?:git|commit|commits|sha-?\d*|md5|digest|hash|checksum|rev|revision|index|merge|tree|parent"
    r"|head|blob|ref|refs|etag|uuid|guid|blake2\w*|crc\w*|fingerprint)\b"
)
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
            r"|\b(?i:x-[\w-]*(?:key|token|secret|auth\w*|signature|session|credential)[\w-]*):\s*(?P<header>[^\s\"'$<>{}\[\]]{6,})"
        ),
    ),
    (  # a line of .pgpass
        "login",
        re.compile(
            r"(?m)(?:^|(?<=[\s\"'`]))(?!\S+\.(?:py|pyi|js|tsx?|go|rs|c|h|cc|cpp|java|rb|sh|md|txt|log):)"
            r"[\w.*-]+:(?:\d{4,5}|\*):[\w.*-]+:[\w.*@-]+:(?P<cut>[^\s\"'`\[]{4,})"
        ),
    ),
    (
        "secret",
        re.compile(
            r"(?i)\b(?:password|passwd|passphrase)\s*[:=]\s*([\"'])(?!\1)(?P<cut>[^\n\[]{4,120}?)\1"
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
            r"(?i)\b(?:(?:bearer|basic)\s+(?=(?-i:\S*(?:\d|[a-z][A-Z]|=)))"
            r"|(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:\w+\s+)?)"
            r"(?P<cut>[\w.~+/-]{8,}=*)(?![\w.~+/-]*[(\[])"
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
)


class Redactor:
    """Cuts secrets out of texts, and counts the distinct ones by kind."""

    def __init__(self, quoted: Collection[str] = ()) -> None:
        """`quoted` has texts that a person has confirmed: no rule judges them, and they stay."""
        self._quoted = frozenset(quoted)
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
        pieces = (part for piece in _LINE_ENDS.split(text) for part in _short_pieces(piece))
        text = "".join(map(self._cut_piece, pieces))
        if self._names:
            names = "|".join(map(re.escape, sorted(self._names, key=len, reverse=True)))
            pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])", re.IGNORECASE)
            text = self._replace("user", pattern, text)
        return text

    def _cut_piece(self, text: str) -> str:
        text = _RUN.sub(lambda found: self._cut_encoded(found[0]), text)
        text = self._cut_spans("key", find_keys(text), text)
        for kind, pattern in (*RULES, *PERSONS):
            text = self._replace(kind, pattern, text)
        text = self._cut_spans("phrase", find_phrases(text), text)
        text = _TOKEN.sub(lambda found: self._cut_random(found[0]), text)
        return _UNJUDGED.sub(self._cut_unjudged, text)

    def _cut_spans(self, kind: str, spans: Iterable[Span], text: str) -> str:
        kept: list[str] = []
        done = 0
        for start, end in _joined(spans):
            value = text[start:end].rstrip(".")
            if value not in self._quoted and not _PLACEHOLDER.search(value):
                kept += [text[done:start], self._placeholder(kind, value)]
                done = start + len(value)
        return "".join([*kept, text[done:]])

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
        if not mixed or entropy(token) < 3.8 or has_words(token):
            return token
        return self._placeholder("key", token)

    def _cut_unjudged(self, found: re.Match[str]) -> str:
        """A placeholder for random characters, until a person has confirmed the text."""
        token = found[0]
        if token in self._quoted or not any(map(str.isdigit, token)):
            return token
        if is_hex(token):
            if token.isdigit() or token[:2].lower() == "0b":
                return token
            line = found.string.rfind("\n", 0, found.start()) + 1
            named = _DIGEST.search(found.string, line, found.start())
            return token if len(token) < _RANDOM or named else self._placeholder("unjudged", token)
        return self._placeholder("unjudged", token) if looks_random(token) else token


def _is_secret(kind: str, value: str, whole: str) -> bool:
    """True if a value is none of the words that stand in such places without being secret."""
    if _PLACEHOLDER.search(value):
        return False
    if kind == "user":
        return not _COMMON_NAMES.fullmatch(value)
    if kind != "secret":
        return is_personal(kind, value)
    word = whole[: whole.find(value)]
    quoted = word[-1:] in ('"', "'", "`")
    if not quoted and _CODE.fullmatch(value):
        return False
    if not quoted and word.endswith(" = ") and _NAME.fullmatch(value) and not is_mixed(value):
        return False
    assigned = re.search(r"[:=]\W*$|--?[\w-]+\W*$", word) is not None
    if _LOOSE.search(word) and assigned and not value.startswith(("$", "{", "[", "%")):
        return value.lower() not in ("none", "null", "true", "false", "str", "string")
    return not _NO_VALUES.fullmatch(value) and _is_key_like(word, value)


def _is_key_like(word: str, value: str) -> bool:
    """True if a value beside a word like "token" is no word and no plain number."""
    # letters of both cases that are no word where a key is announced
    if len(value) >= 16 and value.isalpha() and not (value.islower() or value.isupper()):
        return True
    number = re.fullmatch(r"0x[0-9a-fA-F]{1,16}|\d+", value) is not None
    if number and re.search(r"(?i)(?:key|signature)\w*\s*=\s*$", word):
        return False
    has_digit = any(map(str.isdigit, value))
    short = _LOOSE.search(word) is not None or re.search(r"(?i)pass|cookie", word) is not None
    return has_digit and (len(value) >= 8 or short)


def _resolve_escapes(text: str) -> str:
    """The text with escaped letters of JSON and URLs as letters, without invisible characters."""
    for _ in range(3):  # levels of JSON within JSON
        before = text
        text = _NO_WIDTH.sub("", text).translate(_FULL_WIDTH)
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


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Spans without overlaps: those that overlap are one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif start < end:
            joined.append((start, end))
    return joined


def _short_pieces(text: str) -> Iterator[str]:
    """The text, in pieces if it has a line of more than _LONG_LINE characters."""
    if max(map(len, text.split("\n"))) <= _LONG_LINE:
        yield text
        return
    for line in text.splitlines(keepends=True):
        while len(line) > _LONG_LINE:
            gap = max(line.rfind(mark, _LONG_LINE // 2, _LONG_LINE) for mark in " \t,;\"'")
            cut = gap + 1 if gap > 0 else _LONG_LINE
            yield line[:cut]
            line = line[cut:]
        yield line
