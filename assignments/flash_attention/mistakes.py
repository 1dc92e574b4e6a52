"""Usual mistakes in attention, forward and backward: for each, the outputs of a kernel with that mistake, in
float64.
"""

# ruff: noqa: B023 (each lambda is called before its loop goes on)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from grader.problem import Call
from grader.verdict.suspects import LOW_PRECISION, ROUNDINGS, Suspect, fitted

TILES = (16, 32, 64, 128)
LARGEST_SCORES = 2**22  # queries × keys; larger calls are not computed again
LN_2 = math.log(2)
Form = Callable[[], tuple[Tensor | None, ...]]
Mistake = tuple[str, str, Form]  # words, cause, outputs
NOT_TURNED = "a tl.trans that is missing: where head_dim is the tile's length too, a tile fits either way"
MASKED = (0.0, -1.0, -10.0, 1.0)  # common scores of masked keys; scores far below all others do no harm


def suspects(call: Call, got: Mapping[str, Tensor], first: int) -> Iterator[Suspect]:
    """Attention with one mistake each, for the batch entry `first`."""
    q, k, v = call.args.values()
    if q.shape[1] * k.shape[1] > LARGEST_SCORES:
        return
    attention = Attention(q, k, v, call.upstream, bool(call.options.get("is_causal")), first)
    names = ("o",) if call.upstream is None else ("dq", "dk", "dv")

    def outputs(form: Form) -> dict[str, Tensor]:
        return {name: one[None] for name, one in zip(names, form(), strict=True) if one is not None and name in got}

    for words, cause, form in attention.mistakes(got):
        yield Suspect(words, cause, lambda: outputs(form), part=slice(first, first + 1))


def _more_keys(count: int) -> str:
    return f"{count} more key{'s' if count > 1 else ''}"


def _offset_missing(which: str) -> tuple[str, str]:
    """Words and cause of a mistake that uses tensors of batch entry 0."""
    cause = f"a batch offset that is missing for {which}: only the first batch entry is right"
    return f"with {which} of batch entry 0", cause


class Attention:
    """One batch entry of softmax(scale · q kᵀ) v, and of its gradients.

    Args:
        q: (batch, n, d).
        k, v: (batch, m, d).
        upstream: like q, or None.
        entry: the batch entry.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, upstream: Tensor | None, causal: bool, entry: int) -> None:
        self.batch = q.shape[0]
        self.entry = entry
        self.causal = causal
        self._all = (q, k, v, upstream)
        self.q, self.k, self.v = (tensor[entry].double() for tensor in (q, k, v))
        self.do = None if upstream is None else upstream[entry].double()
        (self.n, self.d), self.m = self.q.shape, len(self.k)
        self.scale = 1 / math.sqrt(self.d)
        self.i = torch.arange(self.n, device=q.device)[:, None]
        self.j = torch.arange(self.m, device=q.device)[None, :]
        self.s = self.q @ self.k.T * self.scale
        self.visible = (self.j <= self.i) | (not causal)
        masked = self.s.masked_fill(~self.visible, -math.inf)
        self.lse = torch.logsumexp(masked, -1, keepdim=True)
        self.top = masked.amax(-1, keepdim=True)
        self.p = (masked - self.lse).exp()
        self.o = self.p @ self.v
        if self.do is not None:
            self.dp = self.do @ self.v.T
            self.delta = (self.do * self.o).sum(-1, keepdim=True)
            self.ds = self.p * (self.dp - self.delta)

    def mistakes(self, got: Mapping[str, Tensor]) -> Iterator[Mistake]:
        """All mistakes. A mistake's form returns o, or dq, dk and dv, with None for outputs that the mistake leaves
        open.

        Args:
            got: the submission's outputs for all batch entries.
        """
        if self.do is not None:
            yield from self._backward()
            return
        for words, cause, form in self._forward(got["o"][self.entry].double()):
            yield words, cause, lambda: (form(),)

    # Both -------------------------------------------------------------------------------------------------------------

    def _masks(self) -> Iterator[tuple[str, str, Callable[[], Tensor]]]:
        """Wrong masks: words, cause, and the mask of the keys that each query sees."""
        i, j = self.i, self.j
        if not self.causal:
            if self.n == self.m:
                yield "with a causal mask", "a mask that is applied though is_causal is False", lambda: j <= i
            return
        missing = "a mask that is missing, here or everywhere"
        yield "without the causal mask", missing, lambda: torch.ones_like(self.visible)
        off_by_one = "a causal mask off by one: query i sees keys 0 … i, i among them"
        yield "when a query does not see its own key", off_by_one, lambda: j < i
        yield "when a query sees one key too many, i + 1", "a causal mask off by one", lambda: j <= i + 1
        yield (
            "when query i sees the later keys, from i on",
            "the upper triangle in place of the lower: the comparison is the wrong way round, or rows and columns are swapped",
            lambda: j >= i,
        )
        yield (
            "when query i sees the later keys, from i + 1 on",
            "the mask the wrong way round: what should be hidden is kept",
            lambda: j > i,
        )
        for b in TILES:
            if b < self.n:
                yield (
                    f"when the causal mask is applied in the diagonal's blocks of {b} × {b} alone",
                    "blocks above the diagonal that are neither masked nor left out",
                    lambda: (j <= i) | (j // b > i // b),
                )
                yield (
                    f"when the block of {b} on the diagonal is left out",
                    "a loop over the key blocks that ends, or begins, one block off the diagonal",
                    lambda: j // b < i // b,
                )
                row, key = i % b, j % b
                for which, seen in (("queries", j <= row), ("keys", key <= i), ("queries and keys", key <= row)):
                    for looked_at in (j // b <= i // b, j >= 0):
                        yield (
                            f"when the causal mask counts {which} from the start of each block of {b}",
                            "an index in the causal mask that lacks the start of its block",
                            lambda: seen & looked_at,
                        )
            yield (
                f"when the causal mask goes by whole blocks of {b} and nothing is masked in the one on the diagonal",
                "a mask that is missing within the diagonal's block",
                lambda: j // b <= i // b,
            )

    def _kept(self, size: int, what: str) -> Iterator[tuple[str, str, Callable[[Tensor], Tensor]]]:
        """Parts of a dimension of queries or keys: words, cause, and a mask of the indices that take part."""
        other, others = (self.n, "queries") if what == "keys" else (self.m, "keys")
        for b in (1, *TILES):
            if (kept := -(-other // b) * b) < size:
                yield (
                    f"of the first {kept} of {size} {what} alone, as many as there are {others}"
                    + (f", in whole blocks of {b}" if b > 1 else ""),
                    f"the number of {others} taken for the number of {what}",
                    lambda at: at < kept,
                )
        for b in reversed(TILES):
            if b >= size:
                continue
            full, last = size // b * b, (size - 1) // b * b
            if size % b:
                yield (
                    f"without the last {size % b} of {size} {what}, what is left after full blocks of {b}",
                    "a last, partial block that is left out",
                    lambda at: at < full,
                )
            yield (
                f"of the last block of {b} {what} alone",
                "a sum that each block overwrites instead of adding to it; or, in the forward, a running maximum that is never updated",
                lambda at: at >= last,
            )
            yield f"of the first {b} {what} alone", "a loop that ends after one block", lambda at: at < b
        if size > 1:
            yield f"without the last of {size} {what}", "a bound off by one", lambda at: at < size - 1

    # Forward ----------------------------------------------------------------------------------------------------------

    def _attend(self, s: Tensor, visible: Tensor, v: Tensor | None = None) -> Tensor:
        return torch.softmax(s.masked_fill(~visible, -math.inf), -1) @ (self.v if v is None else v)

    def _forward(self, given: Tensor) -> Iterator[tuple[str, str, Callable[[], Tensor]]]:
        for words, cause, factor in self._scales():
            yield words, cause, lambda: self._attend(self.s * factor, self.visible)
        for words, cause, mask in self._masks():
            yield words, cause, lambda: self._attend(self.s, mask())
        for words, cause, keep in self._kept(self.m, "keys"):
            yield words, cause, lambda: self._attend(self.s, self.visible & keep(self.j))
        for b in TILES:
            pad = -self.m % b
            if pad:
                yield (
                    f"with {_more_keys(pad)} of zeros, padded to blocks of {b}",
                    "keys beyond the end that are loaded as 0 and not masked: their score is 0, and exp(0 − m) is not",
                    lambda: self._with_more(math.log(pad)),
                )
            if b < self.m:
                yield from self._unscaled(b)
        yield (
            "without the maximum subtracted",
            "exp of the scores as they are, which overflows above 88 and vanishes below −104",
            lambda: self._relative_to(0.0),
        )
        yield (
            "with a maximum that starts at 0",
            "a running maximum that starts at 0 instead of −inf: rows far below 0 vanish",
            lambda: self._relative_to(self.top.clamp(min=0)),
        )
        for score in MASKED:
            cause = f"masked scores that are {score:g} and not −inf: exp({score:g} − m) is not 0"
            for b in (*TILES, 2 * self.m) if self.causal else ():
                words = f"with {score:g} as the score of the keys that the causal mask hides"
                hidden = self.s.masked_fill(~self.visible, score)
                yield words, cause, lambda: self._attend(hidden, self.j // b <= self.i // b)
                if self.m % b:
                    yield (
                        f"{words}, and of those beyond the end",
                        f"{cause}; here the causal mask undoes the one for the end",
                        lambda: self._masked_with(score, b),
                    )
            for b in TILES if score and self.m > 1 else ():  # a single key meets every factor for some number of keys
                if pad := -self.m % b:
                    yield (
                        f"with {_more_keys(pad)} whose score is {score:g}, padded to blocks of {b}",
                        f"keys beyond the end: {cause}",
                        lambda: self._with_more(score + math.log(pad)),
                    )
        yield (
            "without dividing by the sum",
            "a division by the row sum that is missing",
            lambda: self.o * (self.lse - self.top).exp(),
        )
        for words, power in (("the sum twice", 2.0), ("the root of the sum", 0.5)):
            yield (
                f"when it is divided by {words}",
                "another division than the one by the row sum Σ exp(S − m)",
                lambda: self.o * ((self.lse - self.top) * (1 - power)).exp(),
            )
        for b in TILES:
            yield (
                f"with one maximum for all queries of a tile, of {b} × {b} say",
                "a maximum over the whole tile: its axis is missing",
                lambda: self._by_tiles(b, one_maximum=True),
            )
            if self.m == 1:  # With one key o = v: any wrong normaliser fits some tile. Skip.
                continue
            yield (
                f"with the sums of the columns, and not of the rows, of each tile of {b} × {b}",
                "a sum along the wrong axis: a query's sum runs over its keys",
                lambda: self._by_tiles(b, one_maximum=False),
            )
        for more in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
            yield (
                f"with {more:g} added to the sum",
                "a sum that is kept from 0: with the maximum subtracted it is never less than 1",
                lambda: self.o / (1 + more * (self.top - self.lse).exp()),
            )
        for b in TILES:
            if b >= self.m:
                continue
            for once_more in (False, True):
                yield (
                    f"when the output is divided by the sum so far after each block of {b} keys"
                    + (", and at the end" if once_more else ""),
                    "a division within the loop: once is enough, after all blocks",
                    lambda: self._divided_in_each_block(b, once_more),
                )
            yield (
                f"when each block of {b} keys has a softmax of its own, and what comes out is added up",
                "maximum and sum that start anew in each block",
                lambda: self._softmax_of_each_block(b),
            )
        total = (self.lse - self.top).exp()
        for low, rounded in ROUNDINGS:
            low_q, low_k, low_v = (rounded(tensor) for tensor in (self.q, self.k, self.v))
            for words, form in (
                (
                    f"for q, k and v rounded to {low}",
                    lambda: self._attend(low_q @ low_k.T * self.scale, self.visible, low_v),
                ),
                (f"for q and k rounded to {low}", lambda: self._attend(low_q @ low_k.T * self.scale, self.visible)),
                (f"with the scores rounded to {low}", lambda: self._attend(rounded(self.s), self.visible)),
                (f"with the weights rounded to {low}", lambda: rounded(self.p * total) @ self.v / total),
                (f"with the weights and v rounded to {low}", lambda: rounded(self.p * total) @ low_v / total),
                (f"with o rounded to {low}", lambda: rounded(self.o)),
            ):
                yield words, LOW_PRECISION, form
        yield (
            "with k and v swapped",
            "arguments in the wrong order",
            lambda: self._attend(self.q @ self.v.T * self.scale, self.visible, self.k),
        )
        yield (
            f"with q k in place of q kᵀ, in tiles of {self.d} × {self.d}",
            NOT_TURNED,
            lambda: self._attend(self._not_turned(self.q, self.k) * self.scale, self.visible),
        )
        if self.n == self.m:
            yield (
                "with q and k swapped",
                "rows and columns of the scores swapped",
                lambda: self._attend(self.s.T, self.visible),
            )
        yield (
            "without softmax",
            "exponentials that are missing",
            lambda: self.s.masked_fill(~self.visible, 0) @ self.v,
        )
        yield "when all weights are equal", "scores that are all 0", lambda: self._attend(0 * self.s, self.visible)
        for which, q, k, v in self._of_first_entry():
            yield *_offset_missing(which), lambda: self._attend(q @ k.T * self.scale, self.visible, v)
        factor = fitted(given, lambda value: self._attend(self.s * value, self.visible), 1.0)
        if math.isfinite(factor):
            yield (
                f"with scores that are {factor:.5g} times what they should be",
                f"a wrong constant or scale in the exponent, such as {factor / LN_2:.5g} in place of log₂e, which is {1 / LN_2:.6g}",
                lambda: self._attend(self.s * factor, self.visible),
            )

    def _scales(self) -> Iterator[tuple[str, str, float]]:
        """Wrong factors of the scores: words, cause, factor."""
        root = math.sqrt(self.d)
        yield "without the scale 1/√d", "a scale that is missing", root
        yield "with the scale 1/d in place of 1/√d", "a scale without its root, or applied twice", 1 / root
        yield "with the scale √d in place of 1/√d", "a multiplication where a division is meant", self.d
        yield "with −S in place of S", "a sign that is wrong in the exponent", -1.0
        for words, cause, other in self._other_lengths():
            ratio = self.d / other
            too_many = {4.0: "; or a factor 2 too many", 0.25: "; or a factor 1/2 too many"}.get(ratio, "")
            yield words, cause + too_many, math.sqrt(ratio)
        base = "base 2 where base e is meant:"
        yield "with exp2 in place of exp", f"{base} exp(t) = exp2(t · log₂e)", LN_2
        yield "with scores that are multiplied by log₂e", f"{base} that factor belongs to exp2", 1 / LN_2

    def _other_lengths(self) -> Iterator[tuple[str, str, int]]:
        """Numbers that may be taken for head_dim in the scale: words, cause, number."""
        for d in (16, 32, 64, 128):
            if d not in (self.d, self.n, self.m):
                yield f"with the scale of head_dim {d}", "a scale that is fixed and not 1/√d", d
        for size, what in {self.n: "queries", self.m: "keys"}.items():
            if size != self.d:
                cause = "a scale from the length, or one that is fixed: it is 1/√d, d being head_dim"
                yield f"with the scale 1/√{size}, as many as there are {what}", cause, size

    def _masked_with(self, score: float, b: int) -> Tensor:
        """Causal attention over whole blocks of b keys up to the diagonal's, with `score` for each hidden key."""
        pad = -self.m % b
        j = torch.arange(self.m + pad, device=self.s.device)
        s = functional.pad(self.s, (0, pad)).masked_fill(j > self.i, score)
        return self._attend(s, j // b <= self.i // b, functional.pad(self.v, (0, 0, 0, pad)))

    def _not_turned(self, left: Tensor, right: Tensor) -> Tensor:
        """The products of left with tiles of d rows of `right`, in place of those with the tiles' transposes."""
        tiles = functional.pad(right, (0, 0, 0, -len(right) % self.d)).unflatten(0, (-1, self.d))
        return (left @ tiles).transpose(0, 1).flatten(1)[:, : len(right)]

    def _with_more(self, log_sum: float) -> Tensor:
        """o with further keys whose values are 0 and whose exponentials have the sum exp(log_sum)."""
        return self.o * (self.lse - torch.logaddexp(self.lse, self.lse.new_tensor(log_sum))).exp()

    def _unscaled(self, b: int) -> Iterator[tuple[str, str, Callable[[], Tensor]]]:
        """Online softmaxes in blocks of b keys that rescale wrongly when the maximum moves."""
        moves = f"as the maximum moves from one block of {b} keys to the next"
        for words, cause, of_o, of_sum in (
            ("output is not rescaled", "missing before the output", 0.0, 1.0),
            ("sum is not rescaled", "missing before the sum", 1.0, 0.0),
            ("output and the sum are not rescaled", "missing before the output", 0.0, 0.0),
            ("output is rescaled twice", "there twice before the output", 2.0, 1.0),
            ("sum is rescaled twice", "there twice before the sum", 1.0, 2.0),
            ("output and the sum are rescaled twice", "there twice", 2.0, 2.0),
            ("output and the sum are rescaled by exp2 in place of exp", "in another base than the rest", LN_2, LN_2),
            ("output is rescaled by exp2 in place of exp", "in another base than the rest", LN_2, 1.0),
            ("sum is rescaled by exp2 in place of exp", "in another base than the rest", 1.0, LN_2),
        ):
            yield (
                f"when the {words} {moves}",
                f"a factor exp(m_old − m_new) that is {cause}",
                lambda: self._online(b, of_o, of_sum),
            )

    def _blocks(self, b: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """The online softmax: for each block of b keys its slice, exp(S − m) and exp(m_old − m), where m is the maximum
        so far.
        """
        s = self.s.masked_fill(~self.visible, -math.inf)
        m = s.new_full((self.n, 1), -math.inf)
        for start in range(0, self.m, b):
            keys = slice(start, start + b)
            new = torch.maximum(m, s[:, keys].amax(-1, keepdim=True))
            yield keys, (s[:, keys] - new).exp(), (m - new).exp()
            m = new

    def _online(self, b: int, of_o: float, of_sum: float) -> Tensor:
        """An online softmax that rescales output and sum by the given powers of exp(m_old − m_new)."""
        total, o = torch.zeros_like(self.lse), torch.zeros_like(self.o)
        for keys, p, factor in self._blocks(b):
            total = total * factor**of_sum + p.sum(-1, keepdim=True)
            o = o * factor**of_o + p @ self.v[keys]
        return o / total

    def _by_tiles(self, b: int, *, one_maximum: bool) -> Tensor:
        """The online softmax in tiles of b × b, in float32, with one maximum for all queries of a tile, or with sums
        along queries.

        Queries beyond the end are 0, and so are their scores.
        """
        rows = torch.arange(-(-self.n // b) * b, device=self.s.device)[:, None]
        s = functional.pad(self.s, (0, -self.m % b, 0, len(rows) - self.n)).float()
        keys = torch.arange(s.shape[1], device=s.device)
        s = s.masked_fill((keys >= self.m) | (self.causal & (keys > rows)), -math.inf).unflatten(0, (-1, b))
        v = functional.pad(self.v, (0, 0, 0, -self.m % b)).float()
        m = s.new_full((len(s), b, 1), -math.inf)
        total, o = torch.zeros_like(m), s.new_zeros((len(s), b, v.shape[-1]))
        for start in range(0, s.shape[2], b):
            tile = s[..., start : start + b]
            new = torch.maximum(m, tile.amax((-2, -1) if one_maximum else -1, keepdim=True))
            p, factor = (tile - new).exp(), (m - new).exp()
            sums = p.sum(-1, keepdim=True) if one_maximum else p.sum(-2)[..., None]
            # Only tiles up to the diagonal are summed.
            seen = (start <= rows.unflatten(0, (-1, b))[:, :1]) | (not self.causal)
            total = torch.where(seen, total * factor + sums, total)
            o = torch.where(seen, o * factor + p @ v[start : start + b], o)
            m = torch.where(seen, new, m)
        result: Tensor = (o / total).flatten(0, 1)[: self.n].double()
        return result

    def _softmax_of_each_block(self, b: int) -> Tensor:
        scores = functional.pad(self.s.masked_fill(~self.visible, -math.inf), (0, -self.m % b), value=-math.inf)
        weights = torch.softmax(scores.unflatten(-1, (-1, b)), -1).flatten(-2)[:, : self.m]
        return weights.nan_to_num(nan=0.0) @ self.v  # for a block that is hidden as a whole

    def _divided_in_each_block(self, b: int, once_more: bool) -> Tensor:
        total, o = torch.zeros_like(self.lse), torch.zeros_like(self.o)
        for keys, p, factor in self._blocks(b):
            total = total * factor + p.sum(-1, keepdim=True)
            # Only blocks up to the diagonal are summed.
            looked_at = self.i // b * b >= keys.start if self.causal else self.i >= 0
            o = torch.where(looked_at, (o * factor + p @ self.v[keys]) / total, o)
        return o / total if once_more else o

    def _relative_to(self, maximum: Tensor | float) -> Tensor:
        """o with exponentials relative to `maximum`, in float32, where exp overflows and vanishes."""
        weights = (self.s - maximum).float().exp().masked_fill(~self.visible, 0.0)
        return (weights @ self.v.float() / weights.sum(-1, keepdim=True)).double()

    def _of_first_entry(self) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
        """q, k and v of this entry with some of them from entry 0, after the names of these."""
        for which in ("k and v", "q", "k", "v", "q, k and v") if self.entry else ():
            q, k, v = (
                tensor[0 if name in which else self.entry].double()
                for name, tensor in zip("qkv", self._all, strict=False)
                if tensor is not None
            )
            yield which, q, k, v

    # Backward ---------------------------------------------------------------------------------------------------------

    def _outputs(self, p: Tensor, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert self.do is not None
        return self.scale * ds @ self.k, self.scale * ds.T @ self.q, p.T @ self.do

    def _backward(self) -> Iterator[Mistake]:
        assert self.do is not None
        do, p, ds, dp, delta, s = self.do, self.p, self.ds, self.dp, self.delta, self.s

        def of_p(wrong: Tensor) -> tuple[Tensor, ...]:
            return self._outputs(wrong, wrong * (dp - delta))

        def of_ds(wrong: Tensor) -> tuple[Tensor | None, ...]:
            return (*self._outputs(p, wrong)[:2], None)

        dq, dk, _ = self._outputs(p, ds)
        root = math.sqrt(self.d)
        for words, how, factor in (
            ("without the factor scale = 1/√d", "that is missing", root),
            ("with the factor scale = 1/√d twice", "too many", 1 / root),
        ):
            yield words, f"a scale {how} where dS meets k or q", lambda: (dq * factor, dk * factor, None)
        operand = "delta from the wrong operand"
        for words, cause, other in (
            ("0", "delta missing in dS, or made from an o that is 0", 0 * delta),
            ("the row sum of o ∘ o", operand, (self.o**2).sum(-1, keepdim=True)),
            ("the row sum of dO ∘ dO", operand, (do**2).sum(-1, keepdim=True)),
            ("the row sum of dO", operand, do.sum(-1, keepdim=True)),
            ("the row sum of q ∘ dO", operand, (self.q * do).sum(-1, keepdim=True)),
            ("its negative", "delta with the wrong sign", -delta),
            ("the row mean of dO ∘ O", "a mean in place of a sum in delta", delta / self.d),
            *self._other_sums(delta),
            (
                "scale · rowsum(dO ∘ O)",
                "a scale that belongs to the scores, and at the end to dQ and dK",
                delta * self.scale,
            ),
            *([("the row sum of dO ∘ V", operand, (do * self.v).sum(-1, keepdim=True))] if self.n == self.m else []),
        ):
            yield (
                f"when delta is {words}",
                f"{cause}: it is rowsum(dO ∘ O), to be subtracted",
                lambda: of_ds(p * (dp - other)),
            )
        yield (
            "when dS is P ∘ (scale · dP − delta)",
            "a scale that belongs to the scores, and at the end to dQ and dK: dP = dO Vᵀ",
            lambda: of_ds(p * (self.scale * dp - delta)),
        )
        for words, left, right in (("dO Kᵀ", do, self.k), ("Q Vᵀ", self.q, self.v), ("O Vᵀ", self.o, self.v)):
            yield (
                f"when dP is {words}",
                "the wrong operand of dP = dO Vᵀ",
                lambda: of_ds(p * (left @ right.T - delta)),
            )
        tiles = f"in tiles of {self.d} × {self.d}"
        yield (
            f"when dP is dO V in place of dO Vᵀ, {tiles}",
            NOT_TURNED,
            lambda: of_ds(p * (self._not_turned(do, self.v) - delta)),
        )
        for words, cause, wrong in (
            ("dP − delta, without the factor P", "a factor P that is missing in dS", dp - delta),
            ("P ∘ dP − delta", "brackets that are missing: dS = P ∘ (dP − delta)", p * dp - delta),
        ):
            for hidden in (~self.visible, torch.zeros_like(self.visible)):
                yield f"when dS is {words}", cause, lambda: of_ds(wrong.masked_fill(hidden, 0))
        for words, of_dq, of_dk in (
            ("from V in place of K, in dQ = scale · dS K", self.v, None),
            ("from V in place of Q, in dK = scale · dSᵀ Q", None, self.v if self.n == self.m else None),
            ("from dO in place of Q, in dK = scale · dSᵀ Q", None, do),
            ("from O in place of Q, in dK = scale · dSᵀ Q", None, self.o),
        ):
            yield (
                words,
                "the wrong operand of the last product",
                lambda: (
                    None if of_dq is None else self.scale * ds @ of_dq,
                    None if of_dk is None else self.scale * ds.T @ of_dk,
                    None,
                ),
            )
        if self.n == self.m:
            yield (
                "with q and k swapped in the last products",
                "the wrong operand: dQ = scale · dS K, dK = scale · dSᵀ Q",
                lambda: (self.scale * ds @ self.q, self.scale * ds.T @ self.k, None),
            )
            yield from self._of_keys()
        for words, wrong in (("P", p), ("dP", dp)):
            yield f"when {words} is taken for dS", "the wrong operand of the last products", lambda: of_ds(wrong)
        operand = "the wrong operand of dV = Pᵀ dO: dS in place of P"
        if self.m == 1:
            operand += "; or 0 where dv belongs: with a single key dS is 0"
        yield ("from dS in place of P", operand, lambda: (None, None, ds.T @ do))
        yield ("from scale · dS in place of P", operand, lambda: (None, None, self.scale * ds.T @ do))
        for words, other in (("O", self.o), ("Q", self.q)):
            yield f"from {words} in place of dO", "the wrong operand of dV = Pᵀ dO", lambda: (None, None, p.T @ other)
        if self.n == self.m:
            yield (
                "without the transposition",
                "a product with dS or P that should be with its transpose",
                lambda: (self.scale * ds.T @ self.k, self.scale * ds @ self.q, p @ do),
            )
        top, log_sum = self.top, self.lse - self.top
        mixed = "base 2 mixed with base e in the logsumexp"
        for words, cause, lse in (
            (
                "with a logsumexp that is log₂e times as large",
                "a base-2 logsumexp in a base-e exponential",
                self.lse / LN_2,
            ),
            (
                "with a logsumexp that is ln 2 times as large",
                "a base-e logsumexp in a base-2 exponential",
                self.lse * LN_2,
            ),
            ("with m + log₂ Σ as the logsumexp", mixed, top + log_sum / LN_2),
            ("with m · log₂e + ln Σ as the logsumexp", mixed, top / LN_2 + log_sum),
            ("with the maximum as the logsumexp", "a logsumexp without the logarithm of the sum", top),
            ("with log Σ alone as the logsumexp", "a logsumexp without the maximum m: L = m + log Σ", log_sum),
            ("with m − log Σ as the logsumexp", "a sign that is wrong in the logsumexp: L = m + log Σ", top - log_sum),
            ("without the logsumexp", "a logsumexp that is not subtracted: P = exp(S − L)", 0 * self.lse),
            ("with Σ as the logsumexp", "a logsumexp that is the sum alone: L = m + log Σ", log_sum.exp()),
            ("with the logsumexp's negative", "a sign that is wrong: P = exp(S − L)", -self.lse),
            ("with m + Σ as the logsumexp", "a logarithm that is missing in the logsumexp", top + log_sum.exp()),
            *self._other_logsumexps(log_sum),
        ):
            yield words, cause, lambda: of_p((s - lse).exp().masked_fill(~self.visible, 0))
        yield (
            "when P is exp2(S − L)",
            "base 2 where base e is meant: exp(t) = exp2(t · log₂e)",
            lambda: of_p(((s - self.lse) * LN_2).exp().masked_fill(~self.visible, 0)),
        )
        for words, cause, factor in self._scales():
            yield (
                f"when the scores are computed again {words}",
                f"{cause}: the backward's S must be the forward's",
                lambda: of_p((s * factor - self.lse).exp().masked_fill(~self.visible, 0)),
            )
        for words, cause, mask in self._masks():
            yield words, cause, lambda: of_p((s - self.lse).exp().masked_fill(~mask(), 0))
        for score in MASKED if self.causal else ():
            for b in (*TILES, 2 * self.m):
                yield (
                    f"with {score:g} as the score of the keys that the causal mask hides",
                    f"masked scores that are {score:g} and not −inf: exp({score:g} − L) is not 0",
                    lambda: of_p((s.masked_fill(~self.visible, score) - self.lse).exp() * (self.j // b <= self.i // b)),
                )
        for b in TILES:
            if self.causal and b < self.n:
                yield (
                    f"when each block of {b} keys begins with the block of queries after its own",
                    "a loop over the query blocks that starts one block after the diagonal",
                    lambda: of_p(p * (self.i // b > self.j // b)),
                )
                yield (
                    f"when each block of {b} keys begins with the next multiple of {2 * b} queries",
                    "a loop over the query blocks that begins too late for every second block of keys: "
                    "a start that is rounded up and not down",
                    lambda: of_p(p * (self.i >= (self.j // b + 1) // 2 * 2 * b)),
                )
        for words, cause, keep in self._kept(self.n, "queries"):
            yield words, cause, lambda: (None, *of_p(p * keep(self.i))[1:])
        for words, cause, keep in self._kept(self.m, "keys"):
            yield words, cause, lambda: (of_p(p * keep(self.j))[0], None, None)
        ones = torch.ones_like(do)
        ones_ds = p * (ones @ self.v.T - (ones * self.o).sum(-1, keepdim=True))
        yield (
            "when the upstream gradient is 1 everywhere",
            "an upstream gradient that is ignored",
            lambda: (self.scale * ones_ds @ self.k, self.scale * ones_ds.T @ self.q, p.T @ ones),
        )
        if self.entry:
            yield from self._of_other_rows()

    def _of_keys(self) -> Iterator[Mistake]:
        """Per-query numbers taken at the index of the key: they are another query's."""
        cause = "an index of keys for one of queries"
        for b in (1, *TILES):
            place = self.j // b * b + self.i % b
            size = f", in tiles of {b} × {b}" if b > 1 else ""

            def taken(numbers: Tensor) -> Tensor:
                return torch.where(place < self.n, numbers[place.clamp(max=self.n - 1), 0], 0.0)

            lse, delta = taken(self.lse), taken(self.delta)
            p = (self.s - lse).exp().masked_fill(~self.visible, 0)
            ds = self.p * (self.dp - delta)
            for which, form in (
                ("delta", lambda: (*self._outputs(self.p, ds)[:2], None)),
                ("logsumexp", lambda: self._outputs(p, p * (self.dp - self.delta))),
                ("logsumexp and delta", lambda: self._outputs(p, p * (self.dp - delta))),
            ):
                yield (f"with {which} at the place of the key, not of the query{size}", f"{cause}: of {which}", form)

    def _other_sums(self, delta: Tensor) -> Iterator[tuple[str, str, Tensor]]:
        """Sums and means of dO ∘ O over more than a row."""
        cause = "a sum over too much in delta"
        if self.n > 1:
            yield "the sum of dO ∘ O over all rows", cause, delta.sum().expand_as(delta)
        if self.batch > 1:
            q, k, v, do = self._all
            each = torch.stack([Attention(q, k, v, do, self.causal, entry).delta for entry in range(self.batch)])
            yield "the sum of dO ∘ O over all batch entries", cause, each.sum().expand_as(delta)
            if self.n > 1:
                yield "the sum of dO ∘ O over each row of all batch entries", cause, each.sum(0)

    def _other_logsumexps(self, log_sum: Tensor) -> Iterator[tuple[str, str, Tensor]]:
        """Logsumexps of wrong scores, or of some scores only."""
        root = math.sqrt(self.d)
        yield (
            "with the maximum of the unscaled scores, m √d + log Σ, as the logsumexp",
            "scores without their scale in the logsumexp: L = m + log Σ, both of the scaled scores",
            self.top * root + log_sum,
        )
        twice = "a maximum that is scaled twice in the logsumexp"
        yield "with m / √d + log Σ as the logsumexp", twice, self.top / root + log_sum
        if self.causal:
            yield (
                "with the logsumexp of all keys, the hidden ones too",
                "a logsumexp without the causal mask",
                torch.logsumexp(self.s, -1, keepdim=True),
            )
        masked = self.s.masked_fill(~self.visible, -math.inf)
        for b in TILES:
            if pad := -self.m % b:
                yield (
                    f"with {_more_keys(pad)} of zeros in the logsumexp, padded to blocks of {b}",
                    "keys beyond the end that count in the sum",
                    torch.logaddexp(self.lse, self.lse.new_tensor(math.log(pad))),
                )
            if b < self.m:
                total = sum((p.sum(-1, keepdim=True) for _, p, _ in self._blocks(b)), torch.zeros_like(self.lse))
                yield (
                    f"with a logsumexp whose sum is not rescaled as the maximum moves from one block of {b} keys to the next",
                    "a factor exp(m_old − m_new) that is missing before the sum",
                    self.top + total.log(),
                )
                yield (
                    f"with the logsumexp of the first {b} keys alone",
                    "a logsumexp that is stored too early, or not updated by later blocks",
                    torch.logsumexp(masked[:, :b], -1, keepdim=True),
                )

    def _of_other_rows(self) -> Iterator[Mistake]:
        """Per-query numbers from batch entry 0."""
        assert self.do is not None
        zero = Attention(*self._all, self.causal, 0)
        s, dp, do = self.s.masked_fill(~self.visible, -math.inf), self.dp, self.do
        for which, lse, delta in (
            ("the logsumexp", zero.lse, self.delta),
            ("delta", self.lse, zero.delta),
            ("the logsumexp and delta", zero.lse, zero.delta),
        ):
            yield *_offset_missing(which), lambda: self._outputs((s - lse).exp(), (s - lse).exp() * (dp - delta))
        for which, q, k, v in self._of_first_entry():
            p = (q @ k.T * self.scale).masked_fill(~self.visible, -math.inf).sub(self.lse).exp()
            ds = p * (do @ v.T - self.delta)
            yield *_offset_missing(which), lambda: (self.scale * ds @ k, self.scale * ds.T @ q, p.T @ do)
