"""A picture of a run for a README or a slide: claim, interval, curve, cost and name.

Drawn from the overview's document as an SVG of 1200 × 630 that needs nothing but a font.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from culmen.core.json import JsonObject
from culmen.report.figures import escape_controls, number_text

WIDTH, HEIGHT = 1200, 630
_EDGE = 56  # empty on the left and the right
_FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', "
    "Arial, sans-serif"
)
_INK, _SOFT, _LINE, _DOTS = "#1b2027", "#515b68", "#dfe3e8", "#98a2ae"
_CURVE, _FRESH = "#2f5bd0", "#c2571a"
_TONES = {
    "good": "#136c3a",
    "live": "#2450c4",
    "warn": "#b7791f",
    "bad": "#ab1f1f",
    "quiet": "#8a94a1",
}


Scale = Callable[[float], float]


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


_PLOT = _Box(118, 306, WIDTH - _EDGE - 14, 532)
_LEAD = WIDTH - 2 * _EDGE - 24  # width of the headline and of what stands below


def draw_card(doc: JsonObject) -> str:
    """The picture as SVG, from the document of a run's overview."""
    summary, verdict = doc["summary"], doc["summary"]["verdict"]
    tone = _TONES.get(verdict["tone"], _SOFT)
    claim, y = _claim(doc, tone)
    told = ". ".join([verdict["headline"], *verdict["details"], summary["used"]])
    body = [
        _text(_EDGE, 58, _heading(doc), 24, _SOFT),
        *_state_mark(doc, tone),
        *claim,
        *_picture(doc, y),
        _text(_EDGE, HEIGHT - 30, _shortened(summary["used"], 960, 20), 20, _SOFT),
        _text(WIDTH - _EDGE, HEIGHT - 30, "culmen", 22, _SOFT, 600, "end"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="{_FONT}">'
        f"<title>{_escaped(doc['name'])}</title><desc>{_escaped(told)}</desc>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" fill="none" '
        f'stroke="{_LINE}"/>{"".join(body)}</svg>\n'
    )


def _claim(doc: JsonObject, tone: str) -> tuple[list[str], float]:
    """The headline with its details, and the height below them."""
    summary, verdict = doc["summary"], doc["summary"]["verdict"]
    lines, size = _fitted(verdict["headline"], _LEAD, (46, 40, 34), 2)
    first, ink = 112.0, tone if verdict["tone"] == "bad" else _INK
    last = first + 1.15 * size * (len(lines) - 1)
    drawn = [_rectangle(_Box(_EDGE, first - 0.8 * size, _EDGE + 6, last + 0.22 * size), tone)]
    drawn += [
        _text(_EDGE + 24, first + 1.15 * size * n, line, size, ink, 700)
        for n, line in enumerate(lines)
    ]
    facts = [summary["cause_detail"]] if summary["cause"] else []
    y = last + 42
    for line in _packed([*facts, *verdict["details"]], _LEAD, 22, int((_PLOT.top - y) // 30)):
        drawn.append(_text(_EDGE + 24, y, line, 22, _SOFT))
        y += 30
    return drawn, y


def _heading(doc: JsonObject) -> str:
    parts = dict.fromkeys([doc["name"], doc["task"], doc["strategy"]])
    return _shortened(" · ".join(filter(None, parts)), 820, 24)


def _state_mark(doc: JsonObject, tone: str) -> list[str]:
    """The state at the right above, of a run that has not simply finished."""
    if doc["label"] in ("finished", "failed"):  # the headline says "failed"
        return []
    return [_text(WIDTH - _EDGE, 58, doc["label"], 24, tone, 600, "end")]


def _picture(doc: JsonObject, y: float) -> list[str]:
    if doc["front"] and doc["front"]["members"]:
        return _front(doc["front"])
    if doc["course"] or doc["progress"]:
        return _curve(doc)
    if doc["summary"]["failure"]:
        return _output(doc["summary"]["failure"], max(y, 220))
    return []


def _output(text: str, y: float) -> list[str]:
    """The last lines of what the evaluator printed."""
    many = int((560 - y) // 26)
    lines = [line for line in text.splitlines() if line.strip()][-many:]
    drawn = [_rectangle(_Box(_EDGE, y - 4, WIDTH - _EDGE, y + 26 * len(lines) + 18), "#f1f3f6", 8)]
    for line in lines:
        y += 26
        drawn.append(_text(_EDGE + 20, y, _shortened(line, 1030, 18, 0.62), 18, _INK, mono=True))
    return drawn


# The curve: every evaluation, what was expected of the leader, and the confirmed score.


def _curve(doc: JsonObject) -> list[str]:
    course = doc["course"] or doc["progress"]
    end = float(max(doc["evaluations"], course[-1]["evaluations"], 1))
    best = doc["best"]
    fresh = best if best and best.get("confirmed") else None
    low, high = _heights(doc, course, fresh)
    x, y = _scale(0.0, end, _PLOT.left, _PLOT.right), _scale(low, high, _PLOT.bottom, _PLOT.top)
    seen = [
        (each["evaluations"], each["score"])
        for each in doc["scores"]
        if each["score"] is not None and low <= each["score"] <= high
    ]
    drawn = _axes(low, high, y, f"{end:,.0f} evaluations")
    radius = 2.2 if len(seen) > 400 else 3.0
    drawn.append(_dots([(x(n), y(score)) for n, score in seen], radius))
    points = [(float(each["evaluations"]), float(each["score"])) for each in course]
    points.append((end, points[-1][1]))
    if doc["course"]:
        drawn.append(_band(course, x, y, end, (low, high)))
    drawn.append(_staircase(points, x, y))
    drawn += draw_levels(doc["lines"], y, (low, high))
    drawn += _steps(doc["story"]["steps"], x, y, (low, high))
    if fresh:
        half, at = fresh.get("margin") or 0.0, _PLOT.right
        ends = y(max(low, fresh["score"] - half)), y(min(high, fresh["score"] + half))
        drawn.append(_stroke(at, ends[0], at, ends[1], _FRESH, 2.5))
        drawn.append(_dot(at, y(fresh["score"]), 7, _FRESH))
    return drawn


def _heights(
    doc: JsonObject, course: Sequence[JsonObject], fresh: JsonObject | None
) -> tuple[float, float]:
    """Ends of the scores shown: of the leader, the initial program, and a target not too far."""
    values = [each[name] for each in course for name in ("score", "low", "high") if name in each]
    values += [fresh["score"]] if fresh else []
    values += [doc["lines"]["initial"]] if doc["lines"]["initial"] is not None else []
    scores = sorted(each["score"] for each in doc["scores"] if each["score"] is not None)
    if scores:  # the middle of all scores, so that no outlier squeezes the rest
        values += [scores[int(share * (len(scores) - 1))] for share in (0.1, 0.9)]
    values = [value for value in values if math.isfinite(value)]
    low, high = min(values), max(values)
    span = high - low or abs(high) * 0.1 or 1.0
    for name in ("target", "known"):
        level = doc["lines"][name]
        # heights of the curve within which a target is drawn, and not only named
        if level is not None and low - 1.5 * span <= level <= high + 1.5 * span:
            low, high = min(low, level), max(high, level)
    room = 0.08 * (high - low or span)  # share of the height that stays empty at its ends
    return low - room, high + room


def _scale(low: float, high: float, first: float, last: float) -> Scale:
    """The pixel of a value between `low` and `high`."""

    def place(value: float) -> float:
        return first + (value - low) / (high - low) * (last - first)

    return place


def _axes(low: float, high: float, y: Scale, label: str) -> list[str]:
    """A few rules with their values, the foot, and what lies along it."""
    ticks = _round_values(low, high)
    decimals = _tick_decimals(ticks)
    drawn: list[str] = []
    for tick in ticks:
        drawn.append(_stroke(_PLOT.left, y(tick), _PLOT.right, y(tick), _LINE, 1))
        shown = number_text(tick, decimals)
        drawn.append(_text(_PLOT.left - 12, y(tick) + 6, shown, 18, _SOFT, anchor="end"))
    drawn.append(_text(_PLOT.right, _PLOT.bottom + 24, label, 18, _SOFT, anchor="end"))
    return drawn


def _tick_decimals(ticks: Sequence[float]) -> int | None:
    if len(ticks) < 2:
        return None
    return max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))


def _round_values(low: float, high: float) -> list[float]:
    """Two to five round values between two others."""
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    step = next((step * by for by in (5, 2, 1) if (high - low) / (step * by) >= 2), step / 2)
    first = math.ceil(low / step)
    return [step * n for n in range(first, math.floor(high / step) + 1)]


def _staircase(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    path = f"M{x(points[0][0]):.1f} {y(points[0][1]):.1f}"
    path += "".join(f"H{x(n):.1f}V{y(score):.1f}" for n, score in points[1:])
    return f'<path d="{path}" fill="none" stroke="{_CURVE}" stroke-width="3"/>'


def _band(
    course: Sequence[JsonObject], x: Scale, y: Scale, end: float, bounds: tuple[float, float]
) -> str:
    """The 95 % interval of the leader, in steps like the curve."""
    begins = [float(each["evaluations"]) for each in course]
    corners: dict[str, list[tuple[float, float]]] = {"high": [], "low": []}
    for each, begin, until in zip(course, begins, [*begins[1:], end]):
        for name, edge in corners.items():
            level = min(bounds[1], max(bounds[0], each[name]))
            edge += [(begin, level), (until, level)]
    around = [*corners["high"], *reversed(corners["low"])]
    path = "L".join(f"{x(at):.1f} {y(level):.1f}" for at, level in around)
    return f'<path d="M{path}Z" fill="{_CURVE}" opacity="0.14"/>'


def draw_levels(lines: JsonObject, y: Scale, bounds: tuple[float, float]) -> list[str]:
    """Lines of target, best known and initial program; those close together share a label.

    The label of the initial program alone is at the right: at the left the course begins on it.
    """
    drawn: list[str] = []
    labels: list[tuple[float, str]] = []
    for kind, name in (("target", "target"), ("known", "best known"), ("initial", "initial")):
        level = lines[kind]
        if level is None or not bounds[0] <= level <= bounds[1]:
            continue
        at = y(level)
        drawn.append(_stroke(_PLOT.left, at, _PLOT.right, at, _SOFT, 1.5, "6 6"))
        value = number_text(float(f"{level:.4g}"))
        text = f"{name} {value}"
        if labels and abs(labels[-1][0] - at) < 22.0:  # pixels between lines that each have a label
            above, before = labels.pop()
            at, text = min(above, at), f"{before.removesuffix(f' {value}')}, {text}"
        labels.append((at, text))
    for at, text in labels:
        right = text.startswith("initial ")
        x, anchor = (_PLOT.right - 8, "end") if right else (_PLOT.left + 8, "start")
        drawn.append(_label(x, at - 7, text, anchor))
    return drawn


def _steps(
    steps: Sequence[JsonObject], x: Scale, y: Scale, bounds: tuple[float, float]
) -> list[str]:
    """Numbers of the steps that made the gain, at their first scores."""
    drawn: list[str] = []
    for each in steps:
        level = min(bounds[1], max(bounds[0], each["score"]))
        at, up = x(float(each["at_evaluations"])), max(_PLOT.top + 14, y(level) - 24)
        ring = f'<circle cx="{at:.1f}" cy="{up:.1f}" r="12" fill="#ffffff" stroke="{_INK}"/>'
        drawn += [ring, _text(at, up + 6, str(each["number"]), 16, _INK, 600, "middle")]
    return drawn


# Several objectives: the front by its first two.


def _front(front: JsonObject) -> list[str]:
    goals = front["objectives"]
    names = [goals[0]["name"], goals[1 if len(goals) > 1 else 0]["name"]]
    members, others = (
        [[float(each["metrics"][name]) for name in names] for each in front[kind]]
        for kind in ("members", "others")
    )
    spans: list[tuple[float, float]] = []
    for place in (0, 1):
        values = [point[place] for point in members]
        low, high = min(values), max(values)
        room = 0.25 * (high - low) or abs(high) * 0.1 or 1.0
        spans.append((low - room, high + room))
    x = _scale(*spans[0], _PLOT.left, _PLOT.right)
    y = _scale(*spans[1], _PLOT.bottom, _PLOT.top)
    within = [
        point
        for point in others
        if all(low <= value <= high for value, (low, high) in zip(point, spans))
    ]
    drawn, ticks = _axes(*spans[1], y, ""), _round_values(*spans[0])
    for tick in ticks:
        shown = number_text(tick, _tick_decimals(ticks))
        drawn.append(_text(x(tick), _PLOT.bottom + 24, shown, 18, _SOFT, anchor="middle"))
    drawn.append(_dots([(x(a), y(b)) for a, b in within], 3.5))
    drawn += [_dot(x(a), y(b), 8, _CURVE) for a, b in members]
    drawn.append(_label(_PLOT.right, _PLOT.bottom - 8, _goal_text(front, names[0]), "end"))
    drawn.append(_label(_PLOT.left + 8, _PLOT.top + 4, _goal_text(front, names[1])))
    return drawn


def _goal_text(front: JsonObject, name: str) -> str:
    goal = next(each for each in front["objectives"] if each["name"] == name)
    way = "lower" if goal.get("direction") == "min" else "higher"
    return f"{_shortened(name, 300, 18)}, {way} is better"


# Pieces of SVG.


def _text(
    x: float,
    y: float,
    text: str,
    size: float,
    fill: str,
    weight: int = 400,
    anchor: str = "start",
    mono: bool = False,
) -> str:
    font = " font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\"" * mono
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}" font-weight="{weight}" '
        f'text-anchor="{anchor}"{font} xml:space="preserve">{_escaped(text)}</text>'
    )


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    """A text on a ground of its own, so that it can be read above dots and lines."""
    drawn = _text(x, y, text, 18, _SOFT, anchor=anchor)
    ground = '<text stroke="#ffffff" stroke-width="5" stroke-linejoin="round" aria-hidden="true"'
    return drawn.replace("<text", ground, 1) + drawn


def _dots(places: Sequence[tuple[float, float]], radius: float) -> str:
    """Grey dots, each pixel once, as one path of round points."""
    pixels = dict.fromkeys((round(x), round(y)) for x, y in places)
    path = "".join(f"M{x} {y}h0" for x, y in pixels)
    style = f'stroke="{_DOTS}" stroke-width="{2 * radius:g}" stroke-linecap="round"'
    return f'<path d="{path}" {style}/>' if path else ""


def _dot(x: float, y: float, radius: float, fill: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"/>'


def _stroke(
    x: float, y: float, x2: float, y2: float, colour: str, width: float, dashes: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashed}/>'
    )


def _rectangle(box: _Box, fill: str, radius: float = 0) -> str:
    return (
        f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.right - box.left:.1f}" '
        f'height="{box.bottom - box.top:.1f}" rx="{radius:g}" fill="{fill}"/>'
    )


_NO_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MINUS = re.compile(r"(^|[\s(])-(?=\d)")


def _escaped(text: str) -> str:
    """Text for an XML document, with signs in place of hyphens."""
    return escape(_NO_XML.sub("�", _MINUS.sub("\\1−", escape_controls(text))))


# Widths of texts in a wide sans serif, in parts of the font's size: other fonts are narrower.

_NARROW, _BROAD = frozenset("iljtfrI.,:;|!'()[] "), frozenset("mwMWQO@%—→")


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width of a text in pixels, rather too large than too small."""
    parts = (
        0.4 if each in _NARROW else 0.98 if each in _BROAD else 0.72 if each.isupper() else 0.64
        for each in text
    )
    return size * sum(parts) * (1.1 if bold else 1.0)


def _fitted(text: str, width: float, sizes: Sequence[int], most: int) -> tuple[list[str], int]:
    """A headline in at most `most` lines of like width, at the largest size that allows it.

    Shortened if none does.
    """
    for size in sizes:
        if len(_wrapped(text, width, size)) <= most:
            return _balanced(text, width, size), size
    size = sizes[-1]
    lines = _wrapped(text, width, size)
    rest = _shortened(" ".join(lines[most - 1 :]), width / 1.1, size)
    return [*lines[: most - 1], rest], size


def _balanced(text: str, width: float, size: float) -> list[str]:
    """The lines of a text at the smallest width that needs no further line."""
    lines = _wrapped(text, width, size)
    for narrow in range(int(width), 100, -20):
        fewer = _wrapped(text, narrow, size)
        too_wide = any(text_width(line, size, bold=True) > narrow for line in fewer)
        if len(fewer) > len(lines) or too_wide:
            break
        lines = fewer
    return lines


def _wrapped(text: str, width: float, size: float) -> list[str]:
    """The lines of a headline; a longer word is cut."""
    lines = [""]
    for whole in text.split():
        word = _shortened(whole, width / 1.1, size)
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size, bold=True) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _packed(facts: Sequence[str], width: float, size: float, most: int) -> list[str]:
    """Facts in at most `most` lines, several in one where they fit."""
    lines: list[str] = []
    for fact in facts:
        short = _shortened(fact, width, size)
        longer = f"{lines[-1]} · {short}" if lines else short
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(short)
    return lines[:most]


def _shortened(text: str, width: float, size: float, each: float = 0.0) -> str:
    """The text cut at a width; `each` is that of every character, if they are alike."""

    def measure(part: str) -> float:
        return each * size * len(part) if each else text_width(part, size)

    if measure(text) <= width:
        return text
    text = text[: int(width / (0.3 * size))]
    while text and measure(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"
