"""Numerical kernels (fused log-prob head, fused LoRA, CPU linear, tree attention), and the models they support."""
