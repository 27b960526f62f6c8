"""How long a translation may be: one rule for search here, in an exported model, and in `transformers`."""


def longest_translation(source: int, ratio: float, extra: float, shortest: int, most: int) -> int:
    """The most subwords of a translation of `source` subwords: source · ratio + extra, within [`shortest`, `most`].

    At least one, and never more than `most`, what the model has positions for.
    """
    return min(max(int(source * ratio + extra), 1, shortest), most)
