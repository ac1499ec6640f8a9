#!/usr/bin/env python3
"""The server of language models: OpenAI's interface, whole answers and streams of the same text, what is refused.

    serve_test.py"""
import json
import pathlib
import sys
import tempfile
import unittest

import numpy as np

try:
    import jinja2  # noqa: F401
    from starlette.testclient import TestClient
except (ImportError, RuntimeError) as error:  # starlette says so when httpx is missing
    print(f"skipped: {error}; pip install jinja2 starlette uvicorn httpx")
    sys.exit(77)

import gguf_models
from tessera import llm, serve


class Server(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        metadata = {**gguf_models.metadata_of("llama"), **gguf_models.tokenizer_of_letters()}
        path = pathlib.Path(tempfile.mkdtemp(prefix="serve_test")) / "model.gguf"
        gguf_models.write(path, metadata, gguf_models.tensors_of(metadata, np.random.default_rng(3)))
        cls.model = llm.load(path, threads=1)
        cls.client = TestClient(serve.application(cls.model, "small", caches=2, lookup=3))

    def post(self, path, **body):
        return self.client.post(f"/v1/{path}", json=body)

    def test_models(self):
        self.assertEqual(self.client.get("/v1/models").json()["data"][0]["id"], "small")
        self.assertEqual(self.client.get("/health").status_code, 200)

    def test_completion(self):
        answer = self.post("completions", prompt="abc", max_tokens=9, temperature=0).json()
        want = self.model.generate("abc", max_tokens=9)
        self.assertEqual(answer["choices"][0]["text"], want)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"], {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12})
        by_numbers = self.post("completions", prompt=self.model.tokenizer.encode("abc"), max_tokens=9, temperature=0).json()
        self.assertEqual(by_numbers["choices"], answer["choices"])

    def test_stop(self):
        want = self.model.generate("abc", max_tokens=9)
        answer = self.post("completions", prompt="abc", max_tokens=9, temperature=0, stop=["never", want[4:6]]).json()
        self.assertEqual(answer["choices"][0]["text"], want[: want.index(want[4:6])])
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")

    def test_stream(self):
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 7, "temperature": 1, "seed": 5}
        whole = self.post("chat/completions", **body).json()["choices"][0]["message"]["content"]
        with self.client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
            lines = [line for line in response.iter_lines() if line]
        self.assertEqual(lines[-1], "data: [DONE]")
        parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-1]]
        self.assertEqual("".join(part["delta"].get("content", "") for part in parts), whole)
        self.assertEqual(parts[-1]["finish_reason"], "length")

    def test_refused(self):
        for body in ({}, {"prompt": 3}, {"prompt": ""}, {"prompt": "a" * 64}, {"prompt": "a", "temperature": -1}, {"prompt": "a", "n": 2},
                     {"prompt": "a", "stop": [3]}, {"prompt": "a", "max_tokens": "many"}, {"prompt": [99]}):
            response = self.post("completions", **body)
            self.assertEqual(response.status_code, 400, body)
            self.assertIn("message", response.json()["error"])
        for messages in (None, [], [3], [{"role": "user"}]):
            self.assertEqual(self.post("chat/completions", messages=messages).status_code, 400)
        self.assertEqual(self.client.post("/v1/completions", content=b"{").status_code, 400)


if __name__ == "__main__":
    unittest.main()
