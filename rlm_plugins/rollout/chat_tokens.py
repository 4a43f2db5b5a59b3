"""Tokens of conversations: of an episode turn by turn, and of what the chat template adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlm_plugins.errors import RlmError
from rlm_plugins.specs import Episode, Message


@dataclass
class EpisodeTokens:
    """Token ids of an episode.

    Args:
        episode: Its messages and rewards.
        prompt_ids, completion_ids: Token ids; the completion is everything after the prompt.
        mask: Per token of the completion, True if the policy generated it.
        logprobs: Per token of the completion, as reported; 0 on observations.
        ended: True if nothing more is generated.
    """

    episode: Episode
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    ended: bool = False

    @property
    def turns(self) -> list[slice]:
        """Position of each turn of the policy in the completion; an empty turn has none."""
        ends, starts = [end + 1 for end in self.episode.turn_ends], list[int]()
        for end in ends:
            start = end
            while start and self.mask[start - 1] and start - 1 not in self.episode.turn_ends[: len(starts)]:
                start -= 1
            starts.append(start)
        return [slice(start, end) for start, end in zip(starts, ends, strict=True)]

    @property
    def generated_ids(self) -> list[int]:
        """Tokens that the policy generated."""
        return [token for token, generated in zip(self.completion_ids, self.mask, strict=True) if generated]

    def append(self, ids: Sequence[int], generated: bool, logprobs: Sequence[float] | None) -> None:
        """Append tokens; once log-probs are missing, the episode has none."""
        self.completion_ids += ids
        self.mask += [generated] * len(ids)
        self.logprobs = None if logprobs is None or self.logprobs is None else [*self.logprobs, *logprobs]


class Fork(NamedTuple):
    """Beginning of an episode: the first turns of another one, replayed.

    Args:
        parent: The other episode, of the same example.
        turns: How many of its turns are taken as they are.
    """

    parent: EpisodeTokens
    turns: int


_WHERE = "the chat template"


class ChatTokens:
    """Renderer of multi-turn episodes as token ids for one model.

    Generated tokens are never tokenized again. An observation becomes the tokens that the chat template adds to a
    conversation after an end token. After a plain-text prompt, observations are plain text too.

    Raises:
        RlmError: A tool has no description, or the chat template does not support tool calls.
    """

    def __init__(self, tokenizer: Any, tools: Sequence[Callable[..., Any]], options: Mapping[str, Any]) -> None:
        self._tokenizer, self._tools = _with_response_schema(tokenizer) if tools else tokenizer, list(tools)
        self._options = dict(options)
        if tools:
            _check_described(tools)
            self._options |= _prefix_preserving_options(self._tokenizer)

    def render_prompt(self, prompt: Any, observation: str | None) -> tuple[Any, list[int]]:
        """Return the prompt with the first observation at its end, and its token ids."""
        if isinstance(prompt, str):
            prompt += observation or ""
            return prompt, self._tokenizer(prompt)["input_ids"]
        if observation:
            prompt = [*prompt[:-1], {**prompt[-1], "content": prompt[-1]["content"] + observation}]
        return prompt, self._render(prompt, add_generation_prompt=True, tools=self._tools or None)

    def parse_turn(self, ids: list[int], prefix: list[int]) -> dict[str, Any]:
        """Return a generated turn as a message, with its tool calls parsed."""
        if self._tools:
            from trl.chat_template_utils import parse_response

            return parse_response(self._tokenizer, ids, prefix=prefix, tools=self._tools)
        return {"role": "assistant", "content": self._tokenizer.decode(ids, skip_special_tokens=True)}

    def render_reply(self, messages: Sequence[Message], chat: bool) -> list[int]:
        """Return an observation, and the start of the model's next turn, as token ids."""
        if not chat:
            return self._tokenizer("".join(m["content"] for m in messages), add_special_tokens=False)["input_ids"]
        # A placeholder conversation is rendered without and with the reply; the difference is the reply.
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        if messages[0]["role"] == "tool":
            message["tool_calls"] = [{"type": "function", "function": {"name": messages[0]["name"], "arguments": {}}}]
        conversation: list[Message] = [{"role": "user", "content": "…"}, message]
        with_reply = self._render([*conversation, *messages], add_generation_prompt=True)
        return with_reply[self._reply_start(self._render(conversation), with_reply) :]

    def _render(self, messages: Sequence[Message], **options: Any) -> list[int]:
        encoding = self._tokenizer.apply_chat_template(
            list(messages), tokenize=True, return_dict=True, **{**self._options, **options}
        )
        ids: list[int] = encoding["input_ids"]
        return ids

    def _reply_start(self, conversation: list[int], with_reply: list[int]) -> int:
        """Return the position in `with_reply` after the last turn of `conversation` and its end token, if any."""
        end = self._tokenizer.eos_token_id
        if turns := conversation.count(end):
            end_positions = [position for position, token in enumerate(with_reply, 1) if token == end]
            if len(end_positions) >= turns:
                return end_positions[turns - 1]
        elif with_reply[: len(conversation)] == conversation:
            return len(conversation)
        raise RlmError(
            "a longer conversation does not begin with the tokens of the shorter one",
            where=_WHERE,
            hint="multi-turn environments require a template that renders a message independently of later ones",
        )


def _check_described(tools: Sequence[Callable[..., Any]]) -> None:
    from transformers.utils import get_json_schema

    for tool in tools:
        try:
            get_json_schema(tool)
        except Exception as error:
            raise RlmError(
                f"no JSON schema can be derived for the tool '{tool.__name__}': {error}",
                where=f"environment ({tool.__module__})",
                allowed="an annotation for each argument, and a docstring that describes each under `Args:`",
            ) from error


def _prefix_preserving_options(tokenizer: Any) -> dict[str, Any]:
    """Return TRL's replacement for a chat template that renders a turn differently once a tool result follows."""
    from trl.chat_template_utils import get_training_chat_template, is_chat_template_prefix_preserving

    if is_chat_template_prefix_preserving(tokenizer):
        return {}
    try:
        return {"chat_template": get_training_chat_template(tokenizer)}
    except ValueError as error:
        problem = "it renders a turn differently once a tool result follows, and TRL has no replacement for it"
        raise RlmError(problem, where=_WHERE) from error


def _with_response_schema(tokenizer: Any) -> Any:
    """Return the tokenizer with a response schema, which parsing of tool calls requires."""
    from trl.chat_template_utils import add_response_schema, supports_tool_calling

    if not supports_tool_calling(tokenizer):
        raise RlmError(
            "the environment has tools, but the model's chat template does not support tool calls",
            where=_WHERE,
            hint="choose a model that was trained to call tools; of `scratch`: `tools: true`",
        )
    if not getattr(tokenizer, "response_template", None) and not getattr(tokenizer, "response_schema", None):
        try:
            return add_response_schema(tokenizer)
        except ValueError as error:
            raise RlmError(
                "the format of this model's tool calls is unknown",
                where=_WHERE,
                hint="set `response_template` on its tokenizer (transformers, response parsing)",
            ) from error
    return tokenizer
