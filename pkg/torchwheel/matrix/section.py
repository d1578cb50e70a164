"""What every section of `matrix.yaml` is."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every section: frozen, strict types, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
