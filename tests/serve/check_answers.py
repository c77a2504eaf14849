#!/usr/bin/env python3
"""Answers and the chunks of streams of `inferno serve` against OpenAI's own description of its API.

usage: check_answers.py INFERNO OPENAPI.json

The description is the file of that name in the repository openai/openai-openapi.
"""
import json
import subprocess
import sys
import urllib.error
import urllib.request

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

CHAT = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Tell me of the sea."}]
WEATHER = {"name": "weather", "description": "of a place",
           "parameters": {"type": "object", "properties": {"place": {"enum": ["sea", "land"]}}, "required": ["place"],
                          "additionalProperties": False}}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}

# Path, the schema of a whole answer, that of a stream's parts, and requests.
CASES = [
    ("/v1/chat/completions", "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse", [
        {"messages": CHAT},
        {"messages": CHAT, "n": 3, "logprobs": True, "top_logprobs": 4, "temperature": 1},
        {"messages": CHAT, "logprobs": True},
        {"messages": CHAT, "stop": ["a"]},
        {"messages": CHAT, "response_format": {"type": "json_object"}},
        {"messages": CHAT, "tools": [{"type": "function", "function": WEATHER}]},
        {"messages": CHAT, "tools": [{"type": "function", "function": WEATHER}], "tool_choice": "required", "max_tokens": 80},
        {"messages": CHAT + [
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"place\": \"sea\"}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "calm"}]}]),
    ("/v1/completions", "CreateCompletionResponse", "CreateCompletionResponse", [
        {"prompt": "The sea"},
        {"prompt": ["The sea", "A ship"], "n": 2, "logprobs": 3},
        {"prompt": [5, 6, 7], "stop": "e"},
        {"prompt": "The sea", "echo": True}]),
    ("/v1/responses", "Response", "ResponseStreamEvent", [
        {"input": "Tell me of the sea.", "max_output_tokens": 12},
        {"input": CHAT, "instructions": "Be brief.", "max_output_tokens": 12, "temperature": 0.5}]),
]
ERRORS = [("/v1/chat/completions", {"messages": CHAT, "temperature": -1}), ("/v1/completions", {}),
          ("/v1/chat/completions", {"model": "other", "messages": CHAT}), ("/v1/responses", {"input": 5})]


def adapted(node):
    """OpenAPI's own words as JSON Schema: `nullable`, of its older form, is all that is left of them."""
    if isinstance(node, list):
        return [adapted(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: adapted(value) for key, value in node.items()}
    if node.pop("nullable", False) is True:
        return {"anyOf": [node, {"type": "null"}]}
    return node


def as_described(schema, value):
    """Where the description contradicts itself: chunks of a text have no reason to end and, as its words about
    `include_usage` say, no usage yet, and both are null."""
    if schema != "CreateCompletionResponse":
        return value
    choices = [choice | {"finish_reason": choice["finish_reason"] or "stop"} for choice in value["choices"]]
    return {key: item for key, item in value.items() if item is not None} | {"choices": choices}


class Judge:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            document = adapted(json.load(file))
        resource = Resource(contents=document, specification=DRAFT202012)
        self.registry = Registry().with_resource("urn:api", resource)
        self.validators = {}
        self.judged = 0
        self.wrong = 0

    def look(self, schema, value, what):
        if schema not in self.validators:
            self.validators[schema] = Draft202012Validator({"$ref": f"urn:api#/components/schemas/{schema}"},
                                                           registry=self.registry)
        self.judged += 1
        error = next(iter(sorted(self.validators[schema].iter_errors(value), key=lambda e: -len(e.path))), None)
        if error is None:
            return
        self.wrong += 1
        while error.context:
            error = max(error.context, key=lambda e: (len(e.path), -len(e.message)))
        where = "/".join(map(str, error.absolute_path))
        print(f"{what}: not a {schema}: {where}: {error.message[:200]}\n  {json.dumps(value)[:400]}")


def ask(base, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def check(base, judge):
    for path, whole, part, bodies in CASES:
        for body in bodies:
            body = {"model": "story", "temperature": 0, "max_tokens": 12} | body
            if path == "/v1/responses":
                del body["max_tokens"]
            status, text = ask(base, path, body)
            assert status == 200, (path, body, text)
            judge.look(whole, json.loads(text), path)
            streamed = body | ({"stream": True} if path == "/v1/responses" else STREAM)
            status, text = ask(base, path, streamed)
            assert status == 200, (path, streamed, text)
            events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            for event in events:
                if event != "[DONE]":
                    judge.look(part, as_described(part, json.loads(event)), path + ", stream")
    for path, body in ERRORS:
        status, text = ask(base, path, body)
        assert 400 <= status < 500, (path, status)
        judge.look("ErrorResponse", json.loads(text), path + ", error")
    judge.look("ListModelsResponse", json.loads(ask(base, "/v1/models")[1]), "/v1/models")
    judge.look("Model", json.loads(ask(base, "/v1/models/story")[1]), "/v1/models/story")


def main():
    inferno, description = sys.argv[1:]
    judge = Judge(description)
    server = subprocess.Popen([inferno, "serve", "--port", "0", "--quiet", "--alias", "story", "--chat-template", "chatml"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        check(server.stdout.readline().split(" on ")[1].strip().removesuffix("/v1"), judge)
    finally:
        server.terminate()
        server.wait()
    print(f"{judge.judged} answers and parts of streams, {judge.wrong} not as OpenAI's description says")
    sys.exit(1 if judge.wrong else 0)


main()
