"""Model card of the result of a stage: base, license, training, and how to load it without this project."""

from __future__ import annotations

from pathlib import Path
from string import Template

from rlm_plugins.models.notice import CARD, WeightsNotice, front_matter
from rlm_plugins.stage import Stage

_CARD = Template("""$header
# $title

$kind trained with `$algorithm` on `$environment` (rlm-plugins, TRL$peft).

- Base: $base
- License of the base: $license. It applies to weights that include the base.
- Rewards: $rewards
- The resolved recipe is `recipe.yaml` of the run.

```python
$code
```
""")
_ADAPTER = """from peft import PeftModel
from transformers import {model}, {processing}

base = {model}.from_pretrained({base})
model = PeftModel.from_pretrained(base, {folder}).merge_and_unload()
{variable} = {processing}.from_pretrained({folder})"""
_MODEL = """from transformers import {model}, {processing}

model = {model}.from_pretrained({folder})
{variable} = {processing}.from_pretrained({folder})"""
_TEXT = {"model": "AutoModelForCausalLM", "processing": "AutoTokenizer", "variable": "tokenizer"}
_VISION = {"model": "AutoModelForImageTextToText", "processing": "AutoProcessor", "variable": "processor"}


def write_model_card(
    stage: Stage, folder: Path, base: str, *, is_adapter: bool | None = None, address: str = ""
) -> None:
    """Write the model card of a stage over those that TRL and PEFT write.

    Args:
        stage: Its source has the notice of the base weights.
        folder: The adapter or model, before it is moved to `stage.output`.
        base: Path or hub name of the base as it was loaded; empty: it was initialized at random.
        is_adapter: True if the folder has an adapter; None: as the stage has saved it.
        address: Path or hub name for its code and heading (default: the result of the stage; run and stage).
    """
    get_notice = stage.source.notice
    notice = WeightsNotice(base or "none, made from nothing") if get_notice is None else get_notice()
    adapter = stage.lora is not None if is_adapter is None else is_adapter
    header = front_matter(
        base_model=notice.source.removeprefix("https://huggingface.co/"),
        library_name="peft" if adapter else "transformers",
        license=notice.license.lower(),
    )
    names = {"base": repr(base or "BASE"), "folder": repr(address or str(stage.output))}
    classes = _TEXT if stage.source.processor is None else _VISION
    text = _CARD.substitute(
        header=header,
        title=address or f"{stage.folder.parent.name}: {stage.name}",
        kind="A LoRA adapter" if adapter else "A model",
        algorithm=stage.body["algorithm"]["name"],
        environment=stage.body["environment"]["name"],
        peft=", PEFT" if adapter else "",
        base=f"{notice}" if notice.source or not base else f"{base}; license: {notice.license or 'not stated'}",
        license=notice.license or "not stated by its model card",
        rewards=", ".join(f"{reward.weight:g} {reward.label}" for reward in stage.rewards) or "none",
        code=(_ADAPTER if adapter else _MODEL).format(**names, **classes),
    )
    (folder / CARD).write_text(text, encoding="utf-8")
    if not address:
        (stage.folder / CARD).unlink(missing_ok=True)
