"""From one YAML file to validated stages, through three checks, and back to a file with every value.

Read `document` (the file), `sections` (its schema, the first check), `resolve` (names become parts, the second),
`trainer_settings` (the third) and `compose` (all of it together).
"""

from rlm_plugins.recipe.document import Recipe, load, of_mapping

__all__ = ["Recipe", "load", "of_mapping"]
