import rlm_plugins as rlm

run = rlm.train(experiment, out=folder / "third")
judged = rlm.evaluate(run)
assert judged["low"] <= judged["score"] <= judged["high"]
