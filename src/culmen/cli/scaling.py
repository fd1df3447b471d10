"""The page of `culmen bench scale`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError

if TYPE_CHECKING:
    from culmen.bench.scale import Figure
    from culmen.bench.scale_real import Measured

_REAL = 400  # evaluations of each real measurement
_EXAMPLES = (1.0, 10.0, 60.0, 600.0)


def bench(screen: Screen, strategy: str | None, at_once: str | None, real: bool) -> Answer:
    """Measure, and say what bounds a run."""
    from culmen.bench import scale
    from culmen.strategies import catalog

    chosen = catalog.make(strategy or "best_of_n", {})
    figures: list[Figure] = []
    for workers in _levels(at_once) or scale.LEVELS:
        figures.append(scale.measure(chosen, workers))
        if not screen.as_json:
            now = figures[-1]
            told = f"{workers} at once: {now.driver_ms:.2f} ms each, workers busy {now.workers_busy:.1%}"
            screen.err.print(told, markup=False)
    measured = list(_real()) if real else []
    arithmetic = {f"{s:g} s": round(scale.saturation(figures, s)) for s in (*_EXAMPLES, scale.mean_seconds())}
    data: dict[str, Any] = {
        "simulated": [{**msgspec.to_builtins(each), "bound": each.bound} for each in figures],
        "saturates_at": arithmetic,
        "measured": msgspec.to_builtins(measured),
    }
    return Answer(data, lambda screen: show(screen, figures, measured, arithmetic))


def _levels(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        levels = tuple(int(piece) for piece in text.split(","))
    except ValueError:
        levels = (0,)
    if min(levels) < 1:
        raise UserError(f"cannot read '{text}'", where="--at-once", fix="write --at-once 10,100,1000")
    return levels


def _real() -> Iterator[Measured]:
    from culmen.bench.scale_real import has_ray, measure, ray_nodes
    from culmen.evaluate.cluster.choice import Choice

    for workers in (1, 2):
        yield measure("local", Choice(), workers, _REAL)
    if not has_ray():
        return
    with ray_nodes(3, 2) as address:
        for workers in (1, 6):
            yield measure("ray, 3 nodes", Choice("ray", address=address), workers, _REAL)


def show(screen: Screen, figures: list[Figure], measured: list[Measured], arithmetic: dict[str, int]) -> None:
    """Print it."""
    from culmen.bench import scale

    screen.line(
        f"Simulated workers, real driver: evaluations of {scale.MEDIAN:g} s (median, log-normal, mean "
        f"{scale.mean_seconds():.0f} s), 4.5 % fail, 1 % take ten times as long."
    )
    heads = ["at once", "evaluations", "a second", "driver ms", "commit ms", "batch", "driver busy", "workers busy"]
    heads += ["model calls", "peak MB", "bound by"]
    cells = [
        [
            f"{each.workers}", f"{each.evaluations}", f"{each.per_second:.2f}", f"{each.driver_ms:.2f}",
            f"{each.commit_ms:.1f}", f"{each.batch:.1f}", f"{each.driver_busy:.1%}", f"{each.workers_busy:.1%}",
            f"{each.calls}", f"{each.peak_mb:.0f}", each.bound,
        ]
        for each in figures
    ]  # fmt: skip
    screen.table(heads, cells, right=" ".join(heads[:-1]))
    named = ", ".join(f"{count} of {seconds}" for seconds, count in arithmetic.items())
    screen.line(f"At that cost the driver is busy all the time with {named} at once.")
    if not measured:
        screen.next_steps(("culmen bench scale --real", "backends of this machine beside it"))
        return
    screen.line()
    screen.line("Measured here, programs that take no time:")
    heads = ["backend", "at once", "evaluations", "a second", "round trip ms", "driver ms", "start s", "not ok"]
    cells = [
        [
            each.backend, f"{each.workers}", f"{each.evaluations}", f"{each.per_second:.1f}",
            f"{each.round_trip_ms:.1f}", f"{each.driver_ms:.2f}", f"{each.seconds:.1f}", f"{each.lost}",
        ]
        for each in measured
    ]  # fmt: skip
    screen.table(heads, cells, right=" ".join(heads[1:]))
    if not any(each.backend.startswith("ray") for each in measured):
        screen.line("Ray is not installed, so it is not measured: pip install 'culmen[ray]'")
