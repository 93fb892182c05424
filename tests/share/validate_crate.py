"""Validate an unpacked archive as a Workflow Run Crate; prints one line per problem.

    .venv-crate/bin/python tests/share/validate_crate.py FOLDER CONTEXT

CONTEXT is the JSON-LD context that the `rocrate` library brings: the metadata's own would be fetched from the
network. Runs in the validator's environment (envs/crate.txt), which has nothing of ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rdflib.plugins.shared.jsonld import context as jsonld
from rocrate_validator import services
from rocrate_validator.models import Severity
from rocrate_validator.utils import document_loader


def main(folder: str, context: str) -> None:
    """Validate `folder` without a network."""
    # rocrate brings a later context than 1.1, in which one vocabulary has moved.
    text = Path(context).read_text().replace("https://bioschemas.org/terms/", "https://bioschemas.org/")
    local = json.loads(text)
    original = document_loader._original_source_to_json

    def read(source: object, *args: object, **kwargs: object) -> object:
        if str(source).startswith("https://w3id.org/ro/crate/"):
            return local, None
        return original(source, *args, **kwargs)

    document_loader._original_source_to_json = read
    jsonld.source_to_json = read
    settings = services.ValidationSettings(
        rocrate_uri=folder,
        profile_identifier="workflow-run-crate-0.5",
        requirement_severity=Severity.REQUIRED,
        # These two ask whether the network has the context.
        skip_checks=["ro-crate-1.1_3.1", "ro-crate-1.1_3.2"],
    )
    found = services.validate(settings)
    for issue in found.get_issues():
        print(f"{issue.check.identifier}: {issue.message}")
    print(f"{len(found.executed_checks)} checks executed")


if __name__ == "__main__":
    main(*sys.argv[1:])
