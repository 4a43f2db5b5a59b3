"""Adversarial inputs for verifiers, and their scores by each of them: `python -m rlm_math.measured.compare`."""
