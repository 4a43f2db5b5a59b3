from rlm_plugins import SFTTrainer
from trl import SFTConfig

rows = dataset.rename_column("answer", "completion")
trainer = SFTTrainer(
    model=model, args=SFTConfig(**plain), train_dataset=rows, processing_class=tokenizer, algorithm="dft"
)
assert trainer.args.loss_type == "dft"
