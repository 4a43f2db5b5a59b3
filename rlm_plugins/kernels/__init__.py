"""Numerical kernels: fused log-prob head, fused LoRA linear, CPU linear algebra."""
