"""The equation: its data, its parts, and the calls from rewards to advantages and from log-probs to a loss.

Read `batch` (the data that parts name), `hooks` (the symbols), `equation` (one part per symbol), `dispatch` (the call
of a part) and `step` (all of it together). `docs/one_page.py` is the whole loop in plain PyTorch.
"""
