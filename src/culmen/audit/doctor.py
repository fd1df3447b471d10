"""The trial of `culmen doctor --attack`: every hostile program against this machine's jail."""

from __future__ import annotations

from culmen.audit.jail_suite import run_suite
from culmen.cli.screen import Answer, Screen


def run_attacks(image: str) -> Answer:
    """Run every attack of the suite; exit code 1 if one won."""
    report = run_suite(image=image)

    def show(screen: Screen) -> None:
        rows, beside = [], report["neighbours"]
        for name, result in report["attacks"].items():
            lost, slower = (beside[name][key] for key in ("lost", "slower"))
            rows.append((name.replace("_", " "), str(lost), f"{slower:+.0%}", result))
        screen.print_table(["attack", "neighbours lost", "slower", "result"], rows, "slower")
        screen.print_line(
            f"level {report['level']}: {report['won']} of {len(report['attacks'])} attacks won; "
            f"{sum(each['lost'] for each in beside.values())} of "
            f"{sum(each['evaluations'] for each in beside.values())} honest neighbours lost"
        )

    return Answer(report, show, int(report["won"] > 0))
