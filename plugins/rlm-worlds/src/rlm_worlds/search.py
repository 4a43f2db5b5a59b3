"""x: questions whose answers are in a local index, with a search tool (hook ``rlm_environments``)."""

from __future__ import annotations

import random
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.specs import EnvironmentSpec
from rlm_worlds.bm25 import Index

People = Annotated[int, Field(ge=16, le=20_000)]
Results = Annotated[int, Field(ge=1, le=20)]
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]

_STARTS = "BDFGKLMNPRSTVZ"
_MIDDLES = ("a", "e", "i", "o", "u", "ai", "or", "en")
_ENDS = ("dor", "lin", "mar", "nek", "rus", "tan", "vil", "zen")
MAX_LENGTH = 200
"""Characters of a query that count."""


def search_facts(
    *,
    people: People = 512,
    hops: Annotated[int, Field(ge=1, le=2)] = 2,
    results: Results = 3,
    train_rows: Count = 2048,
    test_rows: Natural = 64,
    seed: int = 0,
) -> EnvironmentSpec:
    """Build questions on invented people and companies with the tool `search(query)`; reward: for example `accuracy`.

    Each person has an employer and a year of birth, each company a year of foundation. With one of `hops` a question
    is about the birth of a person, with two about the foundation of a person's employer. The tool returns `results`
    texts by BM25. Names are invented, so a model cannot answer from memory. One person in eight is held out.

    Columns: ``prompt``, ``question``, ``answer`` (a year).
    """
    rng = random.Random(f"search {people} {seed}")
    names = _names(rng, people + people // 4)
    companies = {name: rng.randint(1700, 1999) for name in names[people:]}
    persons = {name: (rng.choice([*companies]), rng.randint(1700, 1999)) for name in names[:people]}
    texts = [f"{name} was founded in {year}." for name, year in companies.items()]
    texts += [f"{name} was born in {year}. {name} works for {company}." for name, (company, year) in persons.items()]
    rng.shuffle(texts)
    index = Index(texts)

    def search(query: str) -> str:
        """Searches a local collection of texts.

        Args:
            query: Words to search for.

        Returns:
            The best texts, one per line.
        """  # the tool's description in the prompt
        return "\n".join(index.search(query[:MAX_LENGTH], results)) or "nothing found"

    examples = [_example(name, company, born, companies, hops) for name, (company, born) in persons.items()]
    held_out, training = examples[: people // 8], examples[people // 8 :]
    train = [training[i % len(training)] for i in range(train_rows)]
    return EnvironmentSpec(train=train, test=held_out[:test_rows], tools=[search])


def _example(name: str, company: str, born: int, companies: dict[str, int], hops: int) -> dict[str, Any]:
    if hops == 1:
        question, answer = f"In which year was {name} born?", born
    else:
        question, answer = f"In which year was the employer of {name} founded?", companies[company]
    return {"prompt": [{"role": "user", "content": question}], "question": question, "answer": str(answer)}


def _names(rng: random.Random, count: int) -> list[str]:
    """Return different invented names."""
    names: dict[str, None] = {}
    while len(names) < count:
        syllables = [rng.choice(_STARTS) + rng.choice(_MIDDLES) for _ in range(2)]
        names[(syllables[0] + syllables[1].lower() + rng.choice(_ENDS)).capitalize()] = None
    return [*names]
