"""Properties of every row softmax, on matrices of any shape."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from grader.judge.properties import Properties, Trial
from grader.problem import Call

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 300))


def test_adding_a_number_changes_nothing(properties: Properties) -> None:
    """softmax(x + c) = softmax(x), whatever the number c"""

    def law(trial: Trial, c: float) -> None:
        x = (trial.inputs.args["x"] * 16).round() / 16  # so that x + c is exact
        moved = trial.ask(Call({"x": x + c}))
        trial.agree(moved, trial.ask(Call({"x": x})), f"y changed when {c:g} was added to every entry of x")

    properties.hold(law, shape=SHAPES, c=st.sampled_from([-4096.0, -64.0, 64.0, 4096.0]))


def test_rows_sum_to_1(properties: Properties) -> None:
    """every row of y sums to 1"""

    def law(trial: Trial) -> None:
        sums = trial.ask(trial.inputs)["y"].sum(dim=-1)
        worst = int((sums - 1).abs().nan_to_num(torch.inf).argmax())
        trial.hold(abs(float(sums[worst]) - 1), f"row {worst} of y sums to {float(sums[worst]):.6g} and not to 1")

    properties.hold(law, shape=SHAPES)


def test_columns_in_another_order(properties: Properties) -> None:
    """columns of x in another order give those of y in that order"""

    def law(trial: Trial) -> None:
        x = trial.inputs.args["x"]
        order = torch.randperm(x.shape[1], generator=trial.generator, device=x.device)
        moved = trial.ask(Call({"x": x[:, order]}))
        straight = {name: y[:, order] for name, y in trial.ask(trial.inputs).items()}
        trial.agree(moved, straight, "y is another one when the columns of x are put in another order")

    properties.hold(law, shape=SHAPES)
