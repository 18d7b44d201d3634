"""Write a trained translator as a Marian folder, in half precision, that transformers can load.

    python assets/recipes/translation/export.py --run RUN --out assets/models/demo-en-de

The figures in the model card are evaluate.py's to fill in.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from string import Template

import torch
from prepare import PAD
from sentencepiece import SentencePieceProcessor
from transformers import MarianMTModel

HERE = Path(__file__).parent
LONGEST = 256
# Few sentences of its training are longer: of longer ones it forgets clauses, so they are split.
LONGEST_SOURCE = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="where train.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    parser.add_argument("--reverse", action="store_true", help="German to English")
    arguments = parser.parse_args()
    out: Path = arguments.out

    model = MarianMTModel.from_pretrained(arguments.run / "model", dtype=torch.float32)
    generation = model.generation_config
    generation.max_length, generation.num_beams = LONGEST, 1
    generation.bad_words_ids, generation.forced_eos_token_id = [[PAD]], None
    model.half().save_pretrained(out)

    subwords = SentencePieceProcessor(model_file=str(arguments.run / "subwords.model"))
    vocabulary = {subwords.id_to_piece(i): i for i in range(subwords.get_piece_size())}
    write_json(out / "vocab.json", vocabulary)
    for name in ("source.spm", "target.spm"):
        shutil.copy(arguments.run / "subwords.model", out / name)
    source, target = ("de", "en") if arguments.reverse else ("en", "de")
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": source,
            "target_lang": target,
            "separate_vocabs": False,
            "model_max_length": LONGEST_SOURCE,
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
        },
    )
    write_card(out, model, source, target)
    for file in out.iterdir():
        file.chmod(0o644)  # safetensors are written for their owner alone
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{size / 1e6:.1f} MB in {out}")


def write_card(out: Path, model: MarianMTModel, source: str, target: str) -> None:
    config, weights = model.config, (out / "model.safetensors").stat().st_size
    others = sum((out / name).stat().st_size for name in ("source.spm", "target.spm", "vocab.json"))
    text = Template((HERE / "card.md").read_text(encoding="utf-8")).substitute(
        name=out.name,
        source=source,
        target=target,
        parameters=f"{model.num_parameters() / 1e6:.1f}",
        megabytes=f"{(weights + others) / 1e6:.1f}",
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=config.d_model,
        tokens=config.vocab_size,
        positions=config.max_position_embeddings,
    )
    (out / "README.md").write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
