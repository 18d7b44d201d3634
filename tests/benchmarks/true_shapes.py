"""Families in the shapes that are published, with random weights: tokens equal those of `generate`.

    python -m tests.benchmarks.true_shapes                 # all, one process each
    python -m tests.benchmarks.true_shapes moonshine-base  # some

Prints a row of a table for each: greedy search, three beams and drafts against transformers'
`generate` in float32, and the memory of the process, which holds the model once (twice where it is
native). No token may come twice: random weights like to repeat one, which would show little. Not
here, for their size: NLLB-MoE (54 billion numbers) and BLIP-2 (4 billion).
"""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

from pipelines.engine import (
    Engine,
    GenerationOptions,
    LoadedModel,
    NgramDrafter,
    NoRepeatNgram,
    Request,
)
from pipelines.families import is_native
from tests.engine.other_families import started
from tests.fixtures.moonshine import moonshine_module

LENGTH = 16
BEAMS = 3
SECOND = 16_000  # samples
_HEADER = (
    "| shape of | millions | native | greedy | beams | drafts | different tokens | "
    "ours s | generate s | memory MB |"
)
_OWN_START = ("blip", "git")  # whose `generate` begins by itself


@dataclass(frozen=True)
class Shape:
    """A published model.

    Attributes:
        name: Its repository.
        make: Makes its module.
        source: What its encoder reads: the shape of a tensor, or the number of token ids.
        started: Tokens that `generate` returns before the generated ones.
    """

    name: str
    make: Callable[[], Any]
    source: tuple[int, ...] | int
    started: int = 1


def _bert2bert() -> Any:
    sides = hf.BertConfig(), hf.BertConfig(is_decoder=True, add_cross_attention=True)
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(*sides)
    return started(hf.EncoderDecoderModel(config=config), 101)


def _donut() -> Any:
    encoder = hf.DonutSwinConfig(
        image_size=[1280, 960], embed_dim=128, depths=[2, 2, 14, 2], num_heads=[4, 8, 16, 32],
        window_size=10,
    )  # fmt: skip
    decoder = hf.MBartConfig(
        vocab_size=57_580, d_model=1024, decoder_layers=4, decoder_attention_heads=16,
        decoder_ffn_dim=4096, max_position_embeddings=768, is_encoder_decoder=False,
        is_decoder=True, add_cross_attention=True, scale_embedding=True, add_final_layer_norm=True,
    )  # fmt: skip
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return started(hf.VisionEncoderDecoderModel(config=config), 2)


def _trocr() -> Any:
    encoder = hf.ViTConfig(image_size=384, qkv_bias=False)
    decoder = hf.TrOCRConfig(
        vocab_size=50_265, d_model=1024, decoder_layers=12, decoder_attention_heads=16,
        decoder_ffn_dim=4096, cross_attention_hidden_size=768, max_position_embeddings=512,
        is_decoder=True, add_cross_attention=True,
    )  # fmt: skip
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return started(hf.VisionEncoderDecoderModel(config=config), 2)


def _seamless() -> Any:
    config = hf.SeamlessM4TConfig(
        vocab_size=256_102, speech_encoder_layers=12, encoder_layers=12, decoder_layers=12,
        encoder_ffn_dim=4096, decoder_ffn_dim=4096,
    )  # fmt: skip
    return hf.SeamlessM4TForSpeechToText(config)


def _blip() -> Any:
    vision = {"image_size": 384, "patch_size": 16}
    text = {"vocab_size": 30_524, "encoder_hidden_size": 768}
    return hf.BlipForConditionalGeneration(hf.BlipConfig(vision_config=vision, text_config=text))


def _fsmt() -> Any:
    config = hf.FSMTConfig(
        langs=["en", "de"], src_vocab_size=42_024, tgt_vocab_size=42_024, encoder_layers=6,
        decoder_layers=6, encoder_ffn_dim=8192, max_position_embeddings=1024,
    )  # fmt: skip
    return hf.FSMTForConditionalGeneration(config)


def _t5(kind: str) -> Any:
    sizes = {"d_ff": 1024, "num_layers": 8, "num_heads": 6, "decoder_start_token_id": 0}
    sizes["tie_word_embeddings"] = False
    config = getattr(hf, f"{kind}Config")(vocab_size=250_112 if kind == "MT5" else 256_384, **sizes)
    return getattr(hf, f"{kind}ForConditionalGeneration")(config)


def _speecht5() -> Any:
    config = hf.SpeechT5Config(vocab_size=81)
    return started(hf.SpeechT5ForSpeechToText(config), 2)


SHAPES = {
    "moonshine-tiny": Shape(
        "UsefulSensors/moonshine-tiny", lambda: moonshine_module("tiny"), (5 * SECOND,)
    ),
    "moonshine-base": Shape(
        "UsefulSensors/moonshine-base", lambda: moonshine_module("base"), (5 * SECOND,)
    ),
    "mt5": Shape("google/mt5-small", lambda: _t5("MT5"), 40),
    "umt5": Shape("google/umt5-small", lambda: _t5("UMT5"), 40),
    "pegasus": Shape(
        "google/pegasus-large",
        lambda: hf.PegasusForConditionalGeneration(
            hf.PegasusConfig(
                vocab_size=96_103, encoder_layers=16, decoder_layers=16, scale_embedding=True
            )
        ),
        40,
    ),
    "prophetnet": Shape(
        "microsoft/prophetnet-large-uncased",
        lambda: hf.ProphetNetForConditionalGeneration(hf.ProphetNetConfig()),
        40,
    ),
    "fsmt": Shape("facebook/wmt19-en-de", _fsmt, 40),
    "bert2bert": Shape("two bert-base-uncased", _bert2bert, 40),
    "trocr": Shape("microsoft/trocr-base-printed", _trocr, (3, 384, 384)),
    "donut": Shape("naver-clova-ix/donut-base-finetuned-cord-v2", _donut, (3, 1280, 960)),
    "speech2text": Shape(
        "facebook/s2t-small-librispeech-asr",
        lambda: hf.Speech2TextForConditionalGeneration(hf.Speech2TextConfig()),
        (500, 80),
    ),
    "speecht5": Shape("microsoft/speecht5_asr", _speecht5, (5 * SECOND,)),
    "seamless": Shape("facebook/hf-seamless-m4t-medium", _seamless, (200, 160)),
    "blip": Shape("Salesforce/blip-image-captioning-base", _blip, (3, 384, 384)),
    "git": Shape(
        "microsoft/git-base", lambda: hf.GitForCausalLM(hf.GitConfig()), (3, 224, 224)
    ),
}  # fmt: skip


def module_of(shape: Shape) -> Any:
    """The module, with weights wide enough apart that its tokens vary."""
    torch.manual_seed(1)
    module = shape.make()
    for parameter in module.parameters():
        if parameter.ndim == 2 and parameter.requires_grad:  # not the sines of positions
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    return module.eval().requires_grad_(False)


def source_of(shape: Shape) -> Any:
    """What its encoder reads, without the batch dimension."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(shape.source, int):
        return torch.randint(5, 1000, (shape.source,), generator=generator).tolist()
    return torch.randn(*shape.source, generator=generator) * 0.3


def ours(engine: Engine, model: LoadedModel, source: Any, beams: int, drafts: bool) -> list[int]:
    eos = model.architecture.eos_ids
    options = GenerationOptions(
        max_new_tokens=LENGTH, eos_ids=eos, beam_size=beams, logit_filters=(NoRepeatNgram(1),)
    )
    encoded = model.encode([source])[0]
    drafter = NgramDrafter() if drafts else None
    request = Request(encoded, (model.architecture.start_id,), options, drafter=drafter)
    return [*engine.generate([request])[0].tokens]


def theirs(shape: Shape, module: Any, source: Any, start: int, beams: int) -> list[int]:
    batch = torch.tensor([source]) if isinstance(source, list) else source[None]
    common = {"max_new_tokens": LENGTH, "num_beams": beams, "do_sample": False}
    common["no_repeat_ngram_size"] = 1
    if module.config.model_type in _OWN_START:
        begin = {"input_ids": torch.tensor([[start]])} if module.config.model_type == "git" else {}
        ids = module.generate(pixel_values=batch, **begin, **common)
    else:
        ids = module.generate(
            batch, decoder_start_token_id=start, forced_eos_token_id=None,
            forced_bos_token_id=None, length_penalty=1.0, early_stopping=False, **common,
        )  # fmt: skip
    return [*ids[0].tolist()[shape.started :]]


def compare(family: str) -> str:
    """A row of the table."""
    shape = SHAPES[family]
    module, source = module_of(shape), source_of(shape)
    numbers = sum(parameter.numel() for parameter in module.parameters()) / 1e6
    with (
        Engine(device="cpu", compute_type="float32") as engine,
        tempfile.TemporaryDirectory() as at,
    ):
        native = is_native(module.config.to_dict())
        if native:
            module.save_pretrained(at)
        model = engine.load(at) if native else engine.wrap(module)
        start = model.architecture.start_id
        marks, spent = {}, [0.0, 0.0]
        for name, beams in (("greedy", 1), ("beams", BEAMS)):
            began = time.perf_counter()
            mine = ours(engine, model, source, beams, drafts=False)
            half = time.perf_counter()
            expected = theirs(shape, module, source, start, beams)
            marks[name] = mine == expected[: len(mine)] and bool(mine)
            if beams == 1:
                greedy, spent = mine, [half - began, time.perf_counter() - half]
        marks["drafts"] = ours(engine, model, source, 1, drafts=True) == greedy
    said = ["equal" if marks[name] else "DIFFERENT" for name in ("greedy", "beams", "drafts")]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cells = [shape.name, f"{numbers:.0f}", "yes" if native else "no", *said, str(len({*greedy}))]
    cells += [f"{spent[0]:.2f}", f"{spent[1]:.2f}", f"{memory:,.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    families = sys.argv[1:] or list(SHAPES)
    if len(families) == 1:
        warnings.simplefilter("ignore")  # transformers' own
        logging.disable(logging.WARNING)
        print(compare(families[0]))
        return
    print(_HEADER)
    print("|---|---|---|---|---|---|---|---|---|---|")
    for family in families:
        # In a process of its own: the memory is its own, and one is in memory at a time.
        command = [sys.executable, "-m", "tests.benchmarks.true_shapes", family]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        row = done.stdout.strip().splitlines()[-1:]
        failed = f"| {SHAPES[family].name} | failed: {done.stderr.strip().splitlines()[-1:]} |"
        print(row[0] if done.returncode == 0 and row else failed, flush=True)


if __name__ == "__main__":
    main()
