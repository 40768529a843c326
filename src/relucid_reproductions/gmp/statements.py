"""The definitions and theorems of gmp that no study covers; `docs/how/gmp.md` has the errata."""

from relucid.experiments import Statement

BOUNDARY, SPHERE, LAYER = "inspect/test_boundary.py", "nn/test_sphere.py", "nn/test_geometric.py"
PERTURBED, UNIT = "reproductions/gmp/test_perturbation.py", "models/test_unit.py"

STATEMENTS = [
    Statement(
        "Eq. 1, 2",
        "A standard unit, ReLU(w.x + b).",
        ["models/test_mlp.py::test_an_mlp_has_the_layers_of_its_arguments"],
    ),
    Statement(
        "Eq. 3",
        "Weight normalization: ReLU(l v/|v| . x + b).",
        [f"{UNIT}::test_units_are_the_layers_of_relucid_nn"],
    ),
    Statement(
        "Eq. 4, 5, 6",
        "Batch normalization is a parameterization that depends on the data.",
        [
            f"{BOUNDARY}::test_batch_norm_is_a_parameterization",
            f"{BOUNDARY}::test_where_batch_norm_stands_the_offset_is_that_of_the_folded_layer",
        ],
    ),
    Statement(
        "Definition 1, Eq. 7",
        "A unit's characteristic set: where its pre-activation is zero.",
        [f"{BOUNDARY}::test_what_is_rectified_is_the_distance_times_the_length_of_the_weights"],
    ),
    Statement(
        "Definition 2, Eq. 8, 9",
        "Its spatial location phi = -lambda u, the point of the boundary nearest to the origin.",
        [f"{BOUNDARY}::test_the_location_is_the_nearest_point_of_the_boundary"],
    ),
    Statement(
        "Eq. 10, 17",
        "A unit vector from its n - 1 angles.",
        [
            f"{SPHERE}::test_unit_vector_is_equation_10",
            f"{SPHERE}::test_round_trip_gives_the_direction_back",
        ],
    ),
    Statement(
        "Eq. 11",
        "The boundary in hyperspherical coordinates.",
        [f"{BOUNDARY}::test_angles_and_direction_say_the_same"],
    ),
    Statement(
        "Eq. 12, 14",
        "Under SP and WN a small perturbation of small weights can turn a boundary by any angle.",
        [
            f"{PERTURBED}::test_small_standard_weights_turn_by_any_angle_where_geometric_ones_do_not",
            f"{PERTURBED}::test_weight_normalization_turns_as_far_as_the_standard_layer",
        ],
    ),
    Statement(
        "Theorem 3, Eq. 13",
        "Under GmP a boundary turns by the length of the perturbation in the metric, at most its Euclidean length.",
        [
            f"{PERTURBED}::test_a_geometric_unit_never_turns_by_more_than_its_angles_change",
            f"{PERTURBED}::test_to_first_order_it_turns_by_the_length_in_the_metric",
            f"{SPHERE}::test_a_change_of_the_angles_turns_the_vector_by_at_most_as_much",
        ],
    ),
    Statement(
        "Eq. 15",
        "The geometric unit, r ReLU(u(theta).x + lambda).",
        [
            f"{LAYER}::test_output_is_equation_15_for_scales_of_either_sign",
            f"{LAYER}::test_gradients_are_those_of_equation_15_for_any_scale",
            f"{LAYER}::test_conversion_keeps_outputs_and_gives_weights_back",
        ],
    ),
    Statement(
        "Section 4.1",
        "A unit with n inputs has n + 1 parameters, as a standard one has; the weights of m units cost O(mn).",
        [
            "reproductions/gmp/test_published.py::test_a_geometric_layer_has_as_many_parameters_as_a_standard_one",
            "reproductions/gmp/test_published.py::test_the_weights_of_a_geometric_layer_cost_as_many_numbers_as_there_are",
        ],
    ),
    Statement(
        "Eq. 16",
        "Input mean normalization.",
        [
            "nn/test_meannorm.py::test_training_subtracts_the_mean_of_each_channel",
            "convert/test_fuse.py::"
            "test_imn_before_a_padded_convolution_becomes_a_batch_norm_and_elsewhere_part_of_the_layer",
        ],
    ),
    Statement(
        "Section 4.3",
        "Initial directions are uniform whatever the width; lambda = 0, r = 1.",
        [
            f"{LAYER}::test_initial_directions_are_uniform_on_the_sphere",
            f"{UNIT}::test_geometric_scales_are_one_at_any_width_and_glorots_on_request",
        ],
    ),
    Statement(
        "Fig. 5, 6",
        "Boundaries and locations of a unit in one and two dimensions.",
        [
            f"{BOUNDARY}::test_boundaries_in_one_dimension_are_drawn_where_units_switch",
            f"{BOUNDARY}::test_boundaries_in_two_dimensions_are_lines_through_their_locations",
        ],
    ),
    Statement(
        "Eq. 18, 19, 20, 21, 22",
        "The metric tensor of the sphere is diagonal, and a perturbation's length in it is at most the Euclidean "
        "length.",
        [f"{SPHERE}::test_metric_is_the_product_of_squared_sines"],
    ),
]
