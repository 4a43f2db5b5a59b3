import rlm_plugins as rlm

run = rlm.train(experiment, out=folder / "first")
again = rlm.Run(run.folder)  # from another process, too
assert again.score == run.score
model, tokenizer = again.model()
