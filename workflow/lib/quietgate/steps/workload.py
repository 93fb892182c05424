"""What a study's requests are: its prompts and sampling parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quietgate.measure import prompts
from quietgate.steps.place import Place


def prompts_of(place: Place) -> list[prompts.Prompt]:
    """The study's prompts, as many as asked for, through the model's chat template where asked."""
    settings = place.study.config["benchmark"]
    model = place.study.target_model
    folder = Path(model).expanduser() if model else None
    return prompts.load(
        place.study.prompts_path,
        model_dir=folder if folder and folder.is_dir() else None,
        chat_template=settings["chat_template"],
    )[: settings["prompt_count"]]


def sampling(place: Place, max_new_tokens: int | None = None) -> dict[str, Any]:
    """SGLang's sampling_params of every request."""
    settings = place.study.config["benchmark"]
    return {
        "max_new_tokens": max_new_tokens or settings["max_new_tokens"],
        "temperature": settings["temperature"],
        "top_p": settings["top_p"],
        "ignore_eos": settings["ignore_eos"],
    }
