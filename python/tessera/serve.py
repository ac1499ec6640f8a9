"""A server for a language model in a GGUF file, with OpenAI's interface: /v1/models, /v1/completions, /v1/chat/completions,
streaming as server-sent events.

    tessera serve MODEL.gguf --port 8080

Requests are answered together, `--batch` of them in a run, which reads the weights once; more take turns. Each has a cache of
keys and values out of a few; a request gets the one that begins most like its prompt, so a conversation goes on where it was.
Needs the packages starlette and uvicorn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from . import llm
from ._errors import Error

__all__ = ["application", "main"]


class BadRequest(Exception):
    """What is wrong with a request, for who made it."""


def _number(body: Mapping[str, Any], key: str, otherwise: Any, kind: type, low: float, high: float) -> Any:
    value = body.get(key)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int) or not low <= value <= high:
        raise BadRequest(f"'{key}' is {value!r}; legal: a number from {low} to {high}")
    return kind(value)


class _Request:
    """One completion: which tokens, and what its text becomes."""

    def __init__(self, model: llm.LanguageModel, body: Any, chat: bool, lookup: int) -> None:
        if not isinstance(body, dict):
            raise BadRequest("the body is no JSON object")
        if chat:
            messages = body.get("messages")
            is_text = isinstance(messages, list) and messages and all(
                isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
            )
            if not is_text:
                raise BadRequest("'messages' must be objects with a 'role' and a 'content', which are texts")
            self.ids = model.chat_prompt(messages)
        else:
            prompt = body.get("prompt")
            if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
                prompt = prompt[0]
            if isinstance(prompt, str):
                self.ids = model.tokenizer.encode(prompt)
            elif isinstance(prompt, list) and all(isinstance(t, int) and not isinstance(t, bool) for t in prompt):
                self.ids = prompt
                if not all(0 <= token < model.vocabulary for token in prompt):
                    raise BadRequest(f"'prompt' has numbers that are no tokens; legal: 0 to {model.vocabulary - 1}")
            else:
                raise BadRequest("'prompt' must be a text, or a list of numbers of tokens")
        if _number(body, "n", 1, int, 1, 1) != 1 or body.get("best_of") not in (None, 1):
            raise BadRequest("one answer at a time")
        room = model.context - len(self.ids)
        if room < 1 or not self.ids:
            raise BadRequest(f"the prompt has {len(self.ids)} tokens; legal: 1 to {model.context - 1}")
        most = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
        self.max_tokens = _number(body, most, room if chat else 16, int, 0, 1 << 31)
        stop = body.get("stop")
        self.stop = [stop] if isinstance(stop, str) else [] if stop is None else stop
        if not isinstance(self.stop, list) or not all(isinstance(text, str) and text for text in self.stop):
            raise BadRequest("'stop' must be a text or texts")
        self.stream = bool(body.get("stream", False))
        options = body.get("stream_options")
        self.with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self.options = {
            "max_tokens": self.max_tokens, "temperature": _number(body, "temperature", 1.0, float, 0, 100),
            "top_k": _number(body, "top_k", 0, int, 0, 1 << 31), "top_p": _number(body, "top_p", 1.0, float, 1e-9, 1),
            "seed": _number(body, "seed", None, int, 0, (1 << 63) - 1), "lookup": lookup,
        }
        self.finish = "stop"
        self.count = 0

    def begin(self, model: llm.LanguageModel, cache: llm.Cache) -> llm.Generation:
        self._text, self._held = llm.Detokenizer(model.tokenizer), ""
        self._context = model.context
        return model.begin(self.ids, cache, **self.options)

    def add(self, token: int) -> tuple[str, bool]:
        """What there is to say after a token, and whether it ends there. What may be the beginning of a stop text is held
        back."""
        self.count += 1
        held = self._held + self._text.add(token)
        places = [place for stop in self.stop if (place := held.find(stop)) >= 0]
        if places:
            return held[: min(places)], True
        keep = max((n for stop in self.stop for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep], False

    def end(self) -> str:
        """What is left to say where no stop text ended it."""
        self.finish = "length" if self.count >= self.max_tokens or len(self.ids) + self.count >= self._context else "stop"
        return self._held + self._text.rest()

    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": len(self.ids), "completion_tokens": self.count, "total_tokens": len(self.ids) + self.count,
        }


class _Engine:
    """A thread that runs the model for all requests that are there: a piece of as many as one run takes, in turn. A request
    waits for one of a few caches, and gets the one that begins most like its prompt."""

    PROMPT = 64  # tokens of a prompt that are read in a run where others wait for their next token

    def __init__(self, model: llm.LanguageModel, caches: int, ending: threading.Event) -> None:
        self._model, self._ending = model, ending
        self._free = [model.new_cache() for _ in range(caches)]
        self._asked: queue.SimpleQueue[_Answer | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="tokens", daemon=True).start()

    def ask(self, request: _Request) -> _Answer:
        answer = _Answer(request, asyncio.get_running_loop())
        self._asked.put(answer)
        if self._ending.is_set():  # the thread may be through
            answer.say(None)
        return answer

    def wake(self) -> None:
        self._asked.put(None)

    def _run(self) -> None:
        waiting: list[_Answer] = []
        active: list[_Answer] = []
        while not self._ending.is_set():
            idle = not active and not (waiting and self._free)
            with contextlib.suppress(queue.Empty):
                while (answer := self._asked.get(block=idle)) is not None:
                    waiting.append(answer)
                    idle = False
            while waiting and self._free:
                self._begin(waiting.pop(0), active)
            going = active[: self._model.sequences]
            if going and not self._ending.is_set():
                self._step(going)
            for answer in active:
                if answer.over:
                    self._free.append(answer.cache)  # the last one is the one used last
            # Those that did not get a place are next.
            rest = [answer for answer in going if not answer.over]
            active = [answer for answer in active[len(going) :] if not answer.over] + rest
        for answer in waiting + active:
            answer.say(None)

    def _begin(self, answer: _Answer, active: list[_Answer]) -> None:
        if answer.gone:
            return
        # Of those that have nothing in common, the one that was used longest ago.
        cache = max(self._free, key=lambda cache: cache.shared_prefix(answer.request.ids))
        self._free.remove(cache)
        try:
            answer.generation, answer.cache = answer.request.begin(self._model, cache), cache
        except Error as error:
            self._free.append(cache)
            answer.say(error)
            return
        active.append(answer)
        if answer.generation.done:
            answer.finish()

    def _step(self, going: list[_Answer]) -> None:
        for answer in going:
            answer.over |= answer.gone
        going = [answer for answer in going if not answer.over]
        if not going:
            return
        try:
            most = self.PROMPT if len(going) > 1 else 0
            decided = self._model.step([answer.generation for answer in going], most)
        except Error as error:
            for answer in going:
                answer.say(error)
                answer.over = True
            return
        for answer, tokens in zip(going, decided):
            for token in tokens:
                text, ended = answer.request.add(token)
                answer.say(text)
                if ended:
                    answer.say(None)
                    answer.over = True
                    break
            if answer.generation.done and not answer.over:
                answer.finish()


class _Answer:
    """An answer between the thread that makes it and the loop that sends it."""

    def __init__(self, request: _Request, loop: asyncio.AbstractEventLoop) -> None:
        self.request, self._loop = request, loop
        self._said: asyncio.Queue[str | Error | None] = asyncio.Queue()
        self.generation: llm.Generation
        self.cache: llm.Cache
        self.over = False  # its cache is free
        self.gone = False  # nobody waits for it

    def say(self, what: str | Error | None) -> None:
        with contextlib.suppress(RuntimeError):  # of a loop that is closed
            self._loop.call_soon_threadsafe(self._said.put_nowait, what)

    def finish(self) -> None:
        self.say(self.request.end())
        self.say(None)
        self.over = True

    async def pieces(self) -> AsyncIterator[str]:
        try:
            while (said := await self._said.get()) is not None:
                if isinstance(said, Error):
                    raise said
                yield said
        finally:
            self.gone = True


def application(
    model: llm.LanguageModel, name: str, *, caches: int = 4, lookup: int = 0, ending: threading.Event | None = None
) -> Any:
    """An ASGI application. Answers end where they are once `ending` is set."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    ending = ending or threading.Event()
    engine = _Engine(model, max(caches, model.sequences), ending)
    begun = int(time.time())

    def refused(message: str, status: int = 400) -> Response:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)

    async def complete(http: Request, chat: bool) -> Response:
        try:
            request = _Request(model, await http.json(), chat, lookup)
        except BadRequest as error:
            return refused(str(error))
        except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or brackets in brackets without end
            return refused(f"the body is no JSON: {error}")
        except Error as error:
            return refused(str(error))
        kind = "chat.completion" if chat else "text_completion"
        head = {"id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}", "created": int(time.time()), "model": name}

        if not request.stream:
            try:
                text = "".join([piece async for piece in engine.ask(request).pieces()])
            except Error as error:
                return refused(str(error))
            said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choice = {"index": 0, **said, "logprobs": None, "finish_reason": request.finish}
            return JSONResponse({**head, "object": kind, "choices": [choice], "usage": request.usage()})

        def event(said: Any, finish: str | None = None, **more: Any) -> str:
            part = {"delta": said} if chat else {"text": said}
            choice = {"index": 0, **part, "logprobs": None, "finish_reason": finish}
            shown = {**head, "object": "chat.completion.chunk" if chat else kind, "choices": [choice], **more}
            return f"data: {json.dumps(shown, ensure_ascii=False)}\n\n"

        async def events() -> AsyncIterator[str]:
            if chat:
                yield event({"role": "assistant", "content": ""})
            try:
                async for piece in engine.ask(request).pieces():
                    if piece:
                        yield event({"content": piece} if chat else piece)
            except Error as error:
                yield f"data: {json.dumps({'error': {'message': str(error), 'type': 'server_error'}})}\n\n"
                return
            yield event({} if chat else "", request.finish)
            if request.with_usage:
                shown = {**head, "object": "chat.completion.chunk" if chat else kind, "choices": [], "usage": request.usage()}
                yield f"data: {json.dumps(shown)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    async def completions(http: Request) -> Response:
        return await complete(http, chat=False)

    async def chat_completions(http: Request) -> Response:
        return await complete(http, chat=True)

    async def models(http: Request) -> Response:
        return JSONResponse(
            {"object": "list", "data": [{"id": name, "object": "model", "created": begun, "owned_by": "local"}]}
        )

    async def health(http: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def unknown(http: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        answer = refused(f"{http.method} {http.url.path}: {getattr(error, 'detail', 'no such address')}", status)
        answer.headers.update(getattr(error, "headers", None) or {})
        return answer

    served = Starlette(
        exception_handlers={404: unknown, 405: unknown},
        routes=[
            Route("/v1/models", models), Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat_completions, methods=["POST"]), Route("/health", health),
        ]
    )
    served.state.wake = engine.wake
    return served


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tessera serve", description="Serves a language model with OpenAI's interface.")
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine alone")
    parser.add_argument("--port", type=int, default=8080, help="default: 8080; 0: any that is free")
    parser.add_argument("--name", help="the model's name in answers (default: the file's)")
    parser.add_argument("--caches", type=int, default=4, help="requests at a time, and conversations to remember (default: 4)")
    parser.add_argument("--batch", type=int, default=1, help="requests in a run of the model (default: 1)")
    parser.add_argument("--precision", default="f32", help="f32, bf16, f16 or i8 (default: f32)")
    parser.add_argument("--lookup", type=int, default=0, help="guess so many tokens at a time from the text so far (default: 0)")
    parser.add_argument("--threads", type=int, help="default: as tessera run")
    parser.add_argument("--context", type=int, default=2048, help="the most tokens of prompt and answer (default: 2048)")
    parser.add_argument("--module", help="where the compiled model is, or goes to (default: the cache)")
    given = parser.parse_args(arguments)
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        missing = Error(f"the package {error.name} is missing, which the server is made of", id="TSR-4036",
                        legal="pip install starlette uvicorn")
        print(f"error {missing}", file=sys.stderr)
        return 1
    try:
        model = llm.load(
            given.model, module=given.module, context=given.context, threads=given.threads, precision=given.precision,
            sequences=given.batch,
        )
        model.tokenizer  # refused here, not at the first request
    except Error as error:
        print(f"error {error}", file=sys.stderr)
        return 1
    name = given.name or os.path.splitext(os.path.basename(given.model))[0]
    ending = threading.Event()

    class Server(uvicorn.Server):
        """One that lets answers end when it is told to, instead of waiting for the last of them."""

        def handle_exit(self, signal: int, frame: Any) -> None:
            ending.set()
            wake()
            super().handle_exit(signal, frame)

    served = application(model, name, caches=max(given.caches, 1), lookup=given.lookup, ending=ending)
    wake = served.state.wake
    with contextlib.suppress(KeyboardInterrupt):  # of which the server is through when it tells
        Server(uvicorn.Config(served, host=given.host, port=given.port, lifespan="off")).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
