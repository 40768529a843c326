from itertools import combinations

import numpy as np
import pytest

from relucid.report.figure import PALETTE

# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as seen without one kind of cones.
SEEN_WITHOUT = {
    "red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    "nothing": np.eye(3),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color):
    value = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """As WCAG 2 defines it."""
    low, high = sorted(float(TO_XYZ[1] @ linear(color)) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    x, y, z = np.cbrt(TO_XYZ @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("page", ["#ffffff", "#15181d"])
def test_colors_stand_out_from_the_light_and_the_dark_page(page):
    assert min(contrast(color, page) for color in PALETTE) >= 3


@pytest.mark.parametrize("cones", SEEN_WITHOUT)
def test_any_two_colors_differ_without_red_green_or_blue_cones(cones):
    seen = [lab(SEEN_WITHOUT[cones] @ linear(color)) for color in PALETTE]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15  # 2.3 is just noticeable
