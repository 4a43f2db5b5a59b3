"""Commands that explain recipes, diagnose runs and compare them."""
