"""How names in the description become names in C++."""

import re


def camel(snake):
    """launch_kernel -> LaunchKernel"""
    return "".join(part[:1].upper() + part[1:] for part in snake.split("_"))


def _prefix(match):
    """Commands of all libraries share one namespace, in which CUDA's have no prefix."""
    return "" if match.group(0) != "nvml" else "Nvml"


def struct_name(call):
    """A call's command: the name without its library's prefix, e.g. EventDestroyV2."""
    return camel(re.sub(r"^[a-z]+(?=[A-Z])", _prefix, call))


def handler_name(call):
    """The same in snake_case, e.g. event_destroy_v2."""
    name = re.sub(r"^[a-z]+(?=[A-Z])", _prefix, call)
    words = re.findall(r"v\d+$|\d+D?|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)
    return "_".join(words).lower()


def base_name(export):
    """What cuGetProcAddress calls an export: the name without its version."""
    return re.sub(r"_v\d+$", "", export)


def limit_name(field, unit):
    """The constant that bounds a field: (code, Bytes) -> kCodeBytesMax."""
    return f"k{camel(field)}{unit}Max"
