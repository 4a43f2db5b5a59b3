"""What verifiers break on, and what each of them makes of it: `python -m rlm_math.measured.compare`."""
