"""A caveat about the copy of CIFAR-10 that the recorded runs used."""

REENCODED = "The recorded runs used a copy of CIFAR-10 with images re-encoded as JPEG (quality 75)."
