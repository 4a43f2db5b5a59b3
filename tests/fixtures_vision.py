"""A vision-language model made offline, and images of one color whose name is the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tiny
import torch
import transformers

IMAGE, SIDE, PATCH = "<image>", 8, 4
COLORS = {"a": (230, 30, 30), "b": (30, 230, 30), "c": (30, 30, 230), "d": (220, 220, 40)}
REWARD = '''
def color(completions, answer, **columns):
    """1 if the completion is the name of the color."""
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [float(text == right) for text, right in zip(texts, answer)]


def spread(completions, **columns):
    """A score that differs between most completions, for gradients from the first step on."""
    return [sum(map(ord, text)) % 7 / 7 for text in completions]
'''


def processor() -> Any:
    """Return a processor with a token for each patch of an image, and a template with an end of the question."""
    each = "{% if c['type'] == 'image' %}" + IMAGE + "{% else %}{{ c['text'] }}{% endif %}"
    turn = (
        "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
        + each
        + "{% endfor %}{% endif %}"
    )
    template = (
        "{% for m in messages %}" + turn + "{% if m['role'] == 'assistant' %}<end>{% else %}={% endif %}{% endfor %}"
    )
    words = tiny.tokenizer()
    words.add_special_tokens({"additional_special_tokens": [IMAGE]})
    words.chat_template = template
    sizes = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
    return transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(**sizes),
        tokenizer=words,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template,
        image_token=IMAGE,
    )


def model(tool: Any, seed: int = 3) -> Any:
    """Return a Llava of some ten thousand weights for a processor."""
    heads = {"num_attention_heads": 2, "num_hidden_layers": 2}
    text = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64, **heads}
    eyes = {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 32, **heads}
    config = transformers.LlavaConfig(
        text_config={**text, "vocab_size": len(tool.tokenizer), "eos_token_id": 1, "pad_token_id": 0},
        vision_config={**eyes, "image_size": SIDE, "patch_size": PATCH},
        image_token_index=tool.tokenizer.convert_tokens_to_ids(IMAGE),
        vision_feature_layer=-1,
        pad_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(seed)
    return transformers.LlavaForConditionalGeneration(config)


def save_model(folder: Path, seed: int = 3) -> None:
    """Save a model with its processor."""
    tool = processor()
    model(tool, seed).save_pretrained(folder)
    tool.save_pretrained(folder)


def save_pictures(folder: Path, count: int, seed: int, *, demonstrations: bool = False) -> list[dict[str, Any]]:
    """Write ``FOLDER/pictures/N.png`` and ``FOLDER/SEED.jsonl``, whose paths are relative to the folder."""
    from PIL import Image

    draw, rows = np.random.default_rng(seed), []
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        answer = "abcd"[number % 4]
        pixels = np.clip(np.array(COLORS[answer]) + draw.integers(-25, 25, (SIDE, SIDE, 3)), 0, 255).astype(np.uint8)
        path = f"pictures/{seed}-{number}.png"
        Image.fromarray(pixels).save(folder / path)
        row = {"prompt": "a+b", "image": path, "answer": answer}
        rows.append(row | ({"demonstration": answer} if demonstrations else {}))
    (folder / f"{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


RECIPE = """
model: {name: ./model}
environment: {name: dataset, path: ./1.jsonl, test_path: ./2.jsonl}
rewards: ["./reward.py:color"]
algorithm: grpo
trainer: {max_steps: 2, per_device_train_batch_size: 16, num_generations: 8, max_completion_length: 2}
"""


def world(folder: Path, rows: int = 32, **options: Any) -> Path:
    """Write model, pictures, reward and recipe into a folder, and return the recipe."""
    save_model(folder / "model")
    save_pictures(folder, rows, 1, **options)
    save_pictures(folder, 16, 2, **options)
    (folder / "reward.py").write_text(REWARD)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder / "recipe.yaml"
