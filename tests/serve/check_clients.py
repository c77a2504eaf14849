#!/usr/bin/env python3
"""Clients that others wrote against `inferno serve`: OpenAI's, Anthropic's, Ollama's, LiteLLM, LangChain.

usage: check_clients.py INFERNO
"""
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import anthropic
import httpx
import ollama
import openai

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is asked of the network
MESSAGES = [{"role": "user", "content": "Tell me of the sea."}]


# What a template shows of the format, and a call of weather in it.
FORMATS = {
    "hermes": ("<tool_call>", '<tool_call>\n{"name": "weather", "arguments": {"place": "sea"}}\n</tool_call>'),
    "qwen_tags": ("<tool_call><function=", "<tool_call>\n<function=weather>\n<parameter=place>\nsea\n</parameter>\n"
                  "</function>\n</tool_call>"),
    "seed_tags": ("<seed:tool_call>", "<seed:tool_call>\n<function=weather>\n<parameter=place>sea</parameter>\n"
                  "</function>\n</seed:tool_call>"),
    "minimax_tags": ("<minimax:tool_call>", '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="place">sea'
                     "</parameter>\n</invoke>\n</minimax:tool_call>"),
    "glm_tags": ("<arg_key>", "<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>sea</arg_value>\n</tool_call>"),
    "llama_json": ('<|start_header_id|>"parameters"', '{"name": "weather", "parameters": {"place": "sea"}}'),
    "llama_pythonic": ("[func_name1(", "[weather(place='sea')]"),
    "lfm_pythonic": ("<|tool_call_start|>", "<|tool_call_start|>[weather(place='sea')]<|tool_call_end|>"),
    "mistral_list": ("[TOOL_CALLS]", '[TOOL_CALLS] [{"name": "weather", "arguments": {"place": "sea"}}]'),
    "mistral_named": ("[TOOL_CALLS][ARGS]", '[TOOL_CALLS]weather[ARGS]{"place": "sea"}'),
    "granite_list": ("<|tool_call|>", '<|tool_call|>[{"name": "weather", "arguments": {"place": "sea"}}]'),
    "harmony": ("<|channel|><|message|>", "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
                '{"place": "sea"}'),
    "deepseek_json": ("<｜tool▁call▁begin｜>```json", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
                      '```json\n{"place": "sea"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'),
    "deepseek_named": ("<｜tool▁call▁begin｜>", '<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"place": "sea"}<｜tool▁call▁end｜>'),
    "gemma": ("<|tool_call>", '<|tool_call>call:weather{place:<|"|>sea<|"|>}<tool_call|>'),
    "function_gemma": ("<start_function_call>", "<start_function_call>call:weather{place:<escape>sea<escape>}"
                       "<end_function_call>"),
}


def start(inferno, template="chatml", model=()):
    server = subprocess.Popen([inferno, "serve", *model, "--port", "0", "--quiet", "--alias", "story",
                               "--chat-template", template],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return server, server.stdout.readline().split(" on ")[1].strip().removesuffix("/v1")


def check_openai(base):
    client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
    assert client.models.list().data[0].id == "story"
    assert client.models.retrieve("story").id == "story"
    whole = client.chat.completions.create(model="story", messages=MESSAGES, max_completion_tokens=12, temperature=0,
                                           logprobs=True, top_logprobs=2, n=2)
    assert len(whole.choices) == 2 and whole.usage.completion_tokens > 0
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    streamed, usage = "", None
    for chunk in client.chat.completions.create(model="story", messages=MESSAGES, max_tokens=12, temperature=0,
                                                stream=True, stream_options={"include_usage": True}):
        streamed += "".join(c.delta.content or "" for c in chunk.choices)
        usage = chunk.usage or usage
    assert streamed == whole.choices[0].message.content, (streamed, whole.choices[0].message.content)
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    text = client.completions.create(model="story", prompt="The sea", max_tokens=4, echo=True)
    assert text.choices[0].text.startswith("The sea")
    answer = client.responses.create(model="story", input="Tell me of the sea.", max_output_tokens=12, temperature=0)
    assert answer.output_text == streamed, answer.output_text
    parts = [e.delta for e in client.responses.create(model="story", input="Tell me of the sea.", max_output_tokens=12,
                                                      temperature=0, stream=True) if e.type == "response.output_text.delta"]
    assert "".join(parts) == streamed
    for error, call in [(openai.NotFoundError, lambda: client.models.retrieve("other")),
                        (openai.BadRequestError, lambda: client.completions.create(model="story", prompt="a", temperature=-1)),
                        (openai.BadRequestError, lambda: client.embeddings.create(model="story", input="a"))]:
        try:
            call()
            raise AssertionError(f"no {error}")
        except error as raised:
            assert raised.body["message"]

    async def several():
        other = openai.AsyncOpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
        made = await asyncio.gather(*[other.chat.completions.create(model="story", messages=MESSAGES, max_tokens=12,
                                                                    temperature=0) for _ in range(4)])
        assert {m.choices[0].message.content for m in made} == {streamed}

    asyncio.run(several())
    return streamed


def check_tools(base, says=FORMATS["hermes"][1]):
    """A loop over tools as programs write it; a form that the answer must have plays the model."""
    client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
    schema = {"type": "object", "properties": {"place": {"enum": ["sea", "land"]}}, "required": ["place"],
              "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "weather", "description": "of a place", "parameters": schema}}]
    messages = list(MESSAGES)
    made = client.chat.completions.create(model="story", messages=messages, tools=tools, extra_body={"choice": [says]})
    assert made.choices[0].finish_reason == "tool_calls"
    # The same answer as a stream joins to the same calls.
    with client.chat.completions.stream(model="story", messages=messages, tools=tools, extra_body={"choice": [says]}) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == "tool_calls"
    assert [(call.function.name, call.function.arguments) for call in streamed.message.tool_calls] == \
        [(call.function.name, call.function.arguments) for call in made.choices[0].message.tool_calls], streamed
    messages.append(made.choices[0].message)
    for call in made.choices[0].message.tool_calls:
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"place": "sea"})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "calm"})
    last = client.chat.completions.create(model="story", messages=messages, tools=tools, max_tokens=8)
    assert last.choices[0].message.tool_calls is None
    with client.chat.completions.stream(model="story", messages=MESSAGES, tools=tools, tool_choice="required",
                                        max_tokens=400, parallel_tool_calls=False, seed=1) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments)["place"] in ("sea", "land")


def check_formats(inferno):
    """The same loop for each way in which models write calls, by a template that shows it."""
    for sign, says in FORMATS.values():
        template = ("{# " + sign + " #}{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
                    "{{ m.tool_calls if m.tool_calls else '' }}{% endfor %}{{ tools }}")
        with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as file:
            file.write(template)
            file.flush()
            server, base = start(inferno, file.name)
        try:
            check_tools(base, says)
        finally:
            server.terminate()
            server.wait()


SCHEMA = {"type": "object", "properties": {"place": {"enum": ["sea", "land"]}}, "required": ["place"],
          "additionalProperties": False}


def check_other_tools(base):
    """Calls and results in the words of the other APIs."""
    says = {"choice": [FORMATS["hermes"][1]]}
    client = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0)
    tools = [{"name": "weather", "description": "of a place", "input_schema": SCHEMA}]
    with client.messages.stream(model="story", max_tokens=100, messages=MESSAGES, tools=tools, extra_body=says) as stream:
        made = stream.get_final_message()
    assert made.stop_reason == "tool_use" and made.content[0].input == {"place": "sea"}, made
    result = {"type": "tool_result", "tool_use_id": made.content[0].id, "content": "calm"}
    client.messages.create(model="story", max_tokens=8, tools=tools, messages=MESSAGES + [
        {"role": "assistant", "content": made.content}, {"role": "user", "content": [result]}])
    made = client.messages.create(model="story", max_tokens=400, messages=MESSAGES, tools=tools,
                                  tool_choice={"type": "tool", "name": "weather"})
    assert made.content[0].input["place"] in ("sea", "land"), made
    chat = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    made = ollama.Client(host=base).chat(model="story", messages=MESSAGES, tools=chat, options={"num_predict": 8})
    assert made.message.role == "assistant"
    client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
    flat = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
    made = client.responses.create(model="story", input=MESSAGES, tools=flat, extra_body=says)
    call = made.output[0]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", {"place": "sea"}), made
    client.responses.create(model="story", tools=flat, max_output_tokens=8, input=MESSAGES + [
        call, {"type": "function_call_output", "call_id": call.call_id, "output": "calm"}])
    done = [e for e in client.responses.create(model="story", input=MESSAGES, tools=flat, tool_choice="required",
                                               max_output_tokens=400, stream=True)
            if e.type == "response.function_call_arguments.done"]
    assert json.loads(done[0].arguments)["place"] in ("sea", "land")


def check_anthropic(base, expected):
    client = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0)
    whole = client.messages.create(model="story", max_tokens=12, messages=MESSAGES, extra_body={"temperature": 0})
    assert whole.content[0].text == expected and whole.stop_reason == "max_tokens", whole
    with client.messages.stream(model="story", max_tokens=12, messages=MESSAGES, extra_body={"temperature": 0}) as stream:
        assert "".join(stream.text_stream) == expected
        assert stream.get_final_message().usage.output_tokens == whole.usage.output_tokens
    assert client.messages.count_tokens(model="story", messages=MESSAGES).input_tokens > 0
    try:
        client.messages.create(model="other", max_tokens=1, messages=MESSAGES)
        raise AssertionError("no error")
    except anthropic.NotFoundError:
        pass


def check_ollama(base, expected):
    client = ollama.Client(host=base)
    assert client.list().models[0].model == "story"
    assert client.show("story").capabilities == ["completion"]
    assert client.ps().models[0].model == "story"
    options = {"num_predict": 12, "temperature": 0}
    assert client.chat(model="story", messages=MESSAGES, options=options).message.content == expected
    assert "".join(p.message.content for p in client.chat(model="story", messages=MESSAGES, options=options,
                                                          stream=True)) == expected
    assert client.generate(model="story", prompt="Tell me of the sea.", options=options).response == expected
    try:
        client.chat(model="other", messages=MESSAGES)
        raise AssertionError("no error")
    except ollama.ResponseError as error:
        assert error.status_code == 404


def check_litellm(base, expected):
    import litellm
    litellm.telemetry = False
    for model, address in [("openai/story", base + "/v1"), ("ollama_chat/story", base), ("anthropic/story", base)]:
        made = litellm.completion(model=model, api_base=address, api_key="none", messages=MESSAGES, max_tokens=12,
                                  temperature=0, num_retries=0)
        assert made.choices[0].message.content == expected, (model, made)


def check_langchain(base, expected):
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(model="story", base_url=base + "/v1", api_key="none", max_completion_tokens=12, temperature=0,
                      max_retries=0)
    assert chat.invoke("Tell me of the sea.").content == expected
    assert "".join(part.content for part in chat.stream("Tell me of the sea.")) == expected


def check_embeddings(base):
    """All clients give the same vectors: as base64, which openai-python asks for by itself, and as floats."""
    texts = ["a cat", "a ship"]
    client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
    floats = client.embeddings.create(model="story", input=texts, encoding_format="float")
    expected = [row.embedding for row in floats.data]
    assert len(expected) == 2 and [row.index for row in floats.data] == [0, 1] and floats.usage.prompt_tokens > 2
    assert abs(sum(v * v for v in expected[0]) - 1) < 1e-5

    def is_expected(rows):
        return all(abs(a - b) < 1e-6 for row, other in zip(rows, expected, strict=True)
                   for a, b in zip(row, other, strict=True))

    assert is_expected([row.embedding for row in client.embeddings.create(model="story", input=texts).data])
    raw = client.embeddings.with_raw_response.create(model="story", input="a cat", encoding_format="base64")
    assert isinstance(raw.http_response.json()["data"][0]["embedding"], str)
    assert len(client.embeddings.create(model="story", input="a cat", dimensions=8).data[0].embedding) == 8

    async def many():
        asking = openai.AsyncOpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
        return await asyncio.gather(*(asking.embeddings.create(model="story", input=texts) for _ in range(8)))
    assert all(is_expected([row.embedding for row in made.data]) for made in asyncio.run(many()))
    for call in [lambda: client.embeddings.create(model="story", input="a", dimensions=10**6),
                 lambda: client.embeddings.create(model="story", input=[]),
                 lambda: client.chat.completions.create(model="story", messages=MESSAGES)]:
        try:
            call()
            raise AssertionError("no error")
        except openai.BadRequestError as error:
            assert error.body["type"] == "invalid_request_error", error.body
    local = ollama.Client(host=base)
    assert local.show("story").capabilities == ["embedding"]
    assert is_expected(local.embed(model="story", input=texts).embeddings)
    assert is_expected([local.embeddings(model="story", prompt=text).embedding for text in texts])
    import litellm
    made = litellm.embedding(model="openai/story", input=texts, api_base=base + "/v1", api_key="none",
                             encoding_format="float", num_retries=0)
    assert is_expected([row["embedding"] for row in made.data])
    from langchain_openai import OpenAIEmbeddings
    chain = OpenAIEmbeddings(model="story", base_url=base + "/v1", api_key="none", check_embedding_ctx_length=False,
                             max_retries=0)
    assert is_expected(chain.embed_documents(texts))


def main():
    server, base = start(sys.argv[1])
    try:
        expected = check_openai(base)
        check_tools(base)
        check_other_tools(base)
        print("openai: passed", flush=True)
        for name, check in [("anthropic", check_anthropic), ("ollama", check_ollama), ("litellm", check_litellm),
                            ("langchain-openai", check_langchain)]:
            check(base, expected)
            print(f"{name}: passed", flush=True)
        assert httpx.get(base + "/health").json() == {"status": "ok"}
    finally:
        server.terminate()
        server.wait()
    encoder = pathlib.Path(__file__).resolve().parent.parent / "data" / "embeddings" / "bert.gguf"
    server, base = start(sys.argv[1], model=[str(encoder)])
    try:
        check_embeddings(base)
        print("embeddings: passed", flush=True)
    finally:
        server.terminate()
        server.wait()
    check_formats(sys.argv[1])
    print(f"tools in {len(FORMATS)} formats: passed", flush=True)


main()
