"""Contract tests of PRIME's parts and algorithm."""

import pytest
from rlm_process import ALGORITHMS
from rlm_process.prime import ImplicitReward, outcome_and_process
from rlm_testing import conformance

test_implicit_reward = conformance("rlm_shapers", ImplicitReward, knobs={"learning_rate": 0.1, "beta": 1.0})
test_outcome_and_process = conformance("rlm_advantages", outcome_and_process)
test_stretched = conformance("rlm_advantages", outcome_and_process, knobs={"stretched": True, "gamma": 0.5})
test_whitened = conformance(
    "rlm_advantages",
    outcome_and_process,
    knobs={"whitened": True},
    exceptions={"isolation": "whitened over the batch: other groups move mean and std"},
)
test_prime = pytest.mark.usefixtures("registered")(conformance("rlm_algorithms", ALGORITHMS["prime"]))
