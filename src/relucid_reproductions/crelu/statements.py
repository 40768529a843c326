"""The definitions and theorems of crelu that no study covers; docs/how/crelu.md has the errata."""

from relucid.experiments import Statement

RECONSTRUCTION = "inspect/test_reconstruction.py::test_"
INVARIANCE = "inspect/test_invariance.py::test_"
PUBLISHED = "models/test_published.py::test_"
HERE = "reproductions/crelu"
STATEMENTS = [
    Statement(
        "Fig. 1",
        "AlexNet's first filters, each beside its most opposite one.",
        [
            "inspect/test_pairing.py::test_the_picture_puts_every_filter_beside_its_pair",
            f"{HERE}/test_figures.py::test_figures_1_and_2_are_drawn_from_a_file_of_alexnets_weights",
        ],
    ),
    Statement(
        "Definition 2.1",
        "CReLU(x) = ([x]+, [-x]+).",
        ["nn/test_activation.py::test_crelu_is_two_relus_one_after_the_other"],
    ),
    Statement(
        "Proposition 2.1",
        "The part of an input that the filters span can be reconstructed from the features after CReLU.",
        [f"{RECONSTRUCTION}what_is_reconstructed_is_the_part_in_the_range_of_the_filters"],
    ),
    Statement(
        "Theorem 4.1, B.4",
        "The Rademacher complexity of CReLU and a linear map is at most sqrt(d) B R(F), as with ReLU.",
        [
            f"{HERE}/test_complexity.py::test_theorem_41_is_false_as_printed",
            f"{HERE}/test_complexity.py::test_theorem_41_holds_as_corrected",
        ],
        holds=False,
    ),
    Statement(
        "Algorithm 1, Proposition A.1",
        "x' = (W^T)^+ z with z the inverse of CReLU is the projection of x on the range of W.",
        [
            f"{RECONSTRUCTION}reconstruction_is_the_pseudoinverse",
            "nn/test_activation.py::test_inverse_gives_the_input_back_exactly",
        ],
    ),
    Statement(
        "Algorithm 2",
        "The same after max-pooling, from the filters that were selected.",
        [f"{RECONSTRUCTION}after_pooling_each_positive_feature_is_one_equation_of_its_phase"],
    ),
    Statement(
        "Eq. S1, Fig. S1",
        "An input is a combination of shifted filters, with at most one shift per filter.",
        [
            f"{HERE}/test_reconstruction.py::test_an_input_of_one_filter_is_reconstructed_from_its_pooled_response",
            f"{HERE}/test_reconstruction.py::test_the_bound_of_theorem_a5_holds_for_inputs_that_satisfy_s1",
        ],
    ),
    Statement(
        "Definitions A.1, A.2, Proposition A.2, Theorem A.3, Lemma A.4",
        "In the range of W, |W^T x| lies between the extreme singular values of W that are not zero, times |x|.",
        [
            f"{HERE}/test_reconstruction.py::test_frame_bounds_hold_in_the_range_of_the_filters",
            f"{HERE}/test_reconstruction.py::test_frame_bounds_are_the_extreme_singular_values_of_the_whole_map",
        ],
    ),
    Statement(
        "Theorem A.5",
        "After max-pooling the reconstruction ratio is at most sqrt((l~max - lmin) / lmin).",
        [
            f"{HERE}/test_reconstruction.py::test_the_bound_of_theorem_a5_holds_for_inputs_that_satisfy_s1",
            f"{HERE}/test_reconstruction.py::test_the_printed_bound_of_theorem_a5_is_mostly_empty",
            f"{HERE}/test_reconstruction.py::"
            "test_chosen_by_the_sign_of_c_the_inequality_of_theorem_a5_fails_at_times",
        ],
    ),
    Statement(
        "Definition B.1",
        "The empirical Rademacher complexity of a class of functions.",
        [f"{HERE}/test_complexity.py::test_definition_b1_takes_the_supremum_over_the_class"],
    ),
    Statement(
        "Lemma B.1, Proposition B.2, Corollary B.3",
        "ReLU does not raise the Rademacher complexity of a class: R(ReLU o F) <= R(F).",
        [f"{HERE}/test_complexity.py::test_corollary_b3_is_false_with_an_absolute_value"],
        holds=False,
    ),
    Statement(
        "Appendix D",
        "The invariance score: how often a unit that fires still fires when the image is changed, divided by how often "
        "it fires.",
        [
            f"{INVARIANCE}thresholds_are_exact_however_the_data_are_batched",
            f"{INVARIANCE}where_few_responses_are_positive_the_threshold_is_zero",
        ],
    ),
    Statement(
        "Appendix E",
        "How the networks of Table 4 are trained.",
        [
            f"{HERE}/test_tables.py::test_imagenet_is_trained_as_appendix_e_says",
            "train/test_recipe.py::test_a_table_gives_the_rate_and_the_decay_of_every_epoch",
        ],
    ),
    Statement(
        "Tables S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13",
        "The networks, layer by layer.",
        [
            f"{PUBLISHED}layers_and_weights_of_convpool_and_all_cnn_are_those_of_the_tables",
            f"{PUBLISHED}average_pooling_has_the_printed_size",
            f"{PUBLISHED}vgg_is_that_of_tables_s4_to_s7",
            f"{PUBLISHED}dropout_before_conv10_is_that_of_tables_s8_to_s13",
        ],
    ),
]
