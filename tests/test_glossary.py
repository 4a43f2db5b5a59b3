"""The glossary: each spelling occurs once, and an unknown name gets a hint."""

from __future__ import annotations

import pytest

from rlm_plugins.equation import glossary
from rlm_plugins.equation.glossary import ENTRIES


def test_no_term_occurs_twice() -> None:
    spellings = [spelling for spellings, _ in ENTRIES for spelling in spellings]
    assert len(spellings) == len(set(spellings)) == len(glossary.TERMS)
    assert len(ENTRIES) >= 90


@pytest.mark.parametrize(
    ("term", "allowed", "hint"),
    [
        ("clip_range", ["epsilon", "epsilon_high", "delta"], "did you mean 'epsilon'?"),
        ("packing", ["padding_free"], "did you mean 'padding_free'?"),
        ("loss_agg_mode", ["aggregator", "advantage"], "did you mean 'aggregator'?"),
        ("vf_coef", ["gamma", "lam"], "'vf_coef' is `penalties.beta` or `value_loss` (penalties): see `rlm explain"),
        ("epsilom", ["epsilon"], "did you mean 'epsilon'?"),
        ("nonsense", ["epsilon"], ""),
    ],
)
def test_the_hint_for_an_unknown_name(term: str, allowed: list[str], hint: str) -> None:
    assert glossary.suggest(term, allowed).startswith(hint)
    assert bool(glossary.suggest(term, allowed)) == bool(hint)
