"""Types of the knobs that all rewards of this package share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

Instructions = Annotated[str, Field(description="Criteria for the judge, in words.")]
Template = Annotated[str | None, Field(description="Replacement of the whole prompt, with named fields in braces.")]
Reason = Annotated[bool, Field(description="Whether the judge reasons before its verdict.")]
Votes = Annotated[int, Field(ge=1, description="Number of verdicts per query, of which the mean counts.")]
Thinking = Annotated[Literal["hide", "show"], Field(description="Whether the judge sees the text before `</think>`.")]
MaxCharacters = Annotated[int, Field(ge=100, description="Longest text in the prompt; longer ones lose their middle.")]
