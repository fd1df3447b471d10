"""The trial of `culmen doctor --attack`: every hostile program against this machine's jail."""

from __future__ import annotations

from culmen.cli.screen import Answer, Screen
from culmen.core.json import JsonObject
from culmen.extensions.audit.jail_suite import run_suite


def run_attacks(image: str) -> Answer:
    """Run every attack of the suite; exit code 1 if one won."""
    report = run_suite(image=image)

    def show(screen: Screen) -> None:
        rows = [
            (
                name.replace("_", " "),
                str(report["neighbours"][name]["lost"]),
                _slower(report["neighbours"][name]),
                result,
            )
            for name, result in report["attacks"].items()
        ]
        screen.print_table(["attack", "neighbours lost", "slower", "result"], rows, "slower")
        beside = report["beside_all"]
        worst = report["neighbours"][beside["worst"]]
        screen.print_line(
            f"level {report['level']}: {report['won']} of {len(report['attacks'])} attacks won; "
            f"{beside['lost']} of {beside['evaluations']} honest neighbours lost"
        )
        screen.print_line(
            f"neighbours beside all attacks: slower by {_slower(beside)} (processor time "
            f"{beside['slower_cpu']:+.0%}) than beside an honest program that computes; most "
            f"beside {beside['worst'].replace('_', ' ')}: {_slower(worst)}"
        )

    return Answer(report, show, int(report["won"] > 0))


def _slower(beside: JsonObject) -> str:
    return f"{beside['slower']:+.0%} ± {beside['margin']:.0%}"
