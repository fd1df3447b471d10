"""Numbers and times for display."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from culmen.core.evaluation import FILE_MARK, LEVELS, meets_trust_level

if TYPE_CHECKING:
    from culmen.store.views import RunStatus

Bounds = tuple[float | None, float | None]

_DIGITS = 6  # significant digits of a score; more is noise, less hides late improvements
_CONTROL = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}
# marks that change the order in which a text is shown, so that a program reads as another one
_ORDER = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROL |= {code: f"\\u{code:04x}" for code in _ORDER}


def escape_controls(text: str) -> str:
    """Text of unknown origin made safe for a terminal.

    Control characters and marks of the writing direction are escaped.
    """
    return text.replace("\r\n", "\n").translate(_CONTROL)


def column_decimals(values: Iterable[float]) -> int:
    """Decimals that show every value of a column in full.

    At most six significant digits of the largest value.
    """
    finite = [v for v in values if math.isfinite(v)]
    top = max((abs(v) for v in finite), default=0.0)
    if top == 0.0 or top >= 10**_DIGITS:
        return 0
    maximum = min(_DIGITS + 4, max(0, _DIGITS - 1 - math.floor(math.log10(top))))
    return next(
        (
            d
            for d in range(maximum)
            if all(float(f"{v:.{d}f}") == float(f"{v:.{maximum}f}") for v in finite)
        ),
        maximum,
    )


def number_text(value: float | None, decimals: int | None = None) -> str:
    """One number with `places` decimals, or as many as `decimals` returns; `-` for None."""
    if value is None:
        return "-"
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.6g}"
    text = f"{value:.{column_decimals([value]) if decimals is None else decimals}f}"
    return text.removeprefix("-") if not float(text) else text


def trust_suffix(trust: str) -> str:
    """` (self-reported)` for a score that candidate code may have influenced; else ""."""
    return "" if meets_trust_level(trust, "verified") else f" ({trust or LEVELS[-1]})"


def margin_decimals(margin: float) -> int:
    """Decimals that a margin justifies: two of its significant digits."""
    return min(_DIGITS + 4, max(0, 1 - math.floor(math.log10(margin))))


def plus_minus(margin: float | None) -> str:
    """` ± 0.0012` with two significant digits, "" for an unknown or zero margin."""
    if not margin or not math.isfinite(margin):
        return ""
    return f" ± {number_text(float(f'{margin:.2g}'))}"


def _exceeds(value: float, bounds: Bounds) -> bool:
    low, high = bounds
    return (low is not None and value < low) or (high is not None and value > high)


def score_with_margin(
    score: float | None, margin: float | None, bounds: Bounds = (None, None)
) -> str:
    """`0.523 ± 0.035`, both to the digits that the margin justifies.

    `margin` is half the width of the 95 % interval. `1.00 (0.65 to 1)` if the interval exceeds a
    bound of the score; the score alone if it has no interval.
    """
    if score is None or not margin or not math.isfinite(margin):
        return number_text(score)
    digits, (low, high) = margin_decimals(margin), bounds
    value, ends = number_text(score, digits), [score - margin, score + margin]
    if (low is None or ends[0] >= low) and (high is None or ends[1] <= high):
        return value + plus_minus(margin)
    shown = [number_text(end, digits) for end in ends]
    while _exceeds(round(score, digits), bounds) and not _exceeds(score, bounds):
        digits += 1  # rounded, the score would lie beyond the bound beside it
        value = number_text(score, digits)
    if low is not None and ends[0] < low:
        shown[0] = number_text(low)
    if high is not None and ends[1] > high:
        shown[1] = number_text(high)
    return f"{value} ({shown[0]} to {shown[1]})"


def difference_text(value: float, margin: float | None) -> str:
    """`+0.083`: a difference to the digits that its margin justifies.

    Three significant digits for an unknown margin, all digits for an exact difference.
    """
    if margin == 0:
        return ("+" if value >= 0 else "") + number_text(value)
    if margin is None or not math.isfinite(margin):
        return f"{value:+.3g}"
    return f"{value:+.{margin_decimals(margin)}f}"


def count_text(value: int, noun: str) -> str:
    """`1 evaluation`, `1,204 evaluations`."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{value:,} {noun if value == 1 else plural}"


def failed_text(failures: int) -> str:
    """`2 of them failed, counted as the floor`; empty for none."""
    return f"{failures:,} of them failed, counted as the floor" if failures else ""


def percent_text(share: float) -> str:
    """`31 %`; 0 % and 100 % only for shares of exactly 0 and 1."""
    return f"{min(99, max(1, round(100 * share))) if 0 < share < 1 else round(100 * share)} %"


def duration_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, rest = divmod(total, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def clock_text(seconds: float) -> str:
    """`0:07`, `12:40`, `1:02:03`: for columns of times."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def dollars_text(value: float) -> str:
    """`$0`, `$0.0123`, `$4.20`."""
    if value == 0:
        return "$0"
    return f"${value:.2f}" if value >= 0.1 else f"${value:.4f}"


def count_of_limit(evaluations: int, limit: int | None) -> str:
    """`34 of 200 evaluations`, or `34 evaluations` without a limit."""
    if limit is None:
        return count_text(evaluations, "evaluation")
    return f"{evaluations:,} of {count_text(limit, 'evaluation')}"


def join_nonempty(parts: Iterable[str], separator: str = ", ") -> str:
    """The non-empty parts, joined."""
    return separator.join(part for part in parts if part)


RUNS = Path("runs")  # folder of the runs unless --run-dir names another


def run_name(run: Path | str) -> str:
    """A run as commands in this folder accept it.

    Its name if it is under ./runs, else its path or address.
    """
    from culmen.store.address import read_pointer

    path = Path(run)
    address = read_pointer(path)
    if address is not None and path.resolve().parent != RUNS.resolve():
        return f"'{address}'"
    return shlex.quote(path.name if path.resolve().parent == RUNS.resolve() else short_path(path))


def short_path(run: Path | str) -> str:
    """The path of a run, relative to the working folder if it is below it."""
    try:
        return str(Path(run).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(run)


# Words on traces of evaluations: random numbers drawn, and changes left in their process.

_NAMED = 4  # names listed, the most frequent first


def traces_line(now: RunStatus) -> str:
    """`describe_traces` of a run.

    All evaluations are looked at: the journal counts them by name as they are made, so a reader
    adds nothing up.
    """
    return describe_traces(now.drew, now.left, now.keeps_state)


def describe_traces(drew: Mapping[str, int], left: Mapping[str, int], keeps_state: bool) -> str:
    """`draws: evaluator.rng; left and reset: os.environ; state kept: no`.

    "" if no evaluation drew or left anything, and none keeps state. Files are named elsewhere.
    """
    changed = {name: count for name, count in left.items() if not name.startswith(FILE_MARK)}
    if not (drew or changed or keeps_state):
        return ""
    title = "left for the next" if keeps_state else "left and reset"
    return join_nonempty(
        [
            f"draws: {drawn_names(drew) or 'none seen'}",
            f"{title}: {drawn_names(changed)}" if changed else "",
            f"state kept: {'yes' if keeps_state else 'no'}",
        ],
        "; ",
    )


def drawn_names(counts: Mapping[str, int]) -> str:
    """`evaluator.rng, program random`: generators that evaluations drew from, most used first."""
    names = sorted(counts, key=lambda name: (-counts[name], name))
    more = len(names) - _NAMED
    rest = f"and {count_text(more, 'other')}" if more > 0 else ""
    return join_nonempty([*names[:_NAMED], rest])
