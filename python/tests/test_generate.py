"""Text in, text out."""

import os
import subprocess

import pytest

import inferno

PROMPTS = ["Once upon a time", "The old man", "In the forest", "She opened the door", "It was a dark night",
           "The king said", "A little bird", "My father was", "There lived", "When the sun", "He had never",
           "The sea was", "Two brothers", "At last", "The horse", "In winter", "No one knew", "The girl", "Far away",
           "One morning"]


@pytest.mark.skipif("INFERNO_PROGRAM" not in os.environ, reason="INFERNO_PROGRAM does not name the inferno program")
def test_greedy_texts_are_those_of_the_command_line(llm):
    generations = [llm.submit(prompt, max_tokens=12) for prompt in PROMPTS]
    for prompt, generation in zip(PROMPTS, generations):
        line = subprocess.run([os.environ["INFERNO_PROGRAM"], "generate", "-p", prompt, "-n", "12", "-c", "512",
                               "--no-echo", "--quiet"], capture_output=True, check=True, text=True).stdout
        assert generation.result().text.strip() == line.strip()


def test_a_stream_joins_to_the_text_of_generate(llm):
    whole = llm.generate("Once upon a time", max_tokens=30, temperature=0.9, seed=3)
    pieces = list(llm.stream("Once upon a time", max_tokens=30, temperature=0.9, seed=3))
    assert "".join(pieces) == whole.text
    assert [piece.id for piece in pieces if piece.id >= 0] == whole.ids
    assert whole.reason == "length" and whole.metrics["generated_tokens"] == 30


def test_token_ids_are_a_prompt_like_their_text(llm):
    ids = llm.tokenize("The sea was")
    assert llm.detokenize(ids).strip() == "The sea was"
    assert llm.generate(ids, max_tokens=8).ids == llm.generate("The sea was", max_tokens=8).ids


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="this system does not list threads")
def test_a_stream_is_computed_on_the_thread_that_reads_it_and_beside_others_as_well():
    llm = inferno.Llm.builtin(context=512)
    alone = list(llm.stream("Once upon a time", max_tokens=8))
    steppers = stepping_threads()
    # Two streams read in turns, one of them left early, then one beside a request that has a thread.
    first, second = (llm.stream("Once upon a time", max_tokens=8) for _ in range(2))
    pairs = [next(first), next(second), next(first)]
    second.close()
    assert pairs + list(first) == [alone[0], *alone]
    assert llm.stats()["running"] == 0 and stepping_threads() == steppers
    beside = llm.submit("The old man", max_tokens=30)
    assert list(llm.stream("Once upon a time", max_tokens=8)) == alone
    assert stepping_threads() == steppers + 1
    assert beside.result().reason == "length"


def stepping_threads():
    tasks = "/proc/self/task"
    return [open(f"{tasks}/{task}/comm").read().strip() for task in os.listdir(tasks)].count("inferno-steps")


def test_leaving_a_stream_cancels_it(llm):
    before = llm.stats()["finished_requests"]
    for piece in llm.stream("Once upon a time", max_tokens=-1):
        break
    llm.generate("The sea", max_tokens=1)
    assert llm.stats()["running"] == 0 and llm.stats()["finished_requests"] == before + 2


def test_samples_stop_strings_bias_and_logprobs_are_the_librarys(llm):
    result = llm.generate("Once upon a time", max_tokens=6, n=3, temperature=1, seed=1, logprobs=2)
    assert len(result.samples) == 3 and len({sample.text for sample in result.samples}) > 1
    assert all(len(sample.logprobs) == len(sample.ids) for sample in result.samples)
    assert all(token[0][0] == id and len(token) == 3 for token, id in zip(result.logprobs, result.ids))
    stopped = llm.generate("Once upon a time", max_tokens=60, stop="the")
    assert stopped.reason == "stop_string" and "the" not in stopped.text
    banned = llm.generate("Once upon a time", max_tokens=1).ids[0]
    assert llm.generate("Once upon a time", max_tokens=1, logit_bias={banned: float("-inf")}).ids[0] != banned


def test_a_callback_sees_every_token_and_may_end_the_text(llm):
    seen = []
    result = llm.generate("Once upon a time", max_tokens=9, on_token=seen.append)
    assert "".join(seen) == result.text and [token.id for token in seen if token.id >= 0] == result.ids
    assert llm.generate("Once upon a time", max_tokens=9, on_token=lambda token: False).reason == "cancelled"


def test_what_a_callback_raises_ends_that_request_alone(llm):
    other = llm.submit("The sea was", max_tokens=12)

    def fails(token):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        llm.generate("Once upon a time", on_token=fails)
    assert other.result().text == llm.generate("The sea was", max_tokens=12).text


@pytest.mark.parametrize("options", [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 5}, {"n": 0},
                                     {"max_tokens": -2}, {"logprobs": 1000}, {"logit_bias": {-1: 1.0}}])
def test_values_out_of_range_are_errors_of_one_line(llm, options):
    with pytest.raises(inferno.Error) as raised:
        llm.generate("Once", **options)
    assert "\n" not in str(raised.value)


def test_arguments_that_do_not_exist_are_refused(llm):
    with pytest.raises(TypeError):
        llm.generate("Once", temprature=1)
    with pytest.raises(TypeError):
        inferno.Llm.builtin(thread=1)


def test_logits_and_logprobs_are_arrays(llm):
    import numpy

    logits = llm.logits("Once upon a time", 0)
    assert logits.dtype == numpy.float32 and logits.shape[1] == llm.vocabulary
    assert logits.shape[0] == len(llm._model.encode(inferno._inferno.Prompt.text(b"Once upon a time")))
    assert int(logits[-1].argmax()) == llm.generate("Once upon a time", max_tokens=1).ids[0]
    numpy.testing.assert_allclose(numpy.exp(llm.logprobs("Once upon a time")).sum(axis=1), 1, rtol=1e-4)


def test_files_that_cannot_be_loaded_are_errors(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"no")
    for path in (tmp_path / "bad.gguf", tmp_path / "none.gguf", tmp_path):
        with pytest.raises(inferno.Error):
            inferno.Llm(path)


def test_a_text_has_the_form_that_is_asked_for(llm):
    import json

    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"],
              "additionalProperties": False}
    for seed in range(5):
        made = llm.generate("Once", max_tokens=60, temperature=1, seed=seed, json_schema=schema)
        if made.reason == "end_token":
            assert set(json.loads(made.text)) == {"age"}
    assert llm.generate("Once", max_tokens=8, choice=["yes", "no"]).text in ("yes", "no")
    assert llm.generate("Once", max_tokens=8, regex="[0-9]{3}").text.isdigit()
    with pytest.raises(inferno.Error):
        llm.generate("Once", regex="(")
    with pytest.raises(inferno.Error):
        llm.generate("Once", regex="a", choice=["a"])


def test_the_error_about_an_option_has_its_name_here(llm):
    with pytest.raises(inferno.Error, match="max_tokens is -5"):
        llm.generate("Once", max_tokens=-5)
