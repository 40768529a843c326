"""The definitions and theorems of structure that no study covers."""

from relucid.studies.expect import Claim

STATEMENTS = (
    Claim(
        "Table 1",
        "The objectives of eight activations.",
        erratum=(
            "For negative t, softsign's is -t - log(1 - t): the printed log(t - 1) is not real; ELU's is a (e^t - t "
            "- 1), without a jump at 0; tanh's is right up to the constant log 2."
        ),
        code=("relucid.papers.structure.objective.ACTIVATIONS",),
        tests=(
            "papers/structure/test_objective.py::test_table_1_has_eight_activations",
            "papers/structure/test_objective.py::test_psi_is_an_antiderivative_of_phi",
        ),
    ),
    Claim(
        "Eq. 2, 11",
        "The heavy ball, and the network x_{k+1} = Phi(W x_k) + beta (x_k - x_{k-1}).",
        code=("relucid.nn.rules.HeavyBall",),
        tests=("nn/test_rules.py::test_heavy_ball_is_the_heavy_ball_algorithm",),
    ),
    Claim(
        "Eq. 3, 12",
        "Nesterov's accelerated gradient descent, and its network.",
        code=("relucid.nn.RULES",),
        tests=(
            "nn/test_rules.py::test_nesterov_follows_the_z_sequence",
            "nn/test_rules.py::test_momentum_of_the_first_layers",
        ),
    ),
    Claim(
        "Eq. 4, 5, 13",
        "Its second form, a sum over all layers.",
        erratum=(
            "Eq. 12 follows the z-sequence and Eq. 13 the y-sequence of Eq. 3: the algorithms are equal, the layers "
            "are not."
        ),
        code=("relucid.nn.RULES",),
        tests=(
            "nn/test_rules.py::test_nesterov2_follows_the_y_sequence_and_the_sum_over_all_layers",
            "nn/test_rules.py::test_weights_of_all_layers_obey_eq5",
        ),
    ),
    Claim(
        "Eq. 6, 14",
        "Linearized ADMM, and its network with two paths.",
        code=("relucid.nn.RULES",),
        tests=("nn/test_rules.py::test_admm_is_linearized_admm_with_a_transform_for_each_path",),
    ),
    Claim(
        "Eq. 16, 17, 18, 20, Fig. 1",
        "The same structures with chosen or learned coefficients.",
        erratum=(
            "Eq. 14 is not a case of Eq. 20: the two lines of Eq. 20 differ in signs, and Eq. 14 uses the new x'."
        ),
        code=(
            "relucid.nn.Propagation",
            "relucid.nn.RULES",
        ),
        tests=(
            "nn/test_rules.py::test_eq16_with_coefficients_of_each_layer",
            "nn/test_rules.py::test_eq17",
            "nn/test_rules.py::test_eq18",
            "nn/test_rules.py::test_eq20",
        ),
    ),
    Claim(
        "Eq. 19, Table 3",
        "ResNet, DenseNet and DMRNet are special cases of Eq. 16, 18 and 20.",
        note="The two paths of DMRNet meet at the end of a stage, in their mean: else the last T' would learn nothing.",
        code=(
            "relucid.nn.RULES",
            "relucid.models.dense.densenet_cifar",
        ),
        tests=(
            "nn/test_rules.py::test_residual_is_heavy_ball_with_beta2_zero",
            "nn/test_pairwise.py::test_densenet_is_eq18_with_alpha_one_and_beta_zero",
            "nn/test_rules.py::test_relaxed_admm_is_dmrnet_by_default_and_not_eq14",
            "models/test_every_name.py::test_no_parameter_is_without_gradient",
        ),
    ),
    Claim(
        "Section 6.1",
        "HB-Net: x_{k+1} = T(x_k) + x_k - x_{k-1}.",
        note=(
            "Unlike He's ResNet, it has no ReLU after the sum; our studies add a ResNet without it as a control. The "
            "recursion can be inverted, exactly so in fixed point (`relucid.nn.Propagation(reversible=True)`)."
        ),
        code=("relucid.models.residual.resnet_cifar",),
        tests=(
            "models/test_residual.py::test_hbnet_is_resnet_with_one_coefficient_changed_and_no_relu_after_the_sum",
        ),
    ),
    Claim(
        "Eq. 21",
        (
            "AGD-Net: every earlier layer produces its own output, and the weighted outputs are added, with "
            "momentum."
        ),
        note=(
            "With bottlenecks the weights scale the 1x1 convolution, and the batch norm after it cancels their common "
            "factor: the 3x3 convolution has it as a weight of its own. A block's first layer, whose output only batch "
            "norms read, has no weights. With them AGD-Net has 1,019,953 parameters at L = 40 and 1,785,871 at L = 52."
        ),
        code=("relucid.models.dense.densenet_cifar",),
        tests=(
            "nn/test_pairwise.py::test_agd_net_is_one_convolution_for_every_pair_with_the_momentum_of_eq21",
            "models/test_dense.py::test_agdnet_is_one_convolution_a_pair_computed_as_one_a_layer",
            "models/test_dense.py::test_twice_the_alphas_of_a_layer_make_twice_its_output",
        ),
    ),
)
