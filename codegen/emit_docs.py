"""Writes docs/coverage.md and docs/nvml-coverage.md: what becomes of every exported function."""

from family import CUDA

CUDA_HEAD = """\
# Coverage

Every function that CUDA 13.0's `libcuda.so.1` exports, and what Flyt does with it. Generated from
`api/`; do not edit. `python3 codegen/generate.py --docs` writes it, a test checks that it is
current.

- **sync**: the call waits for the server's answer, where the client cannot give it itself.
- **post**: the call is sent in order and returns; errors surface at the next call that waits.
- **cached**: sync the first time, then answered from what came back.
- **local**: the client answers from its own state.
- **same**: another version of the function does the work.
- **refused**: `CUDA_ERROR_NOT_SUPPORTED`, and once per name a line in the log with the reason.

The remark names the commands that travel, or the reason.
"""


NVML_HEAD = """\
# Coverage of NVML

Every function that `libnvidia-ml.so.1` exports, and what Flyt does with it. Generated from
`api/nvml`; do not edit. `python3 codegen/generate.py --docs` writes it, a test checks that it is
current. [nvml.md](nvml.md) tells the rest.

- **sync**: the server answers: from NVIDIA's NVML where it has one, else from what it knows.
- **local**: the client answers from what it learnt when it connected.
- **same**: another version of the function does the work.
- **refused**: `NVML_ERROR_NOT_SUPPORTED`, and once per name a line in the log with the reason.
"""


def outcome(api, call):
    """The class as a reader understands it, and a remark."""
    if call.cls == "refused":
        return "refused", call.reason
    if call.has("same"):
        return "same", f"as `{call.attrs['same']}`"
    if call.has("answer"):
        return "local", f"always `{call.attrs['answer']}`"
    commands = [f"`{name}`" for name in call.attrs.get("via", [])]
    if call.on_wire:
        commands = [f"`{call.name}`"]
    return call.cls, ", ".join(commands)


def table(api, subject):
    title = subject.replace("_", " ")
    out = ["", f"## {title[0].upper()}{title[1:]}", "",
           f"`{api.files[subject]}`", "", "| function | class | remark |", "|---|---|---|"]
    for call in api.calls_of(subject):
        how, remark = outcome(api, call)
        names = f"`{call.name}`" + "".join(f" `_{suffix}`" for suffix in call.variants)
        out.append(f"| {names} | {how} | {remark} |")
    return out


def summary(api):
    counts = {}
    for call in api.calls:
        how = outcome(api, call)[0]
        if api.family is CUDA and call.bare:
            how += ", not in `cuda.h`"
        counts[how] = counts.get(how, 0) + len(call.exports)
    total = sum(counts.values())
    rows = [f"| {how} | {count} |" for how, count in sorted(counts.items())]
    return ["", "| class | exports |", "|---|---|", *rows, f"| all | {total} |"]


def coverage(api):
    head = CUDA_HEAD if api.family is CUDA else NVML_HEAD
    out = [head.rstrip("\n")] + summary(api)
    for subject in api.subjects:
        if api.calls_of(subject):
            out += table(api, subject)
    return "\n".join(out) + "\n"


def files(api):
    return {api.family.page: coverage(api)}
