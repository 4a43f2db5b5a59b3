"""Contract tests of the parts for steps, nodes and turns."""

from __future__ import annotations

from rlm_process import Tree, step_labels, tree, turn_relative, vine
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
