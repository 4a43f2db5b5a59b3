import rlm_plugins as rlm

report = rlm.check(experiment, {"trainer.learning_rate": 1e-5})
print(report)  # as `rlm check`
assert report[0]["name"]
