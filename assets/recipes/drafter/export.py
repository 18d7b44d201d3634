"""Write a trained drafter as a Whisper folder, in the precision of the teacher's.

    python assets/recipes/drafter/export.py --model DIR --run RUN/drafter --out RUN/draft-model

The encoder, the embeddings and the projections of what the cross-attention reads are the
teacher's, so the folder holds weights of the teacher: its licence applies. `shortlist.json` has the
ids that the drafter can write, which a pipeline reads when the folder is its draft model.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from shortlist import SHORTLIST
from student import PREFIX
from torch import Tensor

LAYER = re.compile(re.escape(PREFIX) + r"layers\.(\d+)\.(.+)")


def drafter_tensors(
    teacher: dict[str, Tensor], student: dict[str, Tensor], layers: list[int]
) -> dict[str, Tensor]:
    """The checkpoint of the drafter.

    teacher: its checkpoint. student: the trained parameters. layers: those of the teacher that
    the student's began as, whose keys and values it attends to.
    """
    tensors = {name: tensor for name, tensor in teacher.items() if not LAYER.fullmatch(name)}
    for name, tensor in teacher.items():
        if match := LAYER.fullmatch(name):
            for place, layer in enumerate(layers):
                if layer == int(match[1]):
                    tensors[f"{PREFIX}layers.{place}.{match[2]}"] = tensor.clone()
    stored = teacher[f"{PREFIX}embed_tokens.weight"].dtype
    tensors |= {PREFIX + name: tensor.to(stored) for name, tensor in student.items()}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="the Whisper folder that taught")
    parser.add_argument("--run", type=Path, required=True, help="where train.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="the drafter's folder")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    state = torch.load(arguments.run / "checkpoint.pt", weights_only=True)
    teacher = load_file(arguments.model / "model.safetensors")
    tensors = drafter_tensors(teacher, state["student"], state["layers"])
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    for file in arguments.model.glob("*"):
        if file.suffix in (".json", ".txt") or file.name == "LICENSE":
            shutil.copyfile(file, out / file.name)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    config["decoder_layers"] = len(state["layers"])
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    settings = out / "generation_config.json"
    if settings.exists():  # heads of layers that it does not have
        values = json.loads(settings.read_text(encoding="utf-8"))
        values.pop("alignment_heads", None)
        settings.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(arguments.run / SHORTLIST, out / SHORTLIST)
    print(f"{(out / 'model.safetensors').stat().st_size / 1e6:.0f} MB in {out}")


if __name__ == "__main__":
    main()
