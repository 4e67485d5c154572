#!/usr/bin/env python3
"""Prints the path of one driver call, or of one command, through the tree."""

import argparse
import difflib
import os
import signal
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "codegen"))

import generate  # noqa: E402
from model import ApiError  # noqa: E402
from names import base_name  # noqa: E402

CLASSES = {
    "sync": "sync: waits for the server's answer", "post": "post: sent, no answer is awaited",
    "cached": "cached: answered by the client after the first time",
    "local": "local: answered by the client",
}


def find(api, name):
    """(call or None, command or None) of a function's, an export's or a command's name.

    A name without a version means the newest version, as it does in a program's source.
    """
    versions = versions_of(api, name)
    exact = [call for call in api.calls if name in call.exports]
    for call in versions[-1:] or exact:
        return call, command_named(api, call.name)
    command = command_named(api, name)
    if command:
        return command.call, command
    known = sorted(exports(api) + [each.name for each in api.commands])
    near = difflib.get_close_matches(name, known, 5, 0.6)
    raise KeyError(f"no call or command is called {name}" +
                   (f"; similar: {', '.join(near)}" if near else ""))


def versions_of(api, name):
    """All versions of a function, oldest first."""
    calls = [call for call in api.calls if base_name(call.name) == name]
    return sorted(calls, key=lambda call: call.attrs["proc"][0][0])


def exports(api):
    return [export for call in api.calls for export in call.exports]


def command_named(api, name):
    return next((command for command in api.commands if command.name == name), None)


def lines_with(root, path, text):
    """`path:LINE` of the first line of a file that has `text`, or the path and `(not there)`."""
    full = os.path.join(root, path)
    if not os.path.exists(full):
        return f"{path} (no such file)"
    with open(full, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if text in line:
                return f"{path}:{number}"
    return f"{path} (nothing about it yet)"


def search(root, folder, text, first):
    """A file of a folder with `text`, as PATH:LINE, or None; files called `first*` come first."""
    for path, _, names in sorted(os.walk(os.path.join(root, folder))):
        for name in sorted(names, key=lambda name: (not name.startswith(first), name)):
            if name.endswith(".cc"):
                shown = os.path.relpath(os.path.join(path, name), root)
                found = lines_with(root, shown, text)
                if not found.endswith(")"):
                    return found
    return None


def describe_class(call):
    if call.cls == "refused":
        return f"refused: {call.reason}"
    if call.has("same"):
        return f"the same as {call.attrs['same']}"
    if call.has("answer"):
        return f"always answers {call.attrs['answer']}"
    return CLASSES[call.cls]


def client_lines(root, call):
    subject = call.subject
    out = [("client", f"<generated>/client/{subject}.cc {call.name}")]
    if call.client_hook:
        hook = lines_with(root, f"src/client/hooks/{subject}.cc", f" {call.name}(")
        out.append(("client hook", hook))
    return out


def server_lines(root, command):
    out = [("command", f"op {command.op} {command.name}, {'waits' if command.waits else 'posted'}"
            f", <generated>/commands/{command.subject}.h {command.struct}"),
           ("server", f"<generated>/server/{command.subject}.cc {command.handler}")]
    if command.server_hook:
        hook = lines_with(root, f"src/server/hooks/{command.subject}.cc", f" {command.handler}(")
        out.append(("server hook", hook))
    return out


def report(api, root, name):
    call, command = find(api, name)
    rows = []
    if call:
        rows += [("described", str(call.where)), ("class", describe_class(call))]
        versions = [each.name for each in versions_of(api, base_name(call.name))]
        if len(versions) > 1:
            rows.append(("versions", " ".join(versions)))
        rows += client_lines(root, call)
        commands = [command] if command else []
        commands += [command_named(api, other) for other in call.attrs.get("via", [])]
        for each in commands:
            rows += server_lines(root, each)
        soft = search(root, "src/softgpu", f" {call.name}(", call.subject)
        rows.append(("software GPU", soft or "refused (weak)"))
    else:
        rows += [("described", str(command.where))] + server_lines(root, command)
        users = [each.name for each in api.calls if name in each.attrs.get("via", [])]
        rows.append(("used by", " ".join(users) or "hooks (no call names it with via=)"))
    if call:
        test = search(root, "tests/conformance", base_name(call.name), call.subject)
        nothing = f"tests/conformance/{call.subject}_test.cc (nothing about it yet)"
        rows.append(("test", test or nothing))
    return [f"{label + ':':14}{text}" for label, text in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a function, an export or a command")
    options = parser.parse_args()
    try:
        print("\n".join(report(generate.load(ROOT), ROOT, options.name)))
    except (ApiError, KeyError) as error:
        print(error.args[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Who reads only the first lines ends it, as other programs.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
