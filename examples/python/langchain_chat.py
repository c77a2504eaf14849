"""A chat model for LangChain (pip install langchain-core) over a model in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

import inferno


class ChatInferno(BaseChatModel):
    llm: Any  # an inferno.Llm
    options: dict[str, Any] = {}  # of inferno.Llm.chat

    @property
    def _llm_type(self) -> str:
        return "inferno"

    def _arguments(self, messages: list[BaseMessage], stop: list[str] | None) -> dict[str, Any]:
        return {"messages": convert_to_openai_messages(messages), "stop": stop or (), "max_tokens": -1, **self.options}

    def _generate(self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None,
                  **kwargs: Any) -> ChatResult:
        result = self.llm.chat(**self._arguments(messages, stop), **kwargs)
        message = AIMessage(content=result.text, response_metadata=result.metrics)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None,
                **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for token in self.llm.stream_chat(**self._arguments(messages, stop), **kwargs):
            yield ChatGenerationChunk(message=AIMessageChunk(content=str(token)))


if __name__ == "__main__":
    import sys

    model = ChatInferno(llm=inferno.Llm(sys.argv[1]))
    for chunk in model.stream(" ".join(sys.argv[2:]) or "What is a GPU?"):
        print(chunk.content, end="", flush=True)
    print()
