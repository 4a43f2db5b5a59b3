from rlm_plugins import GRPOConfig

config = GRPOConfig(**settings, target_kl=0.05)  # ends the updates of a generation batch at this KL
assert config.target_kl == 0.05
