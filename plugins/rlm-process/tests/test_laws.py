"""Contract tests of the parts for steps, nodes and turns, and of PRIME."""

from __future__ import annotations

import pytest
from rlm_process import ALGORITHMS, Tree, step_labels, tree, turn_relative, vine
from rlm_process.prime import ImplicitReward, outcome_and_process
from rlm_testing import conformance

BY_TWO = {"steps": {"every": 2}}
OWN = "it is not compared with its group, but with what is written on: equal rewards may well be better than expected"

test_vine = conformance("rlm_advantages", vine, knobs=BY_TWO, exceptions={"ties": OWN})
test_vine_of_the_first_states = conformance(
    "rlm_advantages", vine, knobs=BY_TWO | {"first": 1}, exceptions={"ties": OWN}
)
test_whitened = conformance(
    "rlm_advantages",
    vine,
    knobs=BY_TWO | {"whiten": True},
    exceptions={"ties": OWN, "isolation": "mean and std are those of the whole batch"},
)
test_labels = conformance("rlm_shapers", step_labels, knobs=BY_TWO)
test_soft_labels = conformance("rlm_shapers", step_labels, knobs=BY_TWO | {"soft": True, "weight": 0.5})
test_tree = conformance("rlm_advantages", tree)
test_turns = conformance("rlm_advantages", turn_relative)
test_anchors = conformance("rlm_advantages", turn_relative, knobs={"alike": "observation", "episode": 1.0})
test_discounted_turns = conformance(
    "rlm_advantages",
    turn_relative,
    knobs={"gamma": 0.5},
    exceptions={"ties": "the same reward is worth less the later it comes"},
)
test_who_writes_trees = conformance("rlm_rollouts", Tree, knobs=BY_TWO)


test_implicit_reward = conformance("rlm_shapers", ImplicitReward, knobs={"learning_rate": 0.1, "beta": 1.0})
test_outcome_and_process = conformance("rlm_advantages", outcome_and_process)
test_stretched = conformance("rlm_advantages", outcome_and_process, knobs={"stretched": True, "gamma": 0.5})
test_whitened_outcome = conformance(
    "rlm_advantages",
    outcome_and_process,
    knobs={"whitened": True},
    exceptions={"isolation": "whitened over the batch: other groups move mean and std"},
)
test_prime = pytest.mark.usefixtures("registered")(conformance("rlm_algorithms", ALGORITHMS["prime"]))
