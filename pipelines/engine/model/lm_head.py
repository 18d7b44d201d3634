"""The last layer: hidden states → logits, or at once the likeliest tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.model.linear import make_linear
from pipelines.engine.model.precision import StackPrecision
from pipelines.engine.weights.architecture import Architecture
from pipelines.engine.weights.checkpoint import Weights
from pipelines.engine.weights.quantised import QuantisedWeight

__all__ = ["LMHead", "argmax", "logprobs_of"]

# So many sets of ids that are ruled out are remembered as biases.
_CACHED_BIASES = 8


def argmax(
    logits: Tensor, ruled_out: Sequence[Tensor] = (), logprobs: bool = False
) -> tuple[Tensor, Tensor]:
    """The likeliest token of each row of logits [n, vocab] other than these ids, and its logit or
    log-probability: NaN where a logit is, −∞ where all are. Changes the logits."""
    for ids in ruled_out:
        logits.index_fill_(1, ids, -torch.inf)
    if logits.device.type == "cpu":  # numpy's is several times as fast as torch's
        tokens = torch.from_numpy(logits.numpy().argmax(axis=-1))
    else:
        tokens = logits.argmax(dim=-1)
    chosen = logits.gather(1, tokens[:, None])[:, 0]
    return tokens, logprobs_of(chosen, logits) if logprobs else chosen


def logprobs_of(chosen: Tensor, logits: Tensor) -> Tensor:
    """Log-probabilities of chosen logits [n], each of a row of logits [n, vocab]: NaN where a logit
    is, −∞ where all of them are."""
    # Without a lower limit −∞ − −∞ would be NaN, too.
    return chosen - logits.logsumexp(dim=-1).clamp_min_(torch.finfo(logits.dtype).min)


class LMHead:
    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        tied: str,
        side: StackPrecision,
        device: torch.device,
        shortlist: Sequence[int] | None,
    ) -> None:
        """tied: the name of the table of tokens, for models that have no other. shortlist: the ids
        that can be generated, where not all."""
        vocab, width = architecture.vocab_size, architecture.decoder.d_model
        name = "lm_head.weight" if "lm_head.weight" in weights else "proj_out.weight"
        own = name in weights if architecture.tied_head is None else not architecture.tied_head
        table: Tensor | QuantisedWeight
        if own:
            table = weights.take(name, vocab, width)
        else:
            table = weights.shared(tied, vocab, width, device, side.weights)
        if architecture.head_scale != 1.0:
            exact = table if isinstance(table, QuantisedWeight) else table.float()
            table = exact * architecture.head_scale
        # What a family adds to the logits after the head is often absent, and else often zero.
        bias = None
        if "final_logits_bias" in weights:
            bias = weights.take("final_logits_bias", 1, vocab)[0]
            bias = bias if bias.any() else None
        self._kept = self._places = None
        if shortlist is not None:
            # Behind those kept the head has an output for all others, whatever it computes.
            kept = torch.tensor([*shortlist, 0])
            table = table[kept.to(table.device)]
            bias = None if bias is None else bias[kept]
            places = torch.full((vocab,), len(shortlist))
            places[kept[:-1]] = torch.arange(len(shortlist))
            self._kept, self._places = kept.to(device), places.to(device)
        self._linear = make_linear(table, bias, side, device)
        self._biases: dict[tuple[int, ...], tuple[Sequence[Tensor], Tensor]] = {}

    def logits(self, hidden: Tensor) -> Tensor:
        """States [n, d_model] → float32 [n, vocab]: −∞ outside the shortlist."""
        logits = self._linear(hidden).float()
        if self._places is None:
            return logits
        logits[:, -1] = -torch.inf
        return logits.index_select(1, self._places)

    def argmax(
        self, hidden: Tensor, ruled_out: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        """As the function, of the states' logits, which a kernel need not write down."""
        if not isinstance(self._linear, CompiledLinear):
            return argmax(self.logits(hidden), ruled_out, logprobs)
        bias = self._bias(self._linear, ruled_out)
        tokens, chosen, totals = self._linear.argmax(hidden, bias, logprobs)
        if logprobs:
            chosen = torch.where(chosen.isfinite(), -totals.log(), chosen)
        return tokens if self._kept is None else self._kept[tokens], chosen

    def _bias(self, linear: CompiledLinear, ruled_out: Sequence[Tensor]) -> Tensor:
        """What is added to the products, −∞ for what is not to be chosen."""
        key = tuple(map(id, ruled_out))
        if key not in self._biases:
            bias = linear.bias.clone()
            for ids in ruled_out:
                bias[ids if self._places is None else self._places[ids]] = -torch.inf
            if self._places is not None:
                bias[-1] = -torch.inf
            if len(self._biases) == _CACHED_BIASES:
                self._biases.clear()
            self._biases[key] = ruled_out, bias  # who is remembered keeps its identity
        return self._biases[key][1]
