"""Text as people have it: tags, placeholders, glossaries and documents, kept while their words are translated."""
