"""Which prompts come next, who generates each completion, and multi-turn episodes."""
