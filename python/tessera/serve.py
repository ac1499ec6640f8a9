"""A server for a language model in a GGUF file, with OpenAI's interface: /v1/models, /v1/completions, /v1/chat/completions,
streaming as server-sent events.

    tessera serve MODEL.gguf --port 8080

Requests take turns token by token. Each has a cache of keys and values out of a few; a request gets the one that begins most
like its prompt, so a conversation goes on where it was. Needs the packages starlette and uvicorn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
        tokenizer = model.tokenizer
        if chat:
            messages = body.get("messages")
            is_text = isinstance(messages, list) and messages and all(
                isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
            )
            if not is_text:
                raise BadRequest("'messages' must be objects with a 'role' and a 'content', which are texts")
            self.ids = tokenizer.encode(tokenizer.chat(messages), begin=False)
        else:
            prompt = body.get("prompt")
            if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
                prompt = prompt[0]
            if isinstance(prompt, str):
                self.ids = tokenizer.encode(prompt)
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

    def pieces(self, model: llm.LanguageModel, cache: llm.Cache) -> Iterator[str]:
        """The text piece by piece; an empty one where there is nothing to say after a token. What may be the beginning of a
        stop text is held back."""
        text, held = llm.Text(model.tokenizer), ""
        for token in model.tokens(self.ids, cache=cache, **self.options):
            self.count += 1
            held += text.add(token)
            places = [place for stop in self.stop if (place := held.find(stop)) >= 0]
            if places:
                yield held[: min(places)]
                return
            keep = max((n for stop in self.stop for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0)
            yield held[: len(held) - keep]
            held = held[len(held) - keep :]
        self.finish = "length" if self.count >= self.max_tokens or len(self.ids) + self.count >= model.context else "stop"
        yield held + text.rest()

    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": len(self.ids), "completion_tokens": self.count, "total_tokens": len(self.ids) + self.count,
        }


class _Caches:
    """A few caches; who asks for one waits until one is free."""

    def __init__(self, model: llm.LanguageModel, count: int) -> None:
        self._free = [model.new_cache() for _ in range(count)]
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def like(self, ids: Sequence[int]) -> AsyncIterator[llm.Cache]:
        def same(cache: llm.Cache) -> int:
            return next((i for i, (a, b) in enumerate(zip(ids, cache.tokens)) if a != b), min(len(ids), len(cache.tokens)))

        async with self._changed:
            await self._changed.wait_for(lambda: self._free)
            # Of those that have nothing in common, the one that was used longest ago.
            cache = max(self._free, key=same)
            self._free.remove(cache)
        try:
            yield cache
        finally:
            async with self._changed:
                self._free.append(cache)
                self._changed.notify()


def application(
    model: llm.LanguageModel, name: str, *, caches: int = 4, lookup: int = 0, ending: threading.Event | None = None
) -> Any:
    """An ASGI application. Answers end where they are once `ending` is set."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    ending = ending or threading.Event()
    pool = _Caches(model, caches)
    worker = ThreadPoolExecutor(1, "tokens")  # a model runs one thing at a time
    begun = int(time.time())

    def refused(message: str, status: int = 400) -> Response:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)

    async def pieces(request: _Request) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        async with pool.like(request.ids) as cache:
            texts = request.pieces(model, cache)
            while not ending.is_set() and (piece := await loop.run_in_executor(worker, next, texts, None)) is not None:
                yield piece

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
                text = "".join([piece async for piece in pieces(request)])
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
                async for piece in pieces(request):
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

    return Starlette(
        exception_handlers={404: unknown, 405: unknown},
        routes=[
            Route("/v1/models", models), Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat_completions, methods=["POST"]), Route("/health", health),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tessera serve", description="Serves a language model with OpenAI's interface.")
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine alone")
    parser.add_argument("--port", type=int, default=8080, help="default: 8080; 0: any that is free")
    parser.add_argument("--name", help="the model's name in answers (default: the file's)")
    parser.add_argument("--caches", type=int, default=4, help="requests at a time, and conversations to remember (default: 4)")
    parser.add_argument("--lookup", type=int, default=0, help="guess so many tokens at a time from the text so far (default: 0)")
    parser.add_argument("--threads", type=int, help="default: as tessera run")
    parser.add_argument("--context", type=int, default=2048, help="the most tokens of prompt and answer (default: 2048)")
    parser.add_argument("--module", help="where the compiled model is, or goes to")
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
        model = llm.load(given.model, module=given.module, context=given.context, threads=given.threads)
        model.tokenizer.encode("")
    except Error as error:
        print(f"error {error}", file=sys.stderr)
        return 1
    name = given.name or os.path.splitext(os.path.basename(given.model))[0]
    ending = threading.Event()

    class Server(uvicorn.Server):
        """One that lets answers end when it is told to, instead of waiting for the last of them."""

        def handle_exit(self, signal: int, frame: Any) -> None:
            ending.set()
            super().handle_exit(signal, frame)

    served = application(model, name, caches=max(given.caches, 1), lookup=given.lookup, ending=ending)
    with contextlib.suppress(KeyboardInterrupt):  # of which the server is through when it tells
        Server(uvicorn.Config(served, host=given.host, port=given.port, lifespan="off")).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
