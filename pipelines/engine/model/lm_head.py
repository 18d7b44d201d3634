"""The LM head: hidden states → logits, or directly the argmax tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.model.linear import make_linear
from pipelines.engine.model.precision import StackPrecision
from pipelines.engine.weights.checkpoint import Weights
from pipelines.engine.weights.quantized import QuantizedWeight
from pipelines.families.architecture import Architecture

# Bias vectors that are cached, one per set of suppressed ids.
_CACHED_BIASES = 8


def argmax(
    logits: Tensor, suppressed: Sequence[Tensor] = (), logprobs: bool = False
) -> tuple[Tensor, Tensor]:
    """The most likely token of each row, suppressed ids excluded.

    Args:
        logits: [n, vocab]; overwritten.
        suppressed: tensors of token ids.
        logprobs: whether to return log-probabilities instead of logits.

    Returns:
        tokens: int64 [n].
        chosen: [n], logits or log-probabilities of the tokens: NaN if the row contains NaN, −∞ if
            all its logits are −∞.
    """
    for ids in suppressed:
        logits.index_fill_(1, ids, -torch.inf)
    if logits.device.type == "cpu":  # numpy's argmax is several times as fast as torch's
        tokens = torch.from_numpy(logits.numpy().argmax(axis=-1))
    else:
        tokens = logits.argmax(dim=-1)
    if logprobs:
        return tokens, logprobs_of(tokens, logits)
    return tokens, logits.gather(1, tokens[:, None])[:, 0]


def logprobs_of(tokens: Tensor, logits: Tensor) -> Tensor:
    """Log-probabilities [n] of chosen tokens, one of each row of logits [n, vocab]: NaN if the row
    contains NaN, −∞ if all its logits are −∞."""
    # Of torch's operations the one whose sums do not depend on the number of threads; several
    # times as fast as logsumexp.
    found = logits.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
    if not found.is_cpu or found.isnan().any():  # a GPU would have to be waited for
        found.masked_fill_(logits.isneginf().all(dim=-1), -torch.inf)
    return found


class LMHead:
    """The linear layer from hidden states to logits.

    Args:
        tied: name of the token embedding, used as weights by models without a head of their own.
        side: the decoder's precision.
        shortlist: the only ids that can be generated; None for the whole vocabulary.
    """

    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        tied: str,
        side: StackPrecision,
        device: torch.device,
        shortlist: Sequence[int] | None,
    ) -> None:
        vocab, d_model = architecture.vocab_size, architecture.decoder.d_model
        name = "lm_head.weight" if "lm_head.weight" in weights else "proj_out.weight"
        untied = name in weights if architecture.tied_head is None else not architecture.tied_head
        table: Tensor | QuantizedWeight
        if untied:
            table = weights.take(name, vocab, d_model)
        else:
            table = weights.shared(tied, vocab, d_model, device, side.weight_dtype)
        if architecture.head_scale != 1.0:
            exact = table if isinstance(table, QuantizedWeight) else table.float()
            table = exact * architecture.head_scale
        # Some families add a bias to the logits. It is often absent, and otherwise often zero.
        bias = None
        if "final_logits_bias" in weights:
            bias = weights.take("final_logits_bias", 1, vocab)[0]
            bias = bias if bias.any() else None
        # Output i of the linear layer is the logit of id _kept_ids[i]; that of id j is output
        # _output_indices[j].
        self._kept_ids = self._output_indices = None
        if shortlist is not None:
            # One more output stands for all other ids; its value is never used.
            kept = torch.tensor([*shortlist, 0])
            table = table[kept.to(table.device)]
            bias = None if bias is None else bias[kept]
            output_indices = torch.full((vocab,), len(shortlist))
            output_indices[kept[:-1]] = torch.arange(len(shortlist))
            self._kept_ids, self._output_indices = kept.to(device), output_indices.to(device)
        self._linear = make_linear(table, bias, side, device)
        self._biases: dict[tuple[int, ...], tuple[Sequence[Tensor], Tensor]] = {}

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [n, d_model] → float32 [n, vocab]; −∞ outside the shortlist."""
        logits = self._linear(hidden).float()
        if self._output_indices is None:
            return logits
        logits[:, -1] = -torch.inf
        return logits.index_select(1, self._output_indices)

    def argmax(
        self, hidden: Tensor, suppressed: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        """As the function `argmax`, of hidden states [n, d_model].

        The compiled kernel computes it without storing the logits.
        """
        if not (isinstance(self._linear, CompiledLinear) and self._linear.library.has("argmax")):
            return argmax(self.logits(hidden), suppressed, logprobs)
        bias = self._suppressing_bias(self._linear, suppressed)
        tokens, chosen, totals = self._linear.argmax(hidden, bias, logprobs)
        if logprobs:
            chosen = torch.where(chosen.isfinite(), -totals.log(), chosen)
        return tokens if self._kept_ids is None else self._kept_ids[tokens], chosen

    def _suppressing_bias(self, linear: CompiledLinear, suppressed: Sequence[Tensor]) -> Tensor:
        """The layer's bias with −∞ for suppressed ids; cached by the identity of the tensors."""
        key = tuple(map(id, suppressed))
        if key not in self._biases:
            bias = linear.bias.clone()
            for ids in suppressed:
                bias[
                    ids if self._output_indices is None else self._output_indices[ids]
                ] = -torch.inf
            if self._output_indices is not None:
                bias[-1] = -torch.inf
            if len(self._biases) == _CACHED_BIASES:
                self._biases.clear()
            # The entry keeps the tensors alive, so that their ids stay unique.
            self._biases[key] = suppressed, bias
        return self._biases[key][1]
