"""The paper's figures (arXiv 2104.07012) for comparison with ours: by row of Table 1, or by attention kind."""

from __future__ import annotations

TABLE_1: dict[int, tuple[str, float | None]] = {
    1: ("softmax", 26.9),
    2: ("sparsemax", 26.4),
    3: ("1.5-entmax", 26.7),
    4: ("ReLU alone", None),  # optimisation failed
    5: ("ReLU + RMSNorm", 26.0),
    6: ("ReLA-i", 26.5),
    7: ("ReLA-g", 26.6),
    8: ("ReLA-g with LayerNorm", 26.6),
    9: ("ReLA-g with GeLU", 26.5),
    10: ("ReLA-g with leaky ReLU", 26.5),
    11: ("ReLA-g in the encoder only", 26.3),
    12: ("ReLA-g in the decoder only", 27.0),
    13: ("ReLA-g in cross attention only", 27.0),
}
"""Setting and SacreBLEU on WMT14 En–De."""

NAMES = {"softmax": "softmax", "sparsemax": "sparsemax", "entmax15": "1.5-entmax", "rela-g": "ReLA-g"}
"""The four models that the paper compares, by preset."""

TABLE_2 = {
    "softmax": (72.31, 1.00, 1.00),
    "sparsemax": (72.31, 0.26, 0.54),
    "entmax15": (72.31, 0.27, 0.49),
    "rela-g": (72.34, 0.93, 0.98),
}
"""Million parameters, and the speed of training and of decoding (one sentence at a time) relative to softmax."""

TABLE_3 = {"en-fr": (37.2, 37.9), "en-fi": (15.5, 15.4), "zh-en": (21.1, 20.8), "ro-en": (32.7, 32.9)}
"""SacreBLEU of softmax and ReLA-g on WMT14 En–Fr, WMT18 En–Fi, WMT18 Zh–En and WMT16 Ro–En."""

TABLE_5 = {
    "softmax": (75.95, 67.51, 79.38, 54.31),
    "sparsemax": (78.17, 67.88, 82.32, 54.95),
    "entmax15": (78.82, 67.69, 79.84, 58.98),
    "rela-g": (64.46, 61.64, 59.24, 52.41),
}
"""AER in percent: AoL and AoH of normal attention, AoL and AoH of shifted attention."""

TABLE_6 = {
    ("softmax", "1"): (0.56, 0.31, 0.45),
    ("entmax15", "1"): (0.84, 0.39, 0.52),
    ("rela-g", "1"): (1.26, 0.81, 0.78),
    ("rela-g", "0.5"): (0.97, 0.65, 0.69),
    ("rela-g", "0.25"): (0.92, 0.65, 0.71),
    ("rela-g", "0.1"): (0.92, 0.66, 0.72),
}
"""Head diversity of encoder, decoder and cross attention, by kind and temperature."""
