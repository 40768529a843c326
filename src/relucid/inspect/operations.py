"""Operations by their ATen names, in the groups from which `inspect` and `convert` build their rules."""

RESHAPES = {
    *("view", "_unsafe_view", "reshape", "_reshape_alias"),
    *("permute", "transpose", "t", "unsqueeze", "squeeze"),
}
SLICES = {"slice", "select", "split", "split_with_sizes", "unbind", "roll", "flip"}
COPIES = {"clone", "contiguous", "_to_copy", "detach", "alias", "lift_fresh"}
MAX_POOLS = {"max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"}
AVERAGES = {
    *("avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
    *("mean", "sum"),
}
UPSAMPLINGS = {
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact2d"),
    *("upsample_linear1d", "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d"),
    "upsample_bicubic2d",
}
PADS = {
    *("constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d"),
}
BATCH_NORMS = {
    *("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit_no_training"),
}
