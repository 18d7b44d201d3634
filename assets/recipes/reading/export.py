"""Write a trained reader as a VisionEncoderDecoder folder, in half precision, as the hub has them.

    python assets/recipes/reading/export.py --run RUN --out assets/models/reader

Takes RUN/model, which train.py refreshes at every checkpoint. The figures in the model card are
evaluate.py's to fill in.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from string import Template

import torch
from alphabet import CHARACTERS, END, PAD, START, UNKNOWN, tokenizer
from faces import HELD_OUT
from model import LONGEST_OUTPUT
from render import HEIGHT, WIDTH
from transformers import VisionEncoderDecoderModel

HERE = Path(__file__).parent
BILINEAR = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="where train.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    arguments = parser.parse_args()
    out: Path = arguments.out
    model = VisionEncoderDecoderModel.from_pretrained(arguments.run / "model", dtype=torch.float32)
    export(model, out)
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{size / 1e6:.1f} MB in {out}")


def export(model: VisionEncoderDecoderModel, out: Path) -> None:
    """Write the folder; the model is in half precision then."""
    out.mkdir(parents=True, exist_ok=True)
    generation = model.generation_config
    generation.max_length, generation.num_beams = LONGEST_OUTPUT, 1
    model.half().save_pretrained(out)
    tokenizer().save(str(out / "tokenizer.json"))
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": START,
            "eos_token": END,
            "pad_token": PAD,
            "unk_token": UNKNOWN,
            "clean_up_tokenization_spaces": False,
            "model_max_length": LONGEST_OUTPUT,
        },
    )
    # The one image processor of transformers that keeps the shape of letters: it scales a line to
    # the height, or to the width if it is too long for that, and puts it in the middle.
    write_json(
        out / "preprocessor_config.json",
        {
            "image_processor_type": "DonutImageProcessor",
            "size": {"height": HEIGHT, "width": WIDTH},
            "do_resize": True,
            "resample": BILINEAR,
            "do_thumbnail": True,
            "do_align_long_axis": False,
            "do_pad": True,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
        },
    )
    shutil.copy(HERE / "LICENSE", out)
    write_card(out, model)
    for file in out.iterdir():
        file.chmod(0o644)  # safetensors are written for their owner alone


def write_card(out: Path, model: VisionEncoderDecoderModel) -> None:
    encoder, decoder = model.config.encoder, model.config.decoder
    text = Template((HERE / "card.md").read_text(encoding="utf-8")).substitute(
        parameters=f"{model.num_parameters() / 1e6:.1f}",
        megabytes=f"{(out / 'model.safetensors').stat().st_size / 1e6:.1f}",
        encoder_layers=encoder.num_hidden_layers,
        decoder_layers=decoder.decoder_layers,
        channels=encoder.hidden_size,
        characters=len(CHARACTERS),
        height=HEIGHT,
        width=WIDTH,
        held_out=", ".join(f"{name} ({kind})" for kind, name in HELD_OUT.items()),
    )
    (out / "README.md").write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
