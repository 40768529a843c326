"""The tables and figures of gmp (Chen and Ge: Neural Characteristic Activation Value Analysis)."""

from relucid.studies.gmp.evolution import BANANA, LEVY
from relucid.studies.gmp.images import RESNET50, VGG6
from relucid.studies.gmp.perturbation import PERTURBATION
from relucid.studies.gmp.rates import RATES_STUDY
from relucid.studies.gmp.uci import BATCHES, UCI

STUDIES = (PERTURBATION, LEVY, BANANA, UCI, BATCHES, RATES_STUDY, VGG6, RESNET50)
