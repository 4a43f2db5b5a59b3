"""Collection rules: without reasoning-gym its modules are not collected, and the tests are skipped."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("reasoning_gym") else ["src/*"]
