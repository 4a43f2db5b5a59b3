from rlm_plugins import GRPOConfig, PPOTrainer


def right(completions, answer, **columns):
    return [float(text.strip() == gold) for text, gold in zip(completions, answer)]


trainer = PPOTrainer(
    model=model,
    reward_funcs=right,
    args=GRPOConfig(**settings),
    train_dataset=dataset,
    processing_class=tokenizer,
    peft_config=lora,
    critic={"kind": "shared", "learning_rate": 1e-4},  # an adapter on the frozen base
)
trainer.train()
