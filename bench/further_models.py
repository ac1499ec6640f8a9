#!/usr/bin/env python3
"""Writes networks that the suite does not have, as ONNX files with random weights: what rules were not made for.

    further_models.py FOLDER [NAME...] [--list]

Architectures of torchvision and, as smaller copies, of transformers; no weights are fetched. It needs its own Python:

    python3 -m venv out/torch
    out/torch/bin/pip install torch==2.5.1 torchvision==0.20.1 transformers==4.46.3 onnx==1.17.0
    out/torch/bin/python bench/further_models.py out/further
    .venv/bin/python bench/models.py --folder out/further --threads 1 --peers onnxruntime,openvino --out bench/results/further

Files that are there are left alone. Exit code: 1 when a network could not be written."""
import argparse
import os
import pathlib
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # weights come from a generator, never from a hub

# name: (torchvision's function, shape of the input, further arguments)
VISION = {name: (name, (1, 3, 224, 224), {}) for name in (
    "alexnet", "convnext_small", "densenet169", "efficientnet_b3", "efficientnet_v2_s", "maxvit_t", "mnasnet0_5", "mnasnet1_0",
    "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_1_6gf", "regnet_y_400mf", "resnet34", "resnet101", "resnext50_32x4d",
    "shufflenet_v2_x0_5", "shufflenet_v2_x2_0", "squeezenet1_0", "swin_v2_t", "vgg11_bn", "vit_b_32", "wide_resnet50_2")}
VISION |= {
    "googlenet": ("googlenet", (1, 3, 224, 224), {"init_weights": False, "aux_logits": False}),
    "densenet121_160": ("densenet121", (1, 3, 160, 160), {}),
    "mobilenet_v2_320x240": ("mobilenet_v2", (1, 3, 240, 320), {}),
    "mobilenet_v2_batch8": ("mobilenet_v2", (8, 3, 224, 224), {}),
    "mobilenet_v2_width035": ("mobilenet_v2", (1, 3, 224, 224), {"width_mult": 0.35}),
    "resnet18_batch4": ("resnet18", (4, 3, 224, 224), {}),
    "resnet50_batch4": ("resnet50", (4, 3, 224, 224), {}),
    "squeezenet1_1_batch4": ("squeezenet1_1", (4, 3, 160, 160), {}),
    "swin_t_256": ("swin_t", (1, 3, 256, 256), {}),
}
SEGMENTATION = {"deeplabv3_resnet50": (1, 3, 256, 256), "fcn_resnet50": (1, 3, 256, 256),
                "lraspp_mobilenet_v3_large": (1, 3, 320, 320)}
VIDEO = ("mc3_18", "r2plus1d_18", "r3d_18", "s3d")

# name: (configuration and model of transformers, arguments of the configuration, kind of input)
SMALL = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024, "vocab_size": 1000}
TEXT = (1, 128)
TRANSFORMERS = {
    "albert": ("Albert", "AlbertModel", SMALL | {"embedding_size": 128}, TEXT),
    "distilbert": ("DistilBert", "DistilBertModel", {"dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024,
                                                     "vocab_size": 1000}, TEXT),
    "gpt_neox": ("GPTNeoX", "GPTNeoXModel", SMALL | {"use_cache": False}, TEXT),
    "llama": ("Llama", "LlamaModel", SMALL | {"use_cache": False}, TEXT),
    "roberta": ("Roberta", "RobertaModel", SMALL, TEXT),
    "segformer": ("Segformer", "SegformerForSemanticSegmentation", {}, (1, 3, 256, 256)),
    "t5_encoder": ("T5", "T5EncoderModel", {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4,
                                            "vocab_size": 1000}, TEXT),
    "mobilevit": ("MobileViT", "MobileViTModel", {}, (1, 3, 256, 256)),
    "poolformer": ("PoolFormer", "PoolFormerModel", {}, (1, 3, 224, 224)),
    "wav2vec2": ("Wav2Vec2", "Wav2Vec2Model", {key: SMALL[key] for key in SMALL if key != "vocab_size"}, (1, 16000)),
    "whisper_encoder": ("Whisper", "WhisperModel", {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6,
                                                    "encoder_ffn_dim": 1536}, (1, 80, 3000)),
}
NAMES = sorted([*VISION, *SEGMENTATION, *VIDEO, *TRANSFORMERS])


def outputs_only(torch, model):
    """A module that gives a tensor where `model` gives an object or a dictionary."""
    class Outputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            y = self.model(x)
            if isinstance(y, torch.Tensor):
                return y
            return y["out"] if "out" in y else y[0]

    return Outputs()


def make(name, torch):
    """(the network in inference mode, its input)."""
    import torchvision
    torch.manual_seed(1)
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that ONNX has not
    if name in VISION:
        function, shape, more = VISION[name]
        model = getattr(torchvision.models, function)(weights=None, **more)
    elif name in SEGMENTATION:
        shape = SEGMENTATION[name]
        model = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
    elif name in VIDEO:
        shape = (1, 3, 16, 224, 224) if name == "s3d" else (1, 3, 8, 112, 112)
        model = getattr(torchvision.models.video, name)(weights=None)
    else:
        import transformers
        config, kind, arguments, shape = TRANSFORMERS[name]
        model = getattr(transformers, kind)(getattr(transformers, config + "Config")(**arguments))
        if name == "whisper_encoder":
            model = model.encoder
    for module in model.modules():  # statistics and scales that are not all alike
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            for values, low, high in ((module.running_mean, -0.2, 0.2), (module.running_var, 0.5, 1.5),
                                      (module.weight.data, 0.5, 1.5), (module.bias.data, -0.2, 0.2)):
                values.uniform_(low, high)
    is_text = name in TRANSFORMERS and shape == TEXT
    x = torch.randint(0, 1000, shape) if is_text else torch.randn(shape)
    return outputs_only(torch, model.eval()), x


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true", help="print the names and write nothing")
    args = parser.parse_args()
    if args.list:
        return print(*NAMES, sep="\n")
    if unknown := sorted(set(args.names) - set(NAMES)):
        sys.exit(f"further_models.py: no network is called {', '.join(unknown)}; --list shows those that are there")
    try:
        import numpy
        import torch
    except ImportError as error:
        sys.exit(f"further_models.py: {error}; see --help for a Python that has it")
    warnings.filterwarnings("ignore")
    args.folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in args.names or NAMES:
        path = args.folder / f"{name}.onnx"
        if path.is_file():
            continue
        try:
            model, x = make(name, torch)
            part = path.with_suffix(".part")
            with torch.no_grad():
                torch.onnx.export(model, (x,), part, opset_version=17, input_names=["x"])
            numpy.savez(path.with_suffix(".inputs.npz"), x=x.numpy())
            part.rename(path)
            print(f"{name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
        except Exception as error:  # of torch's exporter: any
            failed = True
            print(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
