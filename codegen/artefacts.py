"""All files that follow from a description: {path below the output folder: text}."""

import emit_client
import emit_commands
import emit_driver
import emit_server
import emit_types


def render(api):
    found = {"cuda/types.h": emit_types.types_header(api),
             "cuda/functions.h": emit_types.functions_header(api)}
    for emitter in (emit_commands, emit_client, emit_server, emit_driver):
        found.update(emitter.files(api))
    return {path: text.rstrip("\n") + "\n" for path, text in found.items()}
