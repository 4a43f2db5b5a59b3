"""Entry point of ``python -m rlm_plugins`` (= ``rlm``), for `accelerate launch -m rlm_plugins train …`."""

from rlm_plugins.cli import main

main()
