"""The commands by the groups in which ``scaffe help`` lists them, each with the module that has it.

A module with several commands has a function for each, of the command's name; another has ``main``. Its docstring is
the command's help. ``scaffe COMMAND`` imports that module alone.
"""

from __future__ import annotations

GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "Train and test": {name: (name,) for name in ("extract_features", "join", "test", "time", "train")},
    "Data": {
        "convert_images": ("convert_annoset", "convert_imageset", "create_label_map", "get_image_size"),
        "convert_records": ("compute_image_mean", "convert_cifar_data", "convert_leveldb", "convert_mnist",
                            "convert_mnist_data")},
    "Nets and weights": {
        "nets": ("draw_net", "export_onnx", "export_torch", "upgrade_net_proto_binary",
                 "upgrade_net_proto_text", "upgrade_solver_proto_text"),
        "summary": ("summary",)},
    "Logs and pictures": {"logs": ("parse_log", "plot", "report", "scaling")},
    "Collectives": {"collectives": ("bench", "simulate", "tune")},
    "This machine": {"this_machine": ("device_query", "doctor", "install_tools"), "warm": ("warm",)},
}
"""By group: the modules, and the commands of each."""
MODULES = {name: module for group in GROUPS.values() for module, names in group.items() for name in names}
"""By command: its module."""
