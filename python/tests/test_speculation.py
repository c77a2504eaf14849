"""Tokens guessed ahead: the same texts, and what is said of them.

Whether a guess is worth its price is measured on the machine as it is: only several requests are sure to make one.
"""

import pathlib

import pytest

import inferno

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "tiny-books-26m.gguf"
PROMPT = "Once upon a time"
OPTIONS = {"max_tokens": 40, "stop_at_end": False}


def first_with_guesses(generate):
    results = (generate() for _ in range(50))
    return next(result for result in results if result.metrics["drafted_tokens"] > 0)


@pytest.fixture(scope="module")
def drafted():
    """The built-in model with itself as its draft: every guess is right."""
    with inferno.Llm.builtin(context=512, draft=MODEL) as model:
        yield model


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "seed": 5}])
def test_a_draft_model_changes_no_text(llm, drafted, sampling):
    expected = llm.generate(PROMPT, **OPTIONS, **sampling)
    made = drafted.generate(PROMPT, **OPTIONS, **sampling)
    assert made.ids == expected.ids and made.text == expected.text
    assert made.metrics["accepted_tokens"] == made.metrics["drafted_tokens"] and expected.metrics["drafted_tokens"] == 0
    assert "".join(drafted.stream(PROMPT, **OPTIONS, **sampling)) == expected.text
    stats = drafted.stats()
    assert stats["drafted_tokens"] >= stats["drafts"]


def test_a_request_can_do_without_the_draft_model(drafted):
    for options in ({"draft": False}, {"max_draft": 0}):
        assert drafted.generate(PROMPT, **OPTIONS, **options).metrics["drafted_tokens"] == 0


def test_few_tokens_at_a_time_take_more_steps(drafted):
    def forwards(most):
        made = drafted.generate(PROMPT, max_draft=most, cache_salt=str(most), **OPTIONS)
        return made.metrics["forwards"]

    # A guess and the token that is drawn after it are at most two.
    assert forwards(1) >= 20


@pytest.mark.parametrize("form", ["text", "ids"])
def test_a_prediction_is_where_guesses_are_found(llm, form):
    expected = llm.generate(PROMPT, **OPTIONS)
    prediction = expected.text if form == "text" else expected.ids
    made = first_with_guesses(lambda: llm.generate(PROMPT, prediction=prediction, **OPTIONS))
    assert made.ids == expected.ids and made.metrics["accepted_tokens"] > 0


def test_a_prediction_that_is_text_is_its_tokens(llm, monkeypatch):
    given, options_of = [], inferno.llm.generate_options
    monkeypatch.setattr(inferno.llm, "generate_options", lambda **o: given.append(o["prediction"]) or options_of(**o))
    llm.generate(PROMPT, max_tokens=1, prediction="there was a king")
    llm.generate(PROMPT, max_tokens=1, prediction=[7, 8])
    assert given == [llm.tokenize("there was a king"), [7, 8]]


def test_lookup_finds_guesses_in_the_prompt_and_changes_no_text(llm):
    prompt = "one two three four five six. " * 4
    expected = llm.generate(prompt, **OPTIONS)
    made = first_with_guesses(lambda: llm.generate(prompt, lookup=True, **OPTIONS))
    assert made.ids == expected.ids


def test_what_cannot_be_is_an_error_of_one_line(llm, tmp_path):
    for call in (lambda: inferno.Llm.builtin(draft=tmp_path / "none.gguf"),
                 lambda: llm.generate(PROMPT, max_draft=-1),
                 lambda: llm.generate(PROMPT, prediction=[-1])):
        with pytest.raises(inferno.Error) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_a_bench_compares_decoding_with_and_without_guesses():
    rows = inferno.bench(prompt=0, generate=16, repeat=1, draft=MODEL)
    assert [row["gain"] is None for row in rows] == [True, False]
    assert rows[1]["accepted_percent"] is not None and rows[1]["phase"] == "decode"
    assert len(inferno.bench(prompt=0, generate=8, repeat=1)) == 1
