"""Properties of GeLU, on tensors of any length."""

from __future__ import annotations

import torch
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


def test_x_and_y_start_equally_far_from_an_aligned_address(properties: Properties) -> None:
    """any start that x and y share, with every length from 0 to 40"""

    def law(trial: Trial) -> None:
        for start in (1, 2, 3):
            for n in range(41):
                x = trial.inputs.args["x"][start : start + n]
                y = {"y": torch.nn.functional.gelu(x.double(), approximate="tanh")}
                where = f"where x and y both start {4 * start} bytes past a multiple of 16"
                trial.agree(trial.ask(Call({"x": x}, starts={"y": start})), y, f"y is wrong for n = {n}, {where}")

    properties.hold(law, shape=st.just((64,)))
