"""inferno: run language models on this machine.

    import inferno

    llm = inferno.Llm("model.gguf")
    print(llm.generate("The sea was", max_tokens=40).text)
    for piece in llm.stream("Once upon a time"):
        print(piece, end="", flush=True)

Every failure is an inferno.Error with a message of one line.
"""

from ._inferno import Error, version as _version
from .generation import Generation
from .llm import Llm
from .results import Completion, Result, Token
from .tools import Profile, bench, inspect, plan, quantize, verify

__version__ = _version()
__all__ = [
    "Completion", "Error", "Generation", "Llm", "Profile", "Result", "Token", "bench", "inspect", "plan", "quantize",
    "verify",
]
