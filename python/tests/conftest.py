import pytest

import inferno


@pytest.fixture(scope="module")
def llm():
    with inferno.Llm.builtin(context=512) as model:
        yield model
