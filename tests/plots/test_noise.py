"""Detection of noise: the points are the numbers given."""

from rela.plots.noise import detection_by_noise


def test_detection_points_are_the_numbers_given():
    numbers = {"shuffled": {"null_rate": 0.9, "log_prob": 0.8}, "omission": {"null_rate": 0.4, "log_prob": 0.6}}
    axes = detection_by_noise({"m": numbers})
    points = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert points["m, null rate"] == [0.9, 0.4]
    assert points["m, log-probability"] == [0.8, 0.6]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["shuffled", "omission"]
    low, high = axes.get_ylim()
    assert low < 0.4
    assert high > 1
