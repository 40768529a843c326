"""The definitions and theorems of gmp that no study covers."""

from relucid.studies.expect import Claim

STATEMENTS = (
    Claim(
        "Eq. 1, 2",
        "A standard unit, ReLU(w.x + b).",
        code=("relucid.models.mlp.mlp",),
        tests=("models/test_mlp.py::test_an_mlp_has_the_layers_of_its_arguments",),
    ),
    Claim(
        "Eq. 3",
        "Weight normalization: ReLU(l v/|v| . x + b).",
        note="PyTorch's own.",
        code=("relucid.models._unit.weights_of",),
        tests=("models/test_unit.py::test_units_are_the_layers_of_relucid_nn",),
    ),
    Claim(
        "Eq. 4, 5, 6",
        "Batch normalization is a parameterization that depends on the data.",
        code=("relucid.inspect.boundary",),
        tests=(
            "inspect/test_boundary.py::test_batch_norm_is_a_parameterization",
            "inspect/test_boundary.py::test_where_batch_norm_stands_the_offset_is_that_of_the_folded_layer",
        ),
    ),
    Claim(
        "Definition 1, Eq. 7",
        "A unit's characteristic set: where its pre-activation is zero.",
        code=("relucid.inspect.Boundary",),
        tests=(
            "inspect/test_boundary.py::test_what_is_rectified_is_the_distance_times_the_length_of_the_weights",
        ),
    ),
    Claim(
        "Definition 2, Eq. 8, 9",
        "Its spatial location phi = -lambda u, the point of the boundary nearest to the origin.",
        code=("relucid.inspect.boundary",),
        tests=("inspect/test_boundary.py::test_the_location_is_the_nearest_point_of_the_boundary",),
    ),
    Claim(
        "Eq. 10, 17",
        "A unit vector from its n - 1 angles.",
        note="Layers store latitudes, pi/2 minus the angle, where floating point has the finest resolution.",
        code=(
            "relucid.nn.unit_vector",
            "relucid.nn.angles_of",
        ),
        tests=(
            "nn/test_sphere.py::test_unit_vector_is_equation_10",
            "nn/test_sphere.py::test_round_trip_gives_the_direction_back",
        ),
    ),
    Claim(
        "Eq. 11",
        "The boundary in hyperspherical coordinates.",
        code=("relucid.inspect.boundary",),
        tests=("inspect/test_boundary.py::test_angles_and_direction_say_the_same",),
    ),
    Claim(
        "Eq. 12, 14",
        "Under SP and WN a small perturbation of small weights can turn a boundary by any angle.",
        code=("relucid.papers.gmp.perturbation.perturbation",),
        tests=(
            "papers/gmp/test_perturbation.py::test_small_standard_weights_turn_by_any_angle_where_geometric_ones_do_not",
            "papers/gmp/test_perturbation.py::test_weight_normalisation_turns_as_far_as_the_standard_layer",
        ),
    ),
    Claim(
        "Theorem 3, Eq. 13",
        (
            "Under GmP a boundary turns by the length of the perturbation in the metric, at most its Euclidean "
            "length."
        ),
        erratum="The equality holds to first order; the inequality always holds.",
        code=("relucid.papers.gmp.perturbation.perturbation",),
        tests=(
            "papers/gmp/test_perturbation.py::test_a_geometric_unit_never_turns_by_more_than_its_angles_change",
            "papers/gmp/test_perturbation.py::test_to_first_order_it_turns_by_the_length_in_the_metric",
            "nn/test_sphere.py::test_a_change_of_the_angles_turns_the_vector_by_at_most_as_much",
        ),
    ),
    Claim(
        "Eq. 15",
        "The geometric unit, r ReLU(u(theta).x + lambda).",
        note="r becomes negative in ordinary training, and then cannot be moved inside the ReLU.",
        code=(
            "relucid.nn.GeometricLinear",
            "relucid.nn.GeometricConv2d",
        ),
        tests=(
            "nn/test_geometric.py::test_output_is_equation_15_for_scales_of_either_sign",
            "nn/test_geometric.py::test_gradients_are_those_of_equation_15_for_any_scale",
            "nn/test_geometric.py::test_conversion_keeps_outputs_and_gives_weights_back",
        ),
    ),
    Claim(
        "Eq. 16",
        "Input mean normalization.",
        code=("relucid.nn.MeanNorm",),
        tests=(
            "nn/test_meannorm.py::test_training_subtracts_the_mean_of_each_channel",
            "convert/test_fuse.py::test_imn_before_a_padded_convolution_becomes_a_batch_norm_and_elsewhere_part_of_the_layer",
        ),
    ),
    Claim(
        "Section 4.3",
        "Initial directions are uniform whatever the width; lambda = 0, r = 1.",
        erratum=(
            '"Angles uniformly at random" must mean a direction uniform on the sphere: uniform angles put all of '
            "u into its first coordinates."
        ),
        code=("relucid.nn.GeometricLinear",),
        tests=(
            "nn/test_geometric.py::test_initial_directions_are_uniform_on_the_sphere",
            "models/test_unit.py::test_geometric_scales_are_one_at_any_width_and_glorots_on_request",
        ),
    ),
    Claim(
        "Fig. 5, 6",
        "Boundaries and locations of a unit in one and two dimensions.",
        code=("relucid.inspect.Boundary.figure",),
        tests=(
            "inspect/test_boundary.py::test_boundaries_in_one_dimension_are_drawn_where_units_switch",
            "inspect/test_boundary.py::test_boundaries_in_two_dimensions_are_lines_through_their_locations",
        ),
    ),
    Claim(
        "Eq. 18, 19, 20, 21, 22",
        (
            "The metric tensor of the sphere is diagonal, and a perturbation's length in it is at most the Euclidean "
            "length."
        ),
        erratum="Eq. 19 and 20 print sums of sin^2; the diagonal is the product, as in Eq. 13.",
        code=("relucid.papers.gmp.perturbation.perturbation",),
        tests=("nn/test_sphere.py::test_metric_is_the_product_of_squared_sines",),
    ),
)
