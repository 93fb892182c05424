"""What a study asks of its servers: the prompts as they are sent."""

from __future__ import annotations

from pathlib import Path

from quietgate.errors import BadInput
from quietgate.measure import prompts
from quietgate.steps.place import Place
from quietgate.study import Study


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


def problems(study: Study) -> list[str]:
    """What is wrong with the prompts file: found before a server is started for it, or a record set aside."""
    try:
        prompts.load(study.prompts_path, chat_template="off")
    except BadInput as e:
        return [f"{study.source}: benchmark.prompts: {e}"]
    return []
