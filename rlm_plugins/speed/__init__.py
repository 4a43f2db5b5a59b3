"""The same samples, the same gradients, in less time and memory: what a pass leaves out because it changes nothing."""
