"""The JSON schema of `matrix.yaml`, for editors."""

import json

from torchwheel.matrix.model import Matrix


def schema_text() -> str:
    """Byte-stable text of the schema."""
    schema = Matrix.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "torchwheel matrix"
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
