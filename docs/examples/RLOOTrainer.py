from rlm_plugins import RLOOTrainer
from trl import RLOOConfig


def shorter(completions, **columns):
    return [-float(len(text)) for text in completions]


trainer = RLOOTrainer(
    model=model, reward_funcs=shorter, args=RLOOConfig(**settings), train_dataset=dataset, processing_class=tokenizer
)
assert trainer.equation.advantage.part.name == "leave_one_out"
