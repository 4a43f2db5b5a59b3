"""Built-in parts against the numbers of TRL, verl and OpenRLHF: value and gradient, record by record.

`data/` holds the outputs of the packages themselves (trl 1.16.0 and 0.26.0, verl 0.9.1, openrlhf 0.11.2) to the inputs
of `cases.json`. Each function of `vectors/` expresses one library's function with our parts and knobs; where
conventions differ, it has the conversion and its reason. `vectors/skipped.py` names the rest.
A record in neither fails.
"""

from __future__ import annotations

import pytest
import torch
import vectors.advantages
import vectors.losses
import vectors.surrogates  # noqa: F401  (all register their functions)
from vectors.records import CASES, RECORDS, Args, speakers
from vectors.skipped import reasons

NOTES = ("kept", "lengths", "clipfrac")
"""Outputs that are inputs here, or statistics."""


@pytest.mark.parametrize("record", [r for r in RECORDS if not reasons(r)], ids=lambda r: r["id"].split(":")[-1])
def test_record(record: Args) -> None:
    inline = record["case"] == "inline"  # it brings its inputs along
    case = CASES["A" if inline else record["case"]]
    (say,) = speakers(record)
    actual = say(case, record["args"])
    numbers = {name: value for name, value in record["out"].items() if name not in NOTES}
    assert numbers, "a record without a number proves nothing"
    for name, expected in numbers.items():
        theirs, ours = torch.tensor(expected, dtype=torch.float64), actual[name]
        if theirs.dim() == 1 and ours.dim() == 2:
            ours = ours.squeeze(1)  # one advantage per row
        if theirs.dim() == 2 and not inline:
            theirs, ours = theirs[case.mask], ours.expand(case.mask.shape)[case.mask]
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=3e-6, msg=lambda text, name=name: f"{name}: {text}")


def test_every_record_is_compared() -> None:
    compared = [r["id"] for r in RECORDS if len(speakers(r)) == 1 and not reasons(r)]
    skipped = [r["id"] for r in RECORDS if not speakers(r) and len(reasons(r)) == 1]
    assert {r["id"] for r in RECORDS} == {*compared, *skipped}
    assert (len(RECORDS), len(compared), len(skipped)) == (727, 682, 45)
