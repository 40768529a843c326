"""The definitions and theorems of crelu that no study covers."""

from relucid.studies.expect import Claim

STATEMENTS = (
    Claim(
        "Fig. 1",
        "AlexNet's first filters, each beside its most opposite one.",
        note="AlexNet is not trained here; its published weights load as they are, from a file.",
        code=("relucid.inspect.figure_of_pairs", "relucid.papers.crelu.fig1.alexnet"),
        tests=(
            "inspect/test_pairing.py::test_the_picture_puts_every_filter_beside_its_pair",
            "papers/crelu/test_figures.py::test_figures_1_and_2_are_drawn_from_a_file_of_alexnets_weights",
        ),
    ),
    Claim(
        "Definition 2.1",
        "CReLU(x) = ([x]+, [-x]+).",
        code=(
            "relucid.nn.crelu",
            "relucid.nn.CReLU",
        ),
        tests=("nn/test_activation.py::test_crelu_is_two_relus_one_after_the_other",),
    ),
    Claim(
        "Proposition 2.1",
        ("The part of an input that the filters span can be reconstructed from the features after CReLU."),
        code=("relucid.inspect.reconstruct",),
        tests=(
            "inspect/test_reconstruction.py::test_what_is_reconstructed_is_the_part_in_the_range_of_the_filters",
        ),
    ),
    Claim(
        "Theorem 4.1, B.4",
        ("The Rademacher complexity of CReLU and a linear map is at most sqrt(d) B R(F), as with ReLU."),
        holds=False,
        erratum=(
            "Inputs (1, -1) and units wx with |w| <= 1 give sqrt(2) on the left and 1 on the right: the step from "
            "S4 to S5 equates a^2 + b^2 with (a - b)^2. What holds is sqrt(d) B (R(F) + R(|F|)) / sqrt(2)."
        ),
        code=("relucid.nn.CReLU",),
        tests=(
            "papers/crelu/test_complexity.py::test_theorem_41_is_false_as_printed",
            "papers/crelu/test_complexity.py::test_theorem_41_holds_as_corrected",
        ),
    ),
    Claim(
        "Algorithm 1, Proposition A.1",
        "x' = (W^T)^+ z with z the inverse of CReLU is the projection of x on the range of W.",
        code=(
            "relucid.inspect.reconstruct",
            "relucid.nn.crelu_inverse",
        ),
        tests=(
            "inspect/test_reconstruction.py::test_reconstruction_is_the_pseudoinverse",
            "nn/test_activation.py::test_inverse_gives_the_input_back_exactly",
        ),
    ),
    Claim(
        "Algorithm 2",
        "The same after max-pooling, from the filters that were selected.",
        erratum=(
            "It needs the indices of the pooling, biases are removed first, and each phase gives an equation of its "
            "own."
        ),
        code=("relucid.inspect.reconstruct",),
        tests=(
            "inspect/test_reconstruction.py::test_after_pooling_each_positive_feature_is_one_equation_of_its_phase",
        ),
    ),
    Claim(
        "Eq. S1, Fig. S1",
        "An input is a combination of shifted filters, with at most one shift per filter.",
        erratum="S1 must say c != 0, not c > 0.",
        code=("relucid.inspect.reconstruct",),
        tests=(
            "papers/crelu/test_reconstruction.py::test_an_input_of_one_filter_is_reconstructed_from_its_pooled_response",
            "papers/crelu/test_reconstruction.py::test_the_bound_of_theorem_a5_holds_for_inputs_that_satisfy_s1",
        ),
    ),
    Claim(
        "Definitions A.1, A.2, Proposition A.2, Theorem A.3, Lemma A.4",
        "In the range of W, |W^T x| lies between the extreme singular values of W times |x|.",
        note="The smallest singular value means the smallest that is not zero.",
        code=("relucid.inspect.reconstruct",),
        tests=(
            "papers/crelu/test_reconstruction.py::test_frame_bounds_hold_in_the_range_of_the_filters",
            "papers/crelu/test_reconstruction.py::test_frame_bounds_are_the_extreme_singular_values_of_the_whole_map",
        ),
    ),
    Claim(
        "Theorem A.5",
        "After max-pooling the reconstruction ratio is at most sqrt((l~max - lmin) / lmin).",
        erratum=(
            "W~ must be chosen by the sign of the response, not of c; otherwise the proof's inequality fails in some "
            "random trials, how many depends on their shapes: with 6 filters of 8 weights in 11% of them at 4 shifts, "
            "in 28% at 2. The printed bound is mostly above 1, hence vacuous; sqrt(1 - lmin / l~max) holds as well."
        ),
        code=("relucid.inspect.reconstruct",),
        tests=(
            "papers/crelu/test_reconstruction.py::test_the_bound_of_theorem_a5_holds_for_inputs_that_satisfy_s1",
            "papers/crelu/test_reconstruction.py::test_the_printed_bound_of_theorem_a5_is_mostly_empty",
            "papers/crelu/test_reconstruction.py::test_chosen_by_the_sign_of_c_the_inequality_of_theorem_a5_fails_at_times",
        ),
    ),
    Claim(
        "Definition B.1",
        "The empirical Rademacher complexity of a class of functions.",
        erratum="A sum over the class is printed where a supremum is meant.",
        code=("relucid.nn.CReLU",),
        tests=("papers/crelu/test_complexity.py::test_definition_b1_takes_the_supremum_over_the_class",),
    ),
    Claim(
        "Lemma B.1, Proposition B.2, Corollary B.3",
        "ReLU does not raise the Rademacher complexity of a class: R(ReLU o F) <= R(F).",
        holds=False,
        erratum=(
            "With Definition B.1's absolute value it is false: F = {(-1, 0, 1), (0, 1, 1), (1, 1, 0)} has R(F) = "
            "1 and R(ReLU o F) = 7/6. Lemma B.1 prints an equality instead of an inequality."
        ),
        note="Cited from Wan et al.",
        code=("torch.nn.ReLU",),
        tests=("papers/crelu/test_complexity.py::test_corollary_b3_is_false_with_an_absolute_value",),
    ),
    Claim(
        "Appendix D",
        (
            "The invariance score: how often a unit that fires still fires when the image is changed, divided by how "
            "often it fires."
        ),
        erratum=(
            "CIFAR has 10,000 test images, not 50,000. If fewer than 1% of a filter's responses are positive, its "
            "threshold is 0."
        ),
        code=("relucid.inspect.invariance",),
        tests=(
            "inspect/test_invariance.py::test_thresholds_are_exact_however_the_data_are_batched",
            "inspect/test_invariance.py::test_where_few_responses_are_positive_the_threshold_is_zero",
        ),
    ),
    Claim(
        "Appendix E",
        "How the networks of Table 4 are trained.",
        code=(
            "relucid.papers.crelu.table4.RECIPES",
            "relucid.train.Recipe",
        ),
        tests=(
            "papers/crelu/test_studies.py::test_imagenet_is_trained_as_appendix_e_says",
            "train/test_recipe.py::test_a_table_gives_the_rate_and_the_decay_of_every_epoch",
        ),
    ),
    Claim(
        "Tables S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13",
        "The networks, layer by layer.",
        erratum=(
            "S3 prints 48 filters in conv3 of CReLU (half): half of 192 is 96. The 10x10 average pool requires "
            "max-pooling that rounds sizes up. S12, CReLU (all), is impossible as printed: conv10 outputs 1024 "
            "channels and conv11 takes 512. Reading conv11 as 1024 -> 512 with ReLU gives the published 4.7M."
        ),
        code=(
            "relucid.models.published.CONVPOOL",
            "relucid.models.published.VGG",
            "relucid.models.published.ALL_CNN_B",
        ),
        tests=(
            "models/test_published.py::test_layers_and_weights_of_convpool_and_all_cnn_are_those_of_the_tables",
            "models/test_published.py::test_average_pooling_has_the_printed_size",
            "models/test_published.py::test_vgg_is_that_of_tables_s4_to_s7",
            "models/test_published.py::test_dropout_before_conv10_is_that_of_tables_s8_to_s13",
        ),
    ),
)
