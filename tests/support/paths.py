"""Where the repository lies, and the folder of datasets beside it that tests may read and skip without."""

from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SHARED = REPO.parent / "shared"
