"""What a study asks of its servers: the prompts as they are sent."""

from __future__ import annotations

import os

from quietgate.errors import BadInput
from quietgate.files import at_home
from quietgate.measure import prompts
from quietgate.study import Study


def prompts_of(study: Study) -> list[prompts.Prompt]:
    """The study's prompts, as many as asked for, through the model's chat template where asked."""
    settings = study.config["benchmark"]
    folder = study.server_folder / at_home(study.target_model) if study.target_model else None
    return prompts.load(
        study.prompts_path,
        model_dir=folder if folder and os.path.isdir(folder) else None,  # noqa: PTH112 - raises nothing
        chat_template=settings["chat_template"],
    )[: settings["prompt_count"]]


def problems(study: Study) -> list[str]:
    """What is wrong with the prompts file: found before a server is started for it, or a record set aside.

    A file that is not there is told with the other missing ones (`study.here`).
    """
    path = study.prompts_path
    if path is not None and not path.exists():
        return []
    try:
        prompts.load(path, chat_template="off")
    except BadInput as e:
        return [f"{study.source}: benchmark.prompts: {e}"]
    return []
