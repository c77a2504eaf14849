"""What editors and type checkers see of the package."""

import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import inferno
import inferno.openai

PACKAGE = pathlib.Path(inferno.__file__).parent
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
SANITIZED = "INFERNO_PYTHON_SANITIZED" in os.environ


def members():
    for name in inferno.__all__:
        value = getattr(inferno, name)
        yield name, value
        if inspect.isclass(value):
            for member, held in vars(value).items():
                if not member.startswith("_") and (callable(held) or isinstance(held, (property, classmethod))):
                    yield f"{name}.{member}", getattr(value, member)


@pytest.mark.parametrize("name, value", [*members(), ("openai.Client", inferno.openai.Client)])
def test_everything_public_explains_itself(name, value):
    assert (value.__doc__ or "").strip()


@pytest.mark.skipif(SANITIZED, reason="stubs are made in builds without sanitizers")
def test_the_module_has_a_stub_with_all_that_it_holds():
    assert (PACKAGE / "py.typed").exists()
    stub = (PACKAGE / "_inferno.pyi").read_text(encoding="utf-8")
    for name, value in vars(inferno._inferno).items():
        if not name.startswith("_"):
            assert f"class {name}" in stub or f"def {name}(" in stub, name


@pytest.mark.skipif(SANITIZED or importlib.util.find_spec("mypy") is None, reason="no mypy (pip install mypy)")
@pytest.mark.parametrize("sources", [[str(PACKAGE)], sorted(map(str, EXAMPLES.glob("*.py")))], ids=["package", "examples"])
def test_a_type_checker_has_no_complaints(sources, tmp_path):
    # What an example imports may be missing here.
    loose = [] if sources == [str(PACKAGE)] else ["--ignore-missing-imports", "--allow-subclassing-any",
                                                  "--allow-untyped-decorators", "--no-warn-unused-ignores"]
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", *loose, "--cache-dir", str(tmp_path), *sources],
                          env={**os.environ, "MYPYPATH": str(PACKAGE.parent)}, capture_output=True, text=True,
                          timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
