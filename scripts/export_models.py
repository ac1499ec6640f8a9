#!/usr/bin/env python3
"""Exports models from PyTorch to ONNX with random weights: detectors with their post-processing, and GPT-2 with its cache
of keys and values.

    scripts/export_models.py --out DIR [MODEL...] [--layers N]

Models: ssd, ssdlite, faster_rcnn (torchvision; an image of 3 x 320 x 320 in 0..1, boxes, scores and labels out; the number
of boxes is only known in a run), faster_rcnn_none (the same, with weights for which no box passes the threshold), gpt2
(a cache that grows: past keys and values of any length in, longer ones out) and gpt2_static (a cache of a fixed length;
each run writes one place of it). Default: all. --layers: of GPT-2, 12 as published; 2 make a small file.

Needs Python packages that the project's own environment does not have (2.5 GB):

    pip install torch==2.5.1 torchvision==0.20.1 transformers==4.46.3 onnx==1.23.2

Exits with 77 and says so when they are missing. Every file is the same in every run on one machine."""
import argparse
import pathlib
import sys
import warnings

warnings.simplefilter("ignore")
SIZE = 320
CACHE = 64  # places of the static cache


def detector(name):
    import torch
    from torchvision.models import detection

    def spread(layers, factor):  # scores that differ from each other
        with torch.no_grad():
            for layer in layers:
                layer.weight.mul_(factor)

    quiet = {"weights": None, "weights_backbone": None}
    if name == "ssd":
        model = detection.ssd300_vgg16(**quiet)
    elif name == "ssdlite":
        model = detection.ssdlite320_mobilenet_v3_large(**quiet)
        spread([block[1] for block in model.head.classification_head.module_list], 40)
    else:
        model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(**quiet)
        if name == "faster_rcnn":
            spread([model.roi_heads.box_predictor.cls_score], 4e3)
    return model.eval()


def export_detector(name, path):
    import torch
    torch.manual_seed(0)
    model = detector(name)
    outputs = ["boxes", "labels", "scores"] if name.startswith("faster_rcnn") else ["boxes", "scores", "labels"]
    torch.onnx.export(model, ([torch.rand(3, SIZE, SIZE)],), str(path), opset_version=17, input_names=["image"],
                      output_names=outputs, dynamo=False)


def gpt2(layers):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    config = GPT2Config(n_layer=layers, n_embd=768 if layers == 12 else 64, n_head=12 if layers == 12 else 4,
                        vocab_size=50257 if layers == 12 else 1000, attn_implementation="eager")
    return GPT2LMHeadModel(config).eval()


def export_gpt2(path, layers):
    import torch
    from transformers.cache_utils import DynamicCache
    model = gpt2(layers)
    heads, width = model.config.n_head, model.config.n_embd // model.config.n_head

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, *past):
            cache = DynamicCache.from_legacy_cache(tuple(zip(past[::2], past[1::2])))
            made = self.model(ids, past_key_values=cache.to_legacy_cache(), use_cache=True)
            return (made.logits, *[part for pair in made.past_key_values for part in pair])

    names = [f"{kind}_{i}" for i in range(layers) for kind in ("key", "value")]
    past = [torch.rand(1, heads, 5, width) for _ in names]
    torch.onnx.export(Step(), (torch.zeros(1, 3, dtype=torch.int64), *past), str(path), opset_version=17,
                      input_names=["ids", *[f"past_{name}" for name in names]],
                      output_names=["logits", *[f"present_{name}" for name in names]],
                      dynamic_axes={"ids": {1: "length"}, **{f"past_{name}": {2: "past"} for name in names}},
                      dynamo=False)


def export_gpt2_static(path, layers):
    import torch
    model = gpt2(layers)
    heads, width = model.config.n_head, model.config.n_embd // model.config.n_head

    class Step(torch.nn.Module):
        """One token; its keys and values go to place `position` of the cache."""

        def __init__(self):
            super().__init__()
            self.body = model.transformer
            self.head = model.lm_head

        def forward(self, token, position, *past):
            hidden = self.body.wte(token) + self.body.wpe(position)
            places = torch.arange(CACHE)
            present = []
            for number, block in enumerate(self.body.h):
                split = block.attn.c_attn(block.ln_1(hidden)).split(model.config.n_embd, dim=2)
                query, key, value = [part.view(1, 1, heads, width).transpose(1, 2) for part in split]
                here = (places == position).view(1, 1, CACHE, 1)
                keys = torch.where(here, key, past[2 * number])
                values = torch.where(here, value, past[2 * number + 1])
                present += [keys, values]
                scores = query @ keys.transpose(2, 3) / width ** 0.5
                scores = torch.where((places <= position).view(1, 1, 1, CACHE), scores, torch.tensor(-1e9))
                mixed = (scores.softmax(-1) @ values).transpose(1, 2).reshape(1, 1, -1)
                hidden = hidden + block.attn.c_proj(mixed)
                hidden = hidden + block.mlp(block.ln_2(hidden))
            return (self.head(self.body.ln_f(hidden)), *present)

    names = [f"{kind}_{i}" for i in range(layers) for kind in ("key", "value")]
    past = [torch.zeros(1, heads, CACHE, width) for _ in names]
    example = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), *past)
    torch.onnx.export(Step(), example, str(path), opset_version=17,
                      input_names=["token", "position", *[f"past_{name}" for name in names]],
                      output_names=["logits", *[f"present_{name}" for name in names]], dynamo=False)


MODELS = ["ssd", "ssdlite", "faster_rcnn", "faster_rcnn_none", "gpt2", "gpt2_static"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", choices=[[], *MODELS], default=[])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=12)
    args = parser.parse_args()
    try:
        import onnx  # noqa: F401
        import torch  # noqa: F401
        import torchvision  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as missing:
        print(f"SKIP export_models: {missing}; see --help for what to install")
        return 77
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.models or MODELS:
        path = args.out / f"{name}.onnx"
        if name.startswith("gpt2"):
            (export_gpt2 if name == "gpt2" else export_gpt2_static)(path, args.layers)
        else:
            export_detector(name, path)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
