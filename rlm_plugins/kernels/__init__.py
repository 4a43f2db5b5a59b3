"""Numerical kernels (fused log-prob head, fused LoRA, CPU linear) and the model traits that allow them."""
