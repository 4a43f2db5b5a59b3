"""Steps that were paid for, against all steps of their group."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_process import step_relative
from rlm_process.knobs import Every

from rlm_plugins.testing import conformance

test_laws = conformance("rlm_advantages", step_relative, knobs={"steps": {"every": 2}})

ROW = st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=0, max_size=6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(rows=st.lists(ROW, min_size=1, max_size=5), size=st.integers(1, 3))
def test_every_step_of_every_row(rows: Any, size: int):
    width = max(1, *map(len, rows))
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in rows])
    paid = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64)
    group = [i % 2 for i in range(len(rows))]
    found = step_relative(paid, torch.tensor(group), mask, rows, None, steps=Every(every=size))
    steps = [[sum(row[a : a + size]) for a in range(0, len(row), size)] for row in rows]
    for i, row in enumerate(rows):
        everybody = [x for j, other in enumerate(steps) if group[j] == group[i] for x in other]
        mean = sum(everybody) / max(1, len(everybody))
        std = (sum((x - mean) ** 2 for x in everybody) / max(1, len(everybody) - 1)) ** 0.5
        for t in range(len(row)):
            to_come = sum((x - mean) / (std + 1e-4) for x in steps[i][t // size :])
            expected = to_come if max(everybody) > min(everybody) else 0.0
            torch.testing.assert_close(found[i, t].item(), expected, atol=1e-9, rtol=1e-9)
        assert not found[i, len(row) :].any()
