"""Properties of attention and of its gradients, for any number of queries and keys."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import strategies as st

from grader.judge.properties import Properties, Trial
from grader.problem import Call, load_beside

attention = load_beside(__file__, "baselines.py").eager

LENGTHS = st.integers(1, 70)
DIMENSIONS = st.sampled_from([16, 32])
ONE = st.just(1)


def with_args(call: Call, **args: torch.Tensor) -> Call:
    return replace(call, args=call.args | args)


def test_one_key_gives_its_value(properties: Properties) -> None:
    """with a single key every row of o is its value"""

    def law(trial: Trial) -> None:
        v = trial.inputs.args["v"].double()
        o = trial.ask(trial.inputs)["o"]
        trial.agree({"o": o}, {"o": v.expand_as(o)}, "with a single key o is not that key's value")

    properties.hold(law, n=LENGTHS, n_keys=ONE, d=DIMENSIONS, batch=st.integers(1, 2))


def test_rows_do_not_look_ahead(properties: Properties) -> None:
    """causal: rows of o do not depend on keys that come later"""

    def law(trial: Trial, seen: float) -> None:
        args = trial.inputs.args
        rows = 1 + int(seen * (args["q"].shape[1] - 1))
        k, v = args["k"].clone(), args["v"].clone()
        k[:, rows:] *= -3
        v[:, rows:] += 10
        changed = trial.ask(with_args(trial.inputs, k=k, v=v))["o"][:, :rows]
        words = f"rows below {rows} of o changed when keys and values from {rows} on were changed: consistent with rows that look ahead"
        trial.agree({"o": changed}, {"o": trial.ask(trial.inputs)["o"][:, :rows]}, words)

    properties.hold(
        law, n=LENGTHS, d=DIMENSIONS, batch=ONE, causal=st.just(True), seen=st.sampled_from([0.0, 0.5, 0.9])
    )


def test_keys_in_another_order(properties: Properties) -> None:
    """keys in another order, with their values, change nothing"""

    def law(trial: Trial) -> None:
        k, v = trial.inputs.args["k"], trial.inputs.args["v"]
        order = torch.randperm(k.shape[1], generator=trial.generator, device=k.device)
        moved = trial.ask(with_args(trial.inputs, k=k[:, order], v=v[:, order]))
        trial.agree(
            moved, trial.ask(trial.inputs), "o changed when the keys were put in another order, with their values"
        )

    properties.hold(law, n=LENGTHS, n_keys=LENGTHS, d=DIMENSIONS, batch=ONE)


def test_o_is_linear_in_v(properties: Properties) -> None:
    """o of v + 2 w is that of v plus twice that of w"""

    def law(trial: Trial) -> None:
        v = trial.inputs.args["v"]
        w = torch.randn(v.shape, generator=trial.generator, device=v.device)
        of_v, of_w, of_both = (trial.ask(with_args(trial.inputs, v=one))["o"] for one in (v, w, v + 2 * w))
        trial.agree({"o": of_both}, {"o": of_v + 2 * of_w}, "o of v + 2 w is not o of v plus twice o of w")

    properties.hold(law, n=LENGTHS, n_keys=LENGTHS, d=DIMENSIONS, batch=ONE)


def test_gradients_agree_with_differences(properties: Properties) -> None:
    """gradients agree with differences of o, computed in float64"""

    def law(trial: Trial, of: str) -> None:
        call, gradients = trial.inputs, trial.ask(trial.inputs)
        assert call.upstream is not None
        exact = {name: tensor.double() for name, tensor in call.args.items()}
        step = (
            torch.randn(exact[of].shape, generator=trial.generator, device=exact[of].device, dtype=torch.float64) * 1e-5
        )
        ends = [
            attention(**(exact | {of: exact[of] + sign * step}), is_causal=call.options["is_causal"])
            for sign in (1, -1)
        ]
        difference = float(((ends[0] - ends[1]) * call.upstream.double()).sum()) / 2e-5
        along = float((gradients[f"d{of}"] * step).sum()) / 1e-5
        trial.hold(
            abs(along - difference),
            f"along a random direction o · do changes by {difference:.6g} for a small step of {of}, and by {along:.6g} according to d{of}",
        )

    properties.hold(
        law,
        n=LENGTHS,
        d=DIMENSIONS,
        batch=ONE,
        causal=st.booleans(),
        of=st.sampled_from(["q", "k", "v"]),
    )
