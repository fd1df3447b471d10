"""Calls that Python callers may write, for the type checker.

`make lint` reads this file, nothing runs it.
"""

from pathlib import Path

import culmen
from culmen.strategies.polca import Beam, Polca


def score(program: str) -> float:
    return float(len(program))


def model(prompt: str) -> str:
    return prompt


async def patient_model(prompt: str) -> str:
    return prompt


culmen.optimize("x = 1", score, budget=6, model=model)
culmen.optimize(
    {"a": "x", "b": "y"}, score, budget={"evaluations": 6, "dollars": 0.5}, model=patient_model
)
culmen.optimize([{"a": "x"}, {"a": "y"}], score, budget="5m", strategy=Polca)
culmen.optimize([Path("a.py"), Path("b.py")], score, strategy="polca", direction="minimize")
culmen.optimize("x = 1", score, strategy=Polca(), budget=culmen.Budget(evaluations=6))
culmen.check([{"a": "x"}], score)
culmen.Study.fork("runs/one", strategy=Beam, budget=20)
