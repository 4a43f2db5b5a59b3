"""One YAML file → stages that can be run, through three walls of checking; and back to a file that says everything.

Read `document` (what a recipe is), then `grammar` (the first wall), `resolve` (names become parts, the second),
`settings` (the third) and `compose` (all of it together).
"""

from rlm_plugins.recipe.document import Recipe, load

__all__ = ["Recipe", "load"]
