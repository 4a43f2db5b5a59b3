"""What the built-in parts are made of: arithmetic of groups, the addition task, data sets, tokenizers, checkpoints."""
