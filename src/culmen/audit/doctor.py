"""The trial of `culmen doctor --attack`: every hostile program against this machine's jail."""

from __future__ import annotations

from culmen.audit.jail_suite import run_suite
from culmen.cli.screen import Answer, Screen


def run_attacks(image: str) -> Answer:
    """Run every attack of the suite; exit code 1 if one won."""
    report = run_suite(image=image)

    def show(screen: Screen) -> None:
        screen.print_table(
            ["attack", "result"],
            [(name.replace("_", " "), each) for name, each in report["attacks"].items()],
        )
        screen.print_line(
            f"level {report['level']}: {report['won']} of {len(report['attacks'])} attacks won"
        )

    return Answer(report, show, int(report["won"] > 0))
