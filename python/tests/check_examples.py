#!/usr/bin/env python3
"""The package with what it is used with: the README's lines, LangChain, notebooks, progress bars, plots.

    python python/tests/check_examples.py      (needs inferno, langchain-core, ipython, matplotlib, tqdm)
"""

import contextlib
import io
import pathlib
import sys
import textwrap

import matplotlib

matplotlib.use("Agg")

from IPython.core.formatters import DisplayFormatter  # noqa: E402

import inferno  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "python"))
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"


def readme():
    """The lines of the README, with the built-in model."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text[text.index("    import inferno\n"):]
    lines = textwrap.dedent(block[:block.index("\n\nStreams")])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(lines.replace('inferno.Llm("model.gguf")', "inferno.Llm.builtin()"), {})  # noqa: S102
    assert len(lines.strip().splitlines()) <= 10 and len(out.getvalue()) > 200, out.getvalue()


def langchain(llm):
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_chat import ChatInferno

    model = ChatInferno(llm=llm, options={"chat_template": TEMPLATE, "max_tokens": 20})
    messages = [SystemMessage("A story."), HumanMessage("Once upon a time")]
    expected = llm.chat([{"role": "system", "content": "A story."}, {"role": "user", "content": "Once upon a time"}],
                        chat_template=TEMPLATE, max_tokens=20).text
    assert model.invoke(messages).content == expected
    assert "".join(chunk.content for chunk in model.stream(messages)) == expected
    chain = ChatPromptTemplate.from_messages([("system", "A story."), ("user", "{begin}")]) | model
    assert chain.invoke({"begin": "Once upon a time"}).content == expected
    stopped = model.invoke(messages, stop=[expected[4:8]])
    assert expected[4:8] not in stopped.content


def notebook(llm, result):
    shown = {type(value).__name__: DisplayFormatter().format(value)[0].get("text/html", "")
             for value in (llm, result, llm.profile())}
    assert "<table>" in shown["Llm"] and "tokens/s" in shown["Result"] and "decode" in shown["Profile"], shown


def plot(llm):
    axes = llm.profile().plot("decode")
    assert axes.patches and "decode" in axes.get_title()
    picture = io.BytesIO()
    axes.figure.savefig(picture, format="png")
    assert len(picture.getvalue()) > 5000


def progress():
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        inferno.Llm(ROOT / "models" / "tiny-books-26m.gguf", progress=True).close()
    assert "loading" in errors.getvalue() and "100%" in errors.getvalue(), errors.getvalue()


def main():
    readme()
    with inferno.Llm.builtin(profile=True) as llm:
        result = llm.generate("Once upon a time", max_tokens=16)
        langchain(llm)
        notebook(llm, result)
        plot(llm)
    progress()
    print("examples: the README's lines, LangChain, displays, plot and progress bar are as they should be")


if __name__ == "__main__":
    main()
