"""Kept failures: small JSON files that the suite replays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cases"


def kept() -> dict[str, dict[str, Any]]:
    """All kept cases by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def keep(case: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write a case to a file that is named by its fuzzer and content."""
    text = json.dumps(case, indent=1, ensure_ascii=False, sort_keys=True)
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case['fuzzer']}-{mark}.json"
    path.write_text(text + "\n")
    return path
