"""Replicas of a model behind one address, with Ray Serve: POST /v1/chat/completions and /v1/completions, as OpenAI's API.

    pip install "ray[serve]" .
    python examples/python/ray_serve.py model.gguf --replicas 2          # without a file: the built-in model

Requests whose prompts begin alike go to the same replica, where the pages of the cache are found again. A replica that
dies in the middle of an answer is replaced, and the request is computed again by another: draws depend on the seed and
the position alone, so the second answer begins with the same text, and what a stream has sent is not sent twice.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import uuid
import zlib
from collections.abc import AsyncIterator
from typing import Any

from ray import serve
from ray.exceptions import RayError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

import inferno

PREFIX = 256  # characters of a prompt that decide where it goes
OPTIONS = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "stop", "seed", "presence_penalty",
           "frequency_penalty")
ATTEMPTS = 4


@serve.deployment(max_ongoing_requests=32, graceful_shutdown_timeout_s=60, health_check_period_s=5)
class Replica:
    """One loaded model. Ray restarts it when check_health fails, and lets its requests end before it stops it."""

    def __init__(self, path: str | None, threads: int):
        options: dict[str, Any] = {"threads": threads, "max_sequences": 8}
        self.llm = inferno.Llm(path, **options) if path else inferno.Llm.builtin(**options)

    @serve.multiplexed(max_num_models_per_replica=256)
    async def remember(self, beginning: str) -> str:
        """Ray sends what begins like this here again while it is among the last 256; the cache itself is inferno's."""
        return beginning

    def check_health(self) -> None:
        self.llm.stats()  # an inferno.Error where it cannot be used

    async def tokens(self, prompt: str | list[dict[str, Any]],
                     options: dict[str, Any]) -> AsyncIterator[tuple[int, Any]]:
        """Yields (index, text); at last (-1, the reason and the counts)."""
        await self.remember(serve.get_multiplexed_model_id())
        generation = (self.llm.submit(prompt, **options) if isinstance(prompt, str)
                      else self.llm.submit_chat(prompt, **options))
        try:
            index = 0
            async for token in generation:
                yield index, str(token)
                index += 1
            result = generation.result()
            yield -1, {"reason": result.reason, **result.metrics}
        finally:
            generation.cancel()


@serve.deployment(max_ongoing_requests=1000)
class Front:
    """HTTP on one side, the replicas on the other; holds no model."""

    def __init__(self, replicas: Any):
        self.replicas = replicas.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        chat = request.url.path.endswith("/chat/completions")
        try:
            body = await request.json()
            prompt = body["messages"] if chat else body["prompt"]
            options = {name: body[name] for name in OPTIONS if body.get(name) is not None}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _error(400, f"the body is no request: {error!r}")
        options.setdefault("seed", random.getrandbits(63))  # a second attempt must draw the same
        answer = self.attempts(prompt, options)
        if body.get("stream"):
            return StreamingResponse(_events(answer, chat), media_type="text/event-stream")
        try:
            text, end = "", {}
            async for index, piece in answer:
                if index < 0:
                    end = piece
                else:
                    text += piece
        except inferno.Error as error:
            return _error(400, str(error))
        except RayError as error:
            return _error(503, f"no replica could answer: {error!r}")
        return JSONResponse(_whole(text, end, chat))

    async def attempts(self, prompt: Any, options: dict[str, Any]) -> AsyncIterator[tuple[int, Any]]:
        """The tokens, each once, whatever becomes of the replicas that make them."""
        text = prompt if isinstance(prompt, str) else json.dumps(prompt)
        handle = self.replicas.options(multiplexed_model_id=f"{zlib.crc32(text[:PREFIX].encode()):08x}")
        sent = 0
        for attempt in range(ATTEMPTS):
            try:
                async for index, piece in handle.tokens.remote(prompt, options):
                    if index < 0 or index >= sent:
                        yield index, piece
                        sent = max(sent, index + 1)
                return
            except RayError as error:
                cause = getattr(error, "cause", None)
                if isinstance(cause, inferno.Error):
                    raise cause from error  # the request's own fault: nobody else could answer it
                if attempt + 1 == ATTEMPTS:
                    raise


def _whole(text: str, end: dict[str, Any], chat: bool) -> dict[str, Any]:
    reason = "length" if end["reason"] in ("length", "context_full") else "stop"
    choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
    choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    usage = {"prompt_tokens": end["prompt_tokens"], "completion_tokens": end["generated_tokens"],
             "total_tokens": end["prompt_tokens"] + end["generated_tokens"],
             "prompt_tokens_details": {"cached_tokens": end["reused_tokens"]}}
    return {"id": uuid.uuid4().hex, "object": "chat.completion" if chat else "text_completion",
            "created": int(time.time()), "model": "inferno", "choices": [choice], "usage": usage}


async def _events(answer: AsyncIterator[tuple[int, Any]], chat: bool) -> AsyncIterator[str]:
    head = {"id": uuid.uuid4().hex, "object": "chat.completion.chunk" if chat else "text_completion",
            "created": int(time.time()), "model": "inferno"}
    try:
        async for index, piece in answer:
            reason = None
            if index < 0:
                reason, piece = ("length" if piece["reason"] in ("length", "context_full") else "stop"), ""
            text = {"delta": {"content": piece} if piece else {}} if chat else {"text": piece}
            yield f"data: {json.dumps(head | {'choices': [{'index': 0, **text, 'finish_reason': reason}]})}\n\n"
    except (inferno.Error, RayError) as error:
        yield f"data: {json.dumps({'error': {'message': str(error).splitlines()[0]}})}\n\n"
    yield "data: [DONE]\n\n"


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error" if status == 400 else "api_error"}},
                        status_code=status)


def application(model: str | None, replicas: int, most: int, threads: int) -> Any:
    scaling = {"min_replicas": replicas, "max_replicas": most, "target_ongoing_requests": 8}
    model_deployment: Any = Replica
    front: Any = Front
    replica = model_deployment.options(autoscaling_config=scaling, ray_actor_options={"num_cpus": threads})
    return front.options(ray_actor_options={"num_cpus": 0}).bind(replica.bind(model, threads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a .gguf file")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--most", type=int, default=0, help="scale up to so many while requests wait")
    parser.add_argument("--threads", type=int, default=1, help="of each replica")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    serve.start(http_options={"host": "127.0.0.1", "port": args.port})
    serve.run(application(args.model, args.replicas, max(args.replicas, args.most), args.threads), blocking=True)


if __name__ == "__main__":
    main()
