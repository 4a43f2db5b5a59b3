"""Where reasoning-gym is not installed, its modules' examples are not collected; the tests say why they are skipped."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("reasoning_gym") else ["src/*"]
