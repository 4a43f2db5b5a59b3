"""A run from a recipe to a trained model: stages, folder, callbacks, resume."""
