"""The definitions and theorems of structure that no study covers; `docs/how/structure.md` has the errata."""

from relucid.experiments import Statement

OBJECTIVE, RULES, DENSE = (
    "reproductions/structure/test_objective.py",
    "nn/test_rules.py",
    "models/test_dense.py",
)

STATEMENTS = [
    Statement(
        "Table 1",
        "The objectives of eight activations.",
        [
            f"{OBJECTIVE}::test_table_1_has_eight_activations",
            f"{OBJECTIVE}::test_psi_is_an_antiderivative_of_phi",
        ],
    ),
    Statement(
        "Eq. 2, 11",
        "The heavy ball, and the network x_{k+1} = Phi(W x_k) + beta (x_k - x_{k-1}).",
        [f"{RULES}::test_heavy_ball_is_the_heavy_ball_algorithm_with_a_past_of_its_start"],
    ),
    Statement(
        "Eq. 3, 12",
        "Nesterov's accelerated gradient descent, and its network.",
        [f"{RULES}::test_nesterov_follows_the_z_sequence"],
    ),
    Statement(
        "Eq. 4, 5, 13",
        "Its second form, a sum over all layers.",
        [
            f"{RULES}::test_nesterov2_follows_the_y_sequence_and_the_sum_over_all_layers",
            f"{RULES}::test_rules_with_these_coefficients_are_others",
        ],
    ),
    Statement(
        "Eq. 6, 14",
        "Linearized ADMM, and its network with two paths.",
        [f"{RULES}::test_admm_is_linearized_admm_with_a_transform_for_each_path"],
    ),
    Statement(
        "Eq. 15, Section 5.2",
        "Layers with weights of their own fit no worse than layers that share theirs, which are a special case.",
        [
            "reproductions/structure/test_convergence.py::test_shared_weights_are_a_special_case_of_weights_per_layer"
        ],
    ),
    Statement(
        "Eq. 16, 17, 18, 20, Fig. 1",
        "The same structures with chosen or learned coefficients.",
        [
            f"{RULES}::test_eq16_with_coefficients_of_each_layer",
            f"{RULES}::test_eq17",
            f"{RULES}::test_eq18",
            f"{RULES}::test_eq20",
        ],
    ),
    Statement(
        "Eq. 19, Table 3",
        "ResNet, DenseNet and DMRNet are special cases of Eq. 16, 18 and 20.",
        [
            f"{RULES}::test_rules_with_these_coefficients_are_others",
            "nn/test_pairwise.py::test_densenet_is_eq18_with_alpha_one_and_beta_zero",
            f"{RULES}::test_relaxed_admm_is_dmrnet_by_default_and_not_eq14",
            "models/test_every_name.py::test_no_parameter_is_without_gradient",
        ],
    ),
    Statement(
        "Section 6.1",
        "HB-Net: x_{k+1} = T(x_k) + x_k - x_{k-1}.",
        [
            "models/test_residual.py::"
            "test_hbnet_is_resnet_with_one_coefficient_changed_and_no_relu_after_the_sum",
        ],
    ),
    Statement(
        "Eq. 21",
        "AGD-Net: every earlier layer produces its own output, and the weighted outputs are added, with momentum.",
        [
            "nn/test_pairwise.py::test_agd_net_is_one_convolution_for_every_pair_with_the_momentum_of_eq21",
            f"{DENSE}::test_agdnet_is_one_convolution_a_pair_computed_as_one_a_layer",
            f"{DENSE}::test_twice_the_alphas_of_a_layer_make_twice_its_output",
        ],
    ),
]
