"""From a model to text: search, sampling, translation, scoring."""
