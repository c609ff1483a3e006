"""Chapter 3: two texts that a model has not seen, to count tokens of and to measure losses on."""

from pathlib import Path

from examples.ch02.model import Model

HERE = Path(__file__).resolve().parent
PLAY = HERE / "held_play.txt"  # the start of Macbeth, as the embedded model's training prepares it and holds it out
ESSAY = HERE / "held_essay.txt"  # written for this book, so that no model can have been trained on it


def held_text(model: Model) -> str:
    """The text for a model: its held-out play for the embedded one, the essay for any other."""
    path = PLAY if model.manifest.get("source") == "embedded" else ESSAY
    return path.read_text(encoding="utf-8")
