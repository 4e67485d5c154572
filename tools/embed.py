#!/usr/bin/env python3
"""Makes C++ constants of files, so that a program carries them.

    embed.py OUT.cc HEADER NAMESPACE FILE ...      page.css becomes std::string_view page_css()
"""

import os
import re
import sys

# A compiler may refuse longer literals; neighbours are joined.
PIECE = 12000


def literal(text):
    if ')flyt"' in text:
        raise ValueError('the text ends the literal that it would be in')
    pieces = [text[i:i + PIECE] for i in range(0, len(text), PIECE)] or ['']
    return '\n'.join(f'R"flyt({piece})flyt"' for piece in pieces)


def source(header, namespace, files):
    """The C++ source for [(name, text)]."""
    out = f'// Made by tools/embed.py.\n#include "{header}"\n\nnamespace {namespace} {{\n'
    for name, text in files:
        function = re.sub(r'\W', '_', name)
        out += (f'\nstd::string_view {function}() {{\n  static constexpr char kText[] =\n'
                f'{literal(text)};\n  return {{kText, sizeof kText - 1}};\n}}\n')
    return out + f'\n}}  // namespace {namespace}\n'


def main():
    out, header, namespace, *paths = sys.argv[1:]
    files = []
    for path in paths:
        with open(path, encoding='utf-8') as file:
            files.append((os.path.basename(path), file.read()))
    with open(out, 'w', encoding='utf-8') as file:
        file.write(source(header, namespace, files))


if __name__ == '__main__':
    main()
