from rlm_plugins import RewardTrainer
from trl import RewardConfig

pairs = dataset.map(lambda row: {"chosen": row["answer"], "rejected": row["answer"] + "0"}, remove_columns="answer")
trainer = RewardTrainer(model=classifier, args=RewardConfig(**plain), train_dataset=pairs, processing_class=tokenizer)
trainer.train()
