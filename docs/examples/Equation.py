from rlm_plugins import GRPOTrainer
from trl import GRPOConfig

trainer = GRPOTrainer(
    model=model, reward_funcs=len, args=GRPOConfig(**settings), train_dataset=dataset, processing_class=tokenizer
)
equation = trainer.equation  # of the config's `loss_type`
assert equation.policy_loss.part.name == "clip"
assert equation.needs("old_logp")
