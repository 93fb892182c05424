"""What a study asks of its servers: the prompts as they are sent."""

from __future__ import annotations

from pathlib import Path

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
