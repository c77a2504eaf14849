"""Conversations, and OpenAI's interface over them."""

import pytest

import inferno
import inferno.openai

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]


def test_a_template_renders_messages(llm):
    text = llm.apply_chat_template(MESSAGES, chat_template=TEMPLATE)
    assert text == "<system>Be brief.\n<user>Hello\n<assistant>"
    without = llm.apply_chat_template(MESSAGES, chat_template=TEMPLATE, add_generation_prompt=False)
    assert without == "<system>Be brief.\n<user>Hello\n"
    ids = llm.apply_chat_template(MESSAGES, chat_template=TEMPLATE, tokenize=True)
    assert llm.chat(MESSAGES, chat_template=TEMPLATE, max_tokens=5).ids == llm.generate(ids, max_tokens=5).ids


@pytest.mark.parametrize("messages", [[{}], ["Hello"], [{"role": "user", "content": [{"type": "image_url"}]}]])
def test_messages_of_another_form_are_errors(llm, messages):
    with pytest.raises(inferno.Error):
        llm.chat(messages, chat_template=TEMPLATE)


def test_a_model_without_a_template_says_so(llm):
    with pytest.raises(inferno.Error):
        llm.chat(MESSAGES)


def test_the_client_answers_as_openais(llm):
    client = inferno.openai.Client(llm, model="stories")
    answer = client.chat.completions.create(messages=MESSAGES, max_tokens=5, temperature=0, logprobs=True,
                                            top_logprobs=2, extra_body={"chat_template": TEMPLATE})
    expected = llm.chat(MESSAGES, chat_template=TEMPLATE, max_tokens=5)
    choice = answer.choices[0]
    assert choice.message.content == expected.text and choice.finish_reason == "length"
    assert len(choice.logprobs.content) == 5 and len(choice.logprobs.content[0].top_logprobs) == 2
    assert answer.usage.completion_tokens == 5 and answer.model == "stories"
    assert answer.model_dump()["choices"][0]["message"]["role"] == "assistant"

    chunks = list(client.chat.completions.create(messages=MESSAGES, max_tokens=5, temperature=0, stream=True,
                                                 stream_options={"include_usage": True},
                                                 extra_body={"chat_template": TEMPLATE}))
    text = "".join(getattr(chunk.choices[0].delta, "content", "") for chunk in chunks if chunk.choices)
    assert text == expected.text and chunks[-1].usage.completion_tokens == 5
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-2].choices[0].finish_reason == "length"

    completed = client.completions.create(prompt="Once upon a time", max_tokens=4, temperature=0)
    assert completed.choices[0].text == llm.generate("Once upon a time", max_tokens=4).text


def test_the_client_refuses_what_it_does_not_know(llm):
    client = inferno.openai.Client(llm)
    with pytest.raises(TypeError):
        client.chat.completions.create(messages=MESSAGES, audio={})
    with pytest.raises(inferno.Error):
        client.completions.create(messages=MESSAGES)


def test_the_client_keeps_a_response_format(llm):
    import json

    client = inferno.openai.Client(llm)
    answer = client.completions.create(prompt="Once", max_tokens=80, temperature=0, response_format={
        "type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"ok": {"type": "boolean"}},
                                                          "required": ["ok"], "additionalProperties": False}}})
    assert answer.choices[0].finish_reason != "stop" or "ok" in json.loads(answer.choices[0].text)
    with pytest.raises(inferno.Error):
        client.completions.create(prompt="Once", response_format={"type": "xml"})


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}}}}}]
ARGUMENTS = '{"city": "Graz"}'
CALL = f'<tool_call>{{"name": "weather", "arguments": {ARGUMENTS}}}</tool_call>'


@pytest.mark.parametrize("text, message", [
    (CALL, {"content": None, "calls": ["weather"]}),
    ("I look. " + CALL + CALL, {"content": "I look.", "calls": ["weather", "weather"]}),
    ("<think>\nHm.\n</think>\n\nNo.", {"content": "No.", "reasoning_content": "Hm.", "calls": []}),
])
def test_an_answer_is_taken_apart(llm, text, message):
    """The model writes what it is made to write: what counts is what becomes of it."""
    client = inferno.openai.Client(llm)
    options = {"chat_template": TEMPLATE, "choice": [text]}
    made = llm.chat(MESSAGES, tools=TOOLS, max_tokens=200, **options)
    assert made.text == text and (made.message["content"] or "").strip() == (message["content"] or "")
    assert [call["function"] for call in made.tool_calls] == [
        {"name": name, "arguments": ARGUMENTS} for name in message["calls"]]
    assert made.message.get("reasoning_content", "").strip() == message.get("reasoning_content", "")

    whole = client.chat.completions.create(messages=MESSAGES, tools=TOOLS, max_tokens=200, extra_body=options)
    choice = whole.choices[0]
    assert choice.finish_reason == ("tool_calls" if message["calls"] else "stop")
    assert [call.function.name for call in choice.message.tool_calls or []] == message["calls"]

    pieces, content = {}, ""
    for chunk in client.chat.completions.create(messages=MESSAGES, tools=TOOLS, max_tokens=200, stream=True,
                                                extra_body=options):
        delta = chunk.choices[0].delta
        content += getattr(delta, "content", "")
        for call in getattr(delta, "tool_calls", []):
            pieces.setdefault(call.index, []).append(call)
    assert content == (made.message["content"] or "")
    assert [calls[0].function.name for calls in pieces.values()] == message["calls"]
    assert all("".join(call.function.arguments for call in calls) == ARGUMENTS for calls in pieces.values())
    # The answer is the conversation's next message, as it is.
    assert llm.apply_chat_template([*MESSAGES, made.message], chat_template=TEMPLATE)


def test_tools_of_another_form_are_errors(llm):
    with pytest.raises(inferno.Error):
        llm.chat(MESSAGES, tools=[{"type": "function"}], chat_template=TEMPLATE, max_tokens=2)
    with pytest.raises(inferno.Error):
        llm.chat(MESSAGES, tools=TOOLS, tool_choice="another", chat_template=TEMPLATE, max_tokens=2)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_that_must_be_is_made_and_fits_its_schema(llm, choice):
    import json

    place = {"type": "object", "properties": {"place": {"enum": ["sea", "land"]}}, "required": ["place"],
             "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": place}}]
    answer = inferno.openai.Client(llm).chat.completions.create(
        messages=MESSAGES, tools=tools, tool_choice=choice, max_tokens=100, seed=1,
        extra_body={"chat_template": TEMPLATE}).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert json.loads(answer.message.tool_calls[0].function.arguments)["place"] in ("sea", "land")
