"""All files that follow from a description: {path below the output folder: text or bytes}."""

import emit_client
import emit_commands
import emit_docs
import emit_driver
import emit_server
import emit_tests
import emit_types


def render(api):
    found = emit_commands.files(api)
    for each in api.together:
        folder = each.family.folder
        found[f"{folder}/types.h"] = emit_types.types_header(each)
        found.update(emit_server.files(each))
        found.update(emit_tests.files(each))
        if not each.family.exports:
            continue
        found[f"{folder}/functions.h"] = emit_types.functions_header(each)
        for emitter in (emit_client, emit_driver, emit_docs):
            found.update(emitter.files(each))
    return {path: content if isinstance(content, bytes) else content.rstrip("\n") + "\n"
            for path, content in found.items()}
