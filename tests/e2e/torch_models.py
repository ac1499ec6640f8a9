#!/usr/bin/env python3
"""Runs a list of PyTorch models, randomly initialised, by torch.compile(backend="tessera") or as .pt2 programs, and compares
them with eager PyTorch: which match, which do not, and why.

    torch_models.py [--hundred | --twenty] [--match REGEX] [--shard I/N] [--how compile|export|survey] [--time SECONDS]
                    [--threads N[,N...]] [--processor-time] [--json FILE] [--isolate SECONDS]

compile: torch.compile; it matches when no operator is left to PyTorch as well. export: torch.export, decomposed, by the compiler.
survey: torch.export and the reader alone, which names what it does not read. --time measures those that match beside eager and
Inductor, in turn, and prints medians, and at the end how often the faster of the two takes our time; --processor-time takes the
process's time, which other work on the machine changes less, instead of the clock's. --hundred is the fixed list that
docs/measurements.md counts: torchvision's 30, the first 40 of timm and the first 30 of transformers; --twenty is every fifth of
it. --isolate gives each model a process of its own and so long at most; with --json, models that the file has are not run again.
Runs with the Python of tests/python/torch_python.py; without one it is skipped."""

import argparse
import collections
import io
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import torch_python  # noqa: E402

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if __name__ == "__main__":
    torch_python.enter()

import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import tessera  # noqa: E402
import tessera.torch  # noqa: E402
from tessera import _native  # noqa: E402

TOLERANCE = 1e-4

TORCHVISION = """alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5
mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d
shufflenet_v2_x0_5 shufflenet_v2_x1_0 squeezenet1_0 squeezenet1_1 swin_t swin_v2_t vgg11 vgg11_bn vit_b_16 wide_resnet50_2
segmentation.deeplabv3_mobilenet_v3_large segmentation.lraspp_mobilenet_v3_large segmentation.fcn_resnet50""".split()

TIMM = """beit_base_patch16_224 botnet26t_256 cait_xxs24_224 coat_lite_tiny coatnet_nano_rw_224 convmixer_768_32 convnextv2_atto
crossvit_tiny_240 cspresnet50 darknet53 davit_tiny deit_tiny_patch16_224 dla34 dpn68 eca_nfnet_l0 edgenext_xx_small
efficientformer_l1 efficientvit_b0 fbnetc_100 focalnet_tiny_srf ghostnet_100 gmlp_s16_224 hardcorenas_a hgnet_tiny hrnet_w18_small
inception_resnet_v2 lcnet_050 levit_128s mixer_s32_224 mobileone_s0 mobilevit_xxs mobilevitv2_050 nf_resnet50 pit_ti_224
poolformer_s12 pvt_v2_b0 repvgg_a0 resmlp_12_224 rexnet_100 sebotnet33ts_256 skresnet18 tf_efficientnet_lite0 tinynet_e
twins_svt_small visformer_tiny volo_d1_224 xcit_nano_12_p16_224""".split()

# With what a tiny model of the kind wants besides the usual sizes.
TRANSFORMERS = {
    "albert": {"embedding_size": 32}, "bart": {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64}, "bert": {}, "bloom": {},
    "camembert": {}, "convbert": {}, "deberta-v2": {}, "distilbert": {"dim": 64, "n_layers": 2, "n_heads": 4}, "electra": {},
    "ernie": {}, "falcon": {}, "fnet": {}, "gemma": {"head_dim": 16}, "gemma2": {"head_dim": 16}, "gpt2": {},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2}, "gpt_neox": {}, "gptj": {"rotary_dim": 8},
    "granite": {}, "layoutlm": {}, "llama": {}, "mistral": {"sliding_window": None}, "mobilebert": {}, "modernbert": {}, "mpnet": {},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2}, "nystromformer": {"segment_means_seq_len": 16, "num_landmarks": 16},
    "olmo": {}, "olmo2": {}, "opt": {"word_embed_proj_dim": 64, "ffn_dim": 128}, "phi": {}, "phi3": {"pad_token_id": 0}, "qwen2": {},
    "qwen3": {"head_dim": 16}, "rembert": {}, "roberta": {}, "roformer": {}, "splinter": {}, "squeezebert": {"embedding_size": 64},
    "stablelm": {}, "starcoder2": {}, "t5": {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128, "d_kv": 16},
    "xglm": {"d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 128}, "xlm-roberta": {},
    "xlnet": {"d_model": 64, "n_layer": 2, "n_head": 4},
    "vit": {"image_size": 32, "patch_size": 8}, "deit": {"image_size": 32, "patch_size": 8}, "beit": {"image_size": 32, "patch_size": 8},
    "dinov2": {"image_size": 28, "patch_size": 14}, "convnext": {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 2, 1]},
    "swin": {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4},
    "segformer": {"hidden_sizes": [16, 32, 48, 64]}, "poolformer": {"hidden_sizes": [16, 32, 48, 64]}, "mobilevit": {},
    "resnet": {"hidden_sizes": [16, 32, 48, 64], "embedding_size": 16}, "regnet": {}, "wav2vec2": {}, "hubert": {},
}
VISION = {"vit", "deit", "beit", "dinov2", "convnext", "swin", "segformer", "poolformer", "mobilevit", "resnet", "regnet"}
OWN_SIZES = {"convnext", "mobilevit", "poolformer", "regnet", "resnet", "segformer", "swin"}
AUDIO = {"wav2vec2", "hubert"}
ENCODER_DECODER = {"bart", "t5"}
USUAL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
         "vocab_size": 500, "max_position_embeddings": 128, "use_cache": False, "pad_token_id": 1, "return_dict": True}


class Outputs(torch.nn.Module):
    """A model that gives its tensors as a tuple."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        return tuple(t for t in pytree.tree_leaves(dict(self.model(**inputs))) if isinstance(t, torch.Tensor))


def torchvision_model(name):
    import torchvision
    place = torchvision.models
    for part in name.split("."):
        place = getattr(place, part)
    extra = {"weights_backbone": None} if name.startswith("segmentation") else {}
    if name in ("googlenet", "inception_v3"):
        extra["init_weights"] = True
    model = place(weights=None, **extra).eval()
    size = 299 if name == "inception_v3" else 256 if name == "swin_v2_t" else 224
    if name.startswith("segmentation"):
        class Segments(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, x):
                return self.model(x)["out"]
        return Segments().eval(), (torch.randn(1, 3, 160, 160),), {}
    return model, (torch.randn(1, 3, size, size),), {}


def timm_model(name):
    import timm
    model = timm.create_model(name, pretrained=False).eval()
    size = model.default_cfg["input_size"]
    return model, (torch.randn(1, *size),), {}


def transformers_model(name):
    import transformers
    usual = {} if name in OWN_SIZES else dict(USUAL)
    for field in {"falcon": ["num_key_value_heads"], "xlnet": ["max_position_embeddings"]}.get(name, ()):
        usual.pop(field)
    config = transformers.AutoConfig.for_model(name, **{**usual, **TRANSFORMERS[name]})
    model = transformers.AutoModel.from_config(config).eval()
    if name in VISION:
        size = getattr(config, "image_size", 64)
        size = size if isinstance(size, int) and size <= 64 else 64
        return Outputs(model), (), {"pixel_values": torch.randn(1, 3, size, size)}
    if name in AUDIO:
        return Outputs(model), (), {"input_values": torch.randn(1, 4000)}
    ids = torch.randint(3, 400, (2, 16))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if name in ENCODER_DECODER:
        inputs["decoder_input_ids"] = torch.randint(3, 400, (2, 7))
    if name == "fnet":
        inputs.pop("attention_mask")
    return Outputs(model), (), inputs


def models(hundred=False, twenty=False):
    number = 0
    for family, names, make, count in (("torchvision", TORCHVISION, torchvision_model, 30), ("timm", TIMM, timm_model, 40),
                                       ("transformers", TRANSFORMERS, transformers_model, 30)):
        for name in list(names)[:count if hundred or twenty else None]:
            if not twenty or number % 5 == 0:
                yield f"{family}/{name}", make, name
            number += 1


def leaves(value):
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def difference(got, want):
    worst = 0.0
    for g, w in zip(leaves(got), leaves(want), strict=True):
        if g.shape != w.shape:
            return f"a shape of {list(g.shape)} for {list(w.shape)}"
        if w.numel() == 0:
            continue
        if not torch.equal(torch.isfinite(g), torch.isfinite(w)):
            return "other places that are not finite"
        w, g = (t.double().nan_to_num(0, 0, 0) for t in (w, g))
        worst = max(worst, ((g - w).abs().max() / w.abs().max().clamp(min=1e-30)).item())
    return worst


def archive_of(model, args, kwargs):
    program = torch.export.export(model, args, kwargs, strict=False)
    try:
        program = program.run_decompositions()
    except Exception as error:  # noqa: BLE001 - PyTorch's own; the program is read as it is
        print(f"    not decomposed: {str(error).strip().splitlines()[0][:120]}")
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()


def examine(how, model, args, kwargs, threads):
    """What went wrong, or ''; and, of torch.compile, what it gave."""
    run = None
    with torch.no_grad():
        want = model(*args, **kwargs)
        if how == "survey":
            refused = _native.refused_aten_nodes(archive_of(model, args, kwargs), {})
            found = collections.Counter((target, reason) for _, target, reason in refused)
            return "; ".join(f"{n} x {target}: {reason}" for (target, reason), n in found.items()), None
        if how == "export":
            compiled = tessera.compile(archive_of(model, args, kwargs), threads=threads)
            given = {info.name: value for info, value in zip(compiled.inputs, leaves((args, kwargs)))}
            got = [torch.from_numpy(array) for array in compiled.run({name: t.numpy() for name, t in given.items()})]
            if len(got) != len(leaves(want)):
                return f"{len(got)} outputs for {len(leaves(want))}", None
        else:
            torch._dynamo.reset()
            tessera.torch.reset()
            run = torch.compile(model, backend="tessera", dynamic=False)
            got = run(*args, **kwargs)
            left = [f"{target}: {reason}" for report in tessera.torch.reports()
                    for target, reason in sorted({(t, r) for _, t, r in report.eager})]
            left += [report.reason for report in tessera.torch.reports() if report.reason]
            if left:
                return "left to PyTorch: " + "; ".join(left), run
        worst = difference(got, want)
        if not isinstance(worst, float) or worst > TOLERANCE:
            return f"differs: {worst if isinstance(worst, str) else f'{worst:.1e}'}", run
    return "", run


def measure(model, compiled, args, kwargs, seconds, clock):
    """Medians in ms of eager, Inductor and what torch.compile made with tessera, in turn."""
    runs = {"eager": model, "inductor": torch.compile(model, dynamic=False), "tessera": compiled}
    times = {name: [] for name in runs}
    with torch.no_grad():
        for name in list(runs):
            try:
                for _ in range(3):
                    runs[name](*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a peer that cannot run it
                print(f"    {name}: {str(error).strip().splitlines()[0][:100]}")
                del runs[name]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times["tessera"]) < 3:
            for name, run in runs.items():
                begin = clock()
                run(*args, **kwargs)
                times[name].append(clock() - begin)
    return {name: statistics.median(t) * 1e3 for name, t in times.items() if t}


def run_model(name, make, key, args, threads):
    """What went wrong, or '', and what is measured; None where the library cannot make the model."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    begin, times = time.perf_counter(), {}
    try:
        model, inputs, keywords = make(key)
    except Exception as error:  # noqa: BLE001 - the list goes on
        print(f"none  {name}: cannot be made: {str(error).strip().splitlines()[0][:150]}", flush=True)
        return None
    try:
        wrong, compiled = examine(args.how, model, inputs, keywords, threads)
        if not wrong and args.time and compiled is not None:
            clock = time.process_time if args.processor_time else time.perf_counter
            times = measure(model, compiled, inputs, keywords, args.time, clock)
    except Exception as error:  # noqa: BLE001
        wrong = f"{type(error).__name__}: {(str(error).strip() or '?')[:600]}"
    shown = "  ".join(f"{engine} {ms:.2f} ms" for engine, ms in times.items())
    print(f"{'wrong' if wrong else 'ok   '} {name} ({time.perf_counter() - begin:.1f} s) {shown}{wrong}", flush=True)
    return {"wrong": wrong, "ms": times}


def entry(name, threads):
    """What a file of results calls a model's run."""
    return f"{name}, {threads} thread{'s' * (threads > 1)}"


def print_speeds(results, threads):
    """How often the faster of eager and Inductor takes our time, over all models of a count of threads."""
    times = [result["ms"] for name, result in results.items() if name.endswith(entry("", threads)) and "tessera" in result["ms"]]
    ratios = [min(ms for engine, ms in t.items() if engine != "tessera") / t["tessera"] for t in times]
    if ratios:
        print(f"{entry(f'{len(ratios)} models', threads)}: {statistics.geometric_mean(ratios):.2f} times as fast as the faster of "
              f"eager and Inductor (geometric mean), the least {min(ratios):.2f}")


def run_in_process(name, args, threads):
    """As run_model, in a process of its own that ends after args.isolate seconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, __file__, "--match", f"^{re.escape(name)}$", "--how", args.how, "--time", str(args.time),
                   "--threads", str(threads), "--json", file.name, *["--processor-time"] * args.processor_time]
        try:
            done = subprocess.run(command, timeout=args.isolate)
        except subprocess.TimeoutExpired:
            wrong = f"did not end in {args.isolate} s"
        else:
            written = file.read()
            if written:
                return json.loads(written).get(entry(name, threads))
            wrong = f"the process ended with {done.returncode}"
    print(f"wrong {name} {wrong}", flush=True)
    return {"wrong": wrong, "ms": {}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hundred", action="store_true")
    parser.add_argument("--twenty", action="store_true")
    parser.add_argument("--match", default="")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--how", choices=("compile", "export", "survey"), default="compile")
    parser.add_argument("--time", type=float, default=0)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1])
    parser.add_argument("--json")
    parser.add_argument("--isolate", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    shard, shards = map(int, args.shard.split("/"))
    results = {}
    if args.isolate and args.json and os.path.exists(args.json):
        results = json.loads(pathlib.Path(args.json).read_text())
    for threads, (number, (name, make, key)) in itertools.product(args.threads, enumerate(models(args.hundred, args.twenty))):
        if number % shards != shard or not re.search(args.match, name) or entry(name, threads) in results:
            continue
        result = run_in_process(name, args, threads) if args.isolate else run_model(name, make, key, args, threads)
        if result is not None:
            results[entry(name, threads)] = result
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(results, indent=1))
    for threads in args.threads:
        print_speeds(results, threads)
    good = sum(not result["wrong"] for result in results.values())
    print(f"{good} of {len(results)} models match")
    return 0 if good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
