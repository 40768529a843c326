import math

from relucid.papers.crelu.representations import local_maxima


def test_local_maxima_are_higher_than_their_neighbours_and_plateaus_have_none():
    scores = dict(zip("abcdefg", (2.0, 1.0, 3.0, 3.0, 1.0, math.nan, 5.0), strict=True))
    assert local_maxima(scores) == ["a"]
    assert local_maxima({"a": 1.0}) == ["a"]
    assert local_maxima({"a": 1.0, "b": 2.0}) == ["b"]
