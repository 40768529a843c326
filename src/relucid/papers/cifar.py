"""What must be said of the copy of CIFAR-10 that the recorded runs took."""

REENCODED = "The recorded runs took CIFAR-10 from a copy whose images were re-encoded as JPEG (quality 75)."
