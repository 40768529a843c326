"""Studies of crelu: Shang et al., Understanding and Improving CNNs via Concatenated ReLU (ICML 2016)."""

from relucid.studies.crelu import convpool, imagenet, learned, random, vgg

STUDIES = (*convpool.STUDIES, *learned.STUDIES, *random.STUDIES, *vgg.STUDIES, *imagenet.STUDIES)

__all__ = ["STUDIES"]
