"""A property of GeLU, on tensors of any length."""

from __future__ import annotations

from hypothesis import strategies as st

from grader.judge.properties import Properties, Trial
from grader.problem import Call


def test_what_is_odd_in_gelu_is_x(properties: Properties) -> None:
    """GeLU(x) − GeLU(−x) = x"""

    def law(trial: Trial) -> None:
        x = trial.inputs.args["x"]
        y, mirrored = trial.ask(trial.inputs)["y"], trial.ask(Call({"x": -x}))["y"]
        trial.agree({"y": y - mirrored}, {"y": x.double()}, "GeLU(x) − GeLU(−x) is not x")

    properties.hold(law, shape=st.tuples(st.integers(1, 5000)))
