import rlm_plugins as rlm


def shorter(completions):
    return [1 / (1 + len(text)) for text in completions]


run = rlm.train(experiment, {"trainer.seed": 1}, out=folder / "second", rewards=[shorter])
assert len(run.metrics) >= 1
