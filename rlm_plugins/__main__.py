"""``python -m rlm_plugins …`` is ``rlm …``; `accelerate launch -m rlm_plugins train …` needs this door."""

from rlm_plugins.cli import main

main()
