"""Captured attention of wrapped modules equals what the module itself reports."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, Request
from pipelines.errors import RequestError
from tests.engine.modules import MODULES, VISION, made

pytestmark = pytest.mark.oracle

HEADS = ((1, 0), (0, 3), (1, 2))
BOTH = [kind for kind in MODULES if kind not in ("gpt2", "llama")]


def eager(kind: str) -> Any:
    module = made(kind)
    if kind != "ocr":  # which has no other way
        module.set_attn_implementation("eager")
    return module


@pytest.mark.parametrize("kind", [*BOTH, *VISION])
def test_equals_what_the_module_reports(kind: str, engine: Engine) -> None:
    """Alone, beside a row without capture, after a draft that was half wrong, and scored."""
    module = eager(kind)
    model = engine.wrap(module)
    given: dict[str, Any]
    if kind in VISION:
        size = module.config.encoder.image_size
        picture = torch.randn(3, size, size, generator=torch.Generator().manual_seed(0))
        encoded, given = model.encode([picture])[0], {"pixel_values": picture[None]}
    else:
        ids = [5, 6, 70, 8, 9, 2]
        encoded, given = model.encode([ids])[0], {"input_ids": torch.tensor([ids])}
    prompt = (model.architecture.start_id, 50)
    plain = Request(encoded, prompt, GenerationOptions(max_new_tokens=8))
    asking = Request(encoded, prompt, plain.options, attention=HEADS)
    alone, beside, _ = (
        engine.generate([asking])[0],
        *engine.generate([asking, Request(encoded, prompt[:1], plain.options)]),
    )
    drafted = engine.generate(
        [Request(encoded, prompt, plain.options, attention=HEADS, draft=(*alone.tokens[:4], 3, 3))]
    )[0]
    read = [*prompt, *alone.tokens]
    with torch.inference_mode():
        output = module(**given, decoder_input_ids=torch.tensor([read]), output_attentions=True)
    expected = torch.stack([output.cross_attentions[layer][0, head] for layer, head in HEADS])
    for result in (alone, beside, drafted):
        assert result.tokens == alone.tokens
        assert result.attention is not None
        torch.testing.assert_close(result.attention, expected[:, 1:-1], atol=1e-5, rtol=0)
    _, seen = model.score_with_attention(encoded, read, HEADS)
    torch.testing.assert_close(seen, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["bart", "gpt2"])
def test_modules_without_attention_weights(kind: str, engine: Engine) -> None:
    """Other implementations never store attention weights; decoder-only models have none."""
    model = engine.wrap(made(kind))
    encoded = model.encode([[5, 6, 2]])[0] if kind == "bart" else model.null_source()
    request = Request(
        encoded,
        (model.architecture.start_id,),
        GenerationOptions(max_new_tokens=3),
        attention=HEADS,
    )
    with pytest.raises(RequestError, match=r"its attention.*attn_implementation=.eager"):
        engine.stream(request)
    with pytest.raises(RequestError, match="its attention"):
        model.score_with_attention(encoded, [model.architecture.start_id], HEADS)


def test_an_unknown_head_is_refused(engine: Engine) -> None:
    model = engine.wrap(eager("bart"))
    encoded = model.encode([[5, 6, 2]])[0]
    with pytest.raises(RequestError, match="2 layers of 4"):
        model.score_with_attention(encoded, [2], ((2, 0),))
