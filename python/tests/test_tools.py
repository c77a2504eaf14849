"""Looking into, shrinking and checking models: plain dictionaries."""

import json
import pathlib

import pytest

import inferno


def test_reports_are_plain_data():
    info = inferno.inspect()
    assert info["architecture"] == "qwen3" and info["tensors"][0]["shape"]
    assert inferno.plan()["total_bytes"] > 1 << 20
    checked = inferno.verify(backend="simd", tokens=1, prompt=[1, 2, 3])
    assert checked["checked"] > 0 and checked["first_divergence"] is None
    for report in (info, checked):
        json.dumps(report)


def test_a_planted_fault_is_found():
    found = inferno.verify(backend="simd", tokens=1, prompt=[1, 2, 3], plant="attention")
    assert "attention" in found["first_divergence"]["ops"]


def test_quantize_writes_a_file_that_loads_and_tells_its_progress(tmp_path):
    root = pathlib.Path(__file__).resolve().parents[2]
    calls = []
    target = tmp_path / "small.gguf"
    report = inferno.quantize(root / "models" / "tiny-books-26m.gguf", target, "Q8_0",
                              progress=lambda done, total: calls.append((done, total)))
    assert report["bytes_out"] == target.stat().st_size and calls[-1][0] == calls[-1][1]
    with inferno.Llm(target, context=128) as llm:
        assert llm.generate("Once", max_tokens=2).reason == "length"
    with pytest.raises(inferno.Error):
        inferno.quantize(target, tmp_path / "no.gguf", "Q99")


def test_a_profile_has_phases_and_prints_as_a_table():
    with inferno.Llm.builtin(context=128, profile=True) as llm:
        llm.generate("Once upon a time", max_tokens=8)
        profile = llm.profile()
    assert {phase["phase"] for phase in profile["phases"]} >= {"decode"} and "decode" in str(profile)


@pytest.fixture
def encoder():
    pytest.importorskip("numpy")
    root = pathlib.Path(__file__).resolve().parents[2]
    with inferno.Llm(root / "tests" / "data" / "embeddings" / "bert.gguf") as model:
        yield model


def test_embeddings_are_unit_rows_and_do_not_depend_on_their_mates(encoder):
    import numpy

    rows = encoder.embed(["a cat", "a dog", "ship"])
    assert rows.shape == (3, 32) and rows.dtype == numpy.float32
    assert abs(numpy.linalg.norm(rows, axis=1) - 1).max() < 1e-6
    one = encoder.embed("a dog")
    assert one.shape == (32,) and (one == rows[1]).all()
    many = encoder.embed(("a cat", "a dog", "ship") * 100)
    assert (many == numpy.tile(rows, (100, 1))).all()
    assert encoder.embed([]).shape == (0, 32)


def test_embeddings_follow_their_options(encoder):
    import numpy

    rows = encoder.embed(["a cat", "a dog"])
    raw = encoder.embed(["a cat", "a dog"], normalize=False)
    assert numpy.allclose(raw / numpy.linalg.norm(raw, axis=1, keepdims=True), rows, atol=1e-6)
    assert encoder.embed("a cat", dimensions=8).shape == (8,)
    assert (encoder.embed("a cat", pooling="cls") != rows[0]).any()
    assert encoder.embed("a " * 500, truncate=True).shape == (32,)
    for call in (lambda: encoder.embed("a " * 500), lambda: encoder.embed("a", dimensions=33),
                 lambda: encoder.embed("a", pooling="max"), lambda: encoder.generate("a"), lambda: encoder.logits([1, 5])):
        with pytest.raises(inferno.Error):
            call()


def test_a_model_that_makes_text_needs_a_pooling_to_embed():
    pytest.importorskip("numpy")
    with inferno.Llm.builtin(context=128) as llm:
        with pytest.raises(inferno.Error, match="makes text"):
            llm.embed("a cat")
        assert abs((llm.embed("a cat", pooling="mean") ** 2).sum() - 1) < 1e-5
