"""Models behind HTTP: translations, scores, word links, and LibreTranslate's interface."""
