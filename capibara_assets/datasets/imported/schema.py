"""Row type of the table of imported lines, stored beside the imported examples."""

from typing import ClassVar

from pydantic import Field

from capibara_assets.datasets.schema import Split
from capibara_assets.storage.records import Record


class ImportedLine(Record):
    """One line of an imported file, with its example or the reason for leaving it out."""

    schema_name: ClassVar[str] = "ImportedLine"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("file_digest", "line")
    volatile: ClassVar[frozenset[str]] = frozenset({"file"})

    file_digest: str = Field(description="SHA-256 of the file")
    line: int = Field(description="Line in the file, from 1; in a Parquet table the row", ge=1)
    file: str = Field(description="Name of the file")
    format: str = Field(description="Format of the file, such as text or messages")
    wanted_split: Split | None = Field(description="Split that the file was imported for; None: by its group")
    example_id: str | None = Field(description="Example that holds it, alone or with equal ones; None when left out")
    reason_left_out: str | None = Field(description="Why no example holds it; None when one does")
    secrets: int = Field(description="Secrets replaced in it", ge=0)
    licence: str | None = Field(description="Its licence, as stated in it or at the import")
    source: str | None = Field(description="Its source, as stated in it or at the import")
    tenant: str | None = Field(description="Tenant that owns it")
