"""How an episode is put into tokens: the prompt, what the world says, and what the model meant by its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.environment import Message
from rlm_plugins.errors import RlmError


class ChatTokens:
    """Speaks to one model.

    The tokens of a conversation are never made anew: what the world says is what the chat template adds to a
    conversation after an end token. A prompt of plain text is followed by plain text.

    Args:
        tokenizer: The model's.
        tools: The functions it may call; they are told to it by the chat template.
        options: ``chat_template_kwargs`` of the recipe.

    Raises:
        RlmError: There are tools, and one cannot be described, the chat template cannot show calls, or nobody knows how
            to read them.
    """

    def __init__(self, tokenizer: Any, tools: Sequence[Callable[..., Any]], options: Mapping[str, Any]) -> None:
        self._tokenizer, self._tools = _for_tools(tokenizer) if tools else tokenizer, list(tools)
        self._options = dict(options)
        if tools:
            _check_described(tools)
            self._options |= _prefix_preserving(self._tokenizer)

    def opening(self, prompt: Any, observation: str | None) -> tuple[Any, list[int]]:
        """The prompt with what `reset` said at its end, and its token ids."""
        if isinstance(prompt, str):
            prompt += observation or ""
            return prompt, self._tokenizer(prompt)["input_ids"]
        if observation:
            prompt = [*prompt[:-1], {**prompt[-1], "content": prompt[-1]["content"] + observation}]
        return prompt, self._rendered(prompt, add_generation_prompt=True, tools=self._tools or None)

    def meant(self, ids: list[int], before: list[int]) -> dict[str, Any]:
        """A turn of the model as a message, its tool calls read.

        Args:
            ids: Its tokens.
            before: Those before it.
        """
        if self._tools:
            from trl.chat_template_utils import parse_response

            return parse_response(self._tokenizer, ids, prefix=before, tools=self._tools)
        return {"role": "assistant", "content": self._tokenizer.decode(ids, skip_special_tokens=True)}

    def reply(self, messages: Sequence[Message], chat: bool) -> list[int]:
        """What the world says, and where the model's next turn begins, as token ids.

        Args:
            messages: Of the roles ``user`` or ``tool``.
            chat: Whether they follow a conversation, or plain text.
        """
        if not chat:
            return self._tokenizer("".join(m["content"] for m in messages), add_special_tokens=False)["input_ids"]
        said: dict[str, Any] = {"role": "assistant", "content": ""}
        if messages[0]["role"] == "tool":
            said["tool_calls"] = [{"type": "function", "function": {"name": messages[0]["name"], "arguments": {}}}]
        before: list[Message] = [{"role": "user", "content": "…"}, said]
        whole = self._rendered([*before, *messages], add_generation_prompt=True)
        return whole[self._border(self._rendered(before), whole) :]

    def _rendered(self, messages: Sequence[Message], **options: Any) -> list[int]:
        made = self._tokenizer.apply_chat_template(
            list(messages), tokenize=True, return_dict=True, **{**self._options, **options}
        )
        ids: list[int] = made["input_ids"]
        return ids

    def _border(self, before: list[int], whole: list[int]) -> int:
        """Where in `whole` the turn ends that ends `before`: behind its end token, or where both part."""
        end = self._tokenizer.eos_token_id
        if ends := before.count(end):
            places = [place for place, token in enumerate(whole, 1) if token == end]
            if len(places) >= ends:
                return places[ends - 1]
        elif whole[: len(before)] == before:
            return len(before)
        raise RlmError(
            "a longer conversation does not begin with the shorter one",
            where="the chat template",
            hint="worlds of several turns need a template that writes a message the same whatever follows it",
        )


def _check_described(tools: Sequence[Callable[..., Any]]) -> None:
    from transformers.utils import get_json_schema

    for tool in tools:
        try:
            get_json_schema(tool)
        except Exception as error:
            raise RlmError(
                f"the tool '{tool.__name__}' cannot be described to a model: {error}",
                where=f"environment ({tool.__module__})",
                allowed="an annotation for each argument, and a docstring that says each of them under `Args:`",
            ) from error


def _prefix_preserving(tokenizer: Any) -> dict[str, Any]:
    """What TRL puts in the place of a chat template that writes a turn otherwise once a tool has answered it."""
    from trl.chat_template_utils import get_training_chat_template, is_chat_template_prefix_preserving

    if is_chat_template_prefix_preserving(tokenizer):
        return {}
    try:
        return {"chat_template": get_training_chat_template(tokenizer)}
    except ValueError as error:
        problem = "it writes a turn of the model otherwise once a tool has answered, and TRL knows no remedy"
        raise RlmError(problem, where="the chat template") from error


def _for_tools(tokenizer: Any) -> Any:
    from trl.chat_template_utils import add_response_schema, supports_tool_calling

    if not supports_tool_calling(tokenizer):
        raise RlmError(
            "the world has tools, and the model's chat template cannot show a call of one and its answer",
            where="the chat template",
            hint="choose a model that was taught to call tools; of `scratch`: `tools: true`",
        )
    if not getattr(tokenizer, "response_template", None) and not getattr(tokenizer, "response_schema", None):
        try:
            return add_response_schema(tokenizer)
        except ValueError as error:
            raise RlmError(
                "nobody knows how this model writes a call of a tool",
                where="the chat template",
                hint="set `response_template` on its tokenizer (transformers, response parsing)",
            ) from error
    return tokenizer
