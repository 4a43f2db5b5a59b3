"""Contract tests of `brevity` and a hand-computed example."""

from rlm_example import brevity
from rlm_testing import conformance

test_brevity = conformance("rlm_rewards", brevity)


def test_shorter_is_better() -> None:
    assert brevity(["", "half", "too long by far"], characters=8) == [1.0, 0.5, 0.0]
