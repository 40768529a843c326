"""Studies of structure: networks whose layers follow each other as the steps of optimization algorithms do."""

from relucid.studies.structure import cifar, convergence, deep, depth, imagenet

STUDIES = (
    depth.STUDY,
    convergence.LEMMA,
    convergence.COUNTS,
    *cifar.STUDIES,
    deep.STUDY,
    imagenet.STUDY,
)
