"""Personal data by rules: mail, telephone, network and bank; words that open a wallet.

Numbers of accounts and cards must have the right check digits, so other long numbers stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_IPV4 = (
    r"(?<![\w.-])(?!127\.|0\.0\.0\.0|255\.)"
    r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.-]*\w)"
)
_IPV6 = (
    r"(?i:(?<![\w:])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:]))"
    r"|(?i:(?<![\w:])(?:[0-9a-f]{1,4}:){1,6}:(?:[0-9a-f]{1,4}:){0,6}[0-9a-f]{1,4}(?![\w:]))"
)
_MAC = (
    r"(?i:(?<![\w:-])(?!(?:00[:-]){5}|(?:ff[:-]){5})[0-9a-f]{2}([:-])"
    r"(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![\w:-]))"
    r"|(?i:(?<![\w.])(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}(?![\w.]))"
)
_PHONE = (
    r"(?<![\w.+-])(?:(?:\+|00(?=[1-9]))\d{1,3}[ ./-]?(?:\(?\d{1,5}\)?[ ./-]?){2,5}\d{2,}"
    r"|0[1-9]([ .-])\d{2}(?:\1\d{2}){3}"
    r"|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}|\(0\d{1,5}\)[ ]?\d{3,}(?:[ -]?\d{2,})*"
    r"|0\d{2,4}[ /-]\d{3,}(?:[ -]?\d{2,})*)(?![\w.-]*\w)"
)
_MAIL = (
    r"(?<![\w.+-])(?!git@)[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}\b"
    r"|\\*\"(?!\s)[^\"\\\s@](?:[^\"\\@\n]{0,60}[^\"\\\s@])?\\*\"@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}\b"
)
_ACCOUNT = (  # IBAN
    r"(?<![\w-])[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?(?!\w)"
)
_CARD = (
    r"(?<![\w.+-])(?:[2-6]\d{3}([ -]?)\d{4}(?:\1\d{4}){2}(?:\1\d{1,3})?"
    r"|3\d{3}([ -]?)\d{6}\2\d{5})(?![\w-])"
)
PERSONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("email", re.compile(_MAIL)),
    ("account", re.compile(_ACCOUNT)),
    ("card", re.compile(_CARD)),
    ("device", re.compile(_MAC)),
    ("phone", re.compile(_PHONE)),
    ("address", re.compile(rf"{_IPV4}|{_IPV6}")),
)

_SEED_COUNTS = (12, 15, 18, 21, 24)  # words of a phrase (BIP 39)
_WORDS = re.compile(r"(?<![\w'-])[a-z]{3,8}(?:[ ,]{1,2}[a-z]{3,8}){11,}(?![\w'-])")
_ANNOUNCED = re.compile(r"(?i)(?:seed|mnemonic|recovery|wallet|backup)[\w \"']{0,30}[:=]?\W{0,6}$")
# words of sentences that are in no list of such phrases
_SENTENCE = re.compile(
    r"\b(?:the|and|for|with|not|are|was|were|but|his|her|its|our|their|your|from|have|has|had|this|they"
    r"|you|who|will|which|would|could|should|into|than|then|been|does|did|may|might|must|these|those"
    r"|because|while|where|whose|per|non|any|all|each|both|few|more|most)\b"
)


def is_personal(kind: str, value: str) -> bool:
    """True if a match of the kind's pattern can be one: its count of digits, its check digits."""
    digits = [int(letter) for letter in value if letter.isdigit()]
    if kind == "phone":
        return 8 <= len(digits) <= 15
    if kind == "card":
        return len(set(digits)) > 1 and _luhn(digits)
    if kind == "account":
        return _iban(re.sub(r"[ -]", "", value))
    return True


def _luhn(digits: list[int]) -> bool:
    doubled = [2 * one - 9 * (one > 4) for one in digits[-2::-2]]
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _iban(text: str) -> bool:
    turned = text[4:] + text[:4]
    return 15 <= len(text) <= 34 and int("".join(str(int(each, 36)) for each in turned)) % 97 == 1


def find_phrases(text: str) -> Iterator[tuple[int, int]]:
    """Spans of words that may open a wallet: 12 to 24 of them, announced or alone on a line."""
    for found in _WORDS.finditer(text):
        words = re.split(r"[ ,]+", found[0])
        if _SENTENCE.search(found[0]) or len(set(words)) < 10:
            continue
        start, end = found.span()
        line_start = text.rfind("\n", 0, start) + 1
        before = text[max(line_start, start - 60) : start]
        after = text[end : text.find("\n", end) % (len(text) + 1)]
        alone = not before.strip(" \"'") and not after.strip(" \"'")
        if _ANNOUNCED.search(before) or (alone and len(words) in _SEED_COUNTS):
            yield start, end
