from rlm_plugins import GRPOTrainer
from trl import GRPOConfig


def right(completions, answer, **columns):
    return [float(text.strip() == gold) for text, gold in zip(completions, answer)]


trainer = GRPOTrainer(
    model=model,  # a name, a path or an instance
    reward_funcs=right,
    args=GRPOConfig(**settings),
    train_dataset=dataset,  # columns `prompt` and `answer`
    processing_class=tokenizer,
    algorithm={"name": "dapo", "policy_loss": {"epsilon_high": 0.3}},
)
trainer.train()
