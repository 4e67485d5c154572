"""Links of documents: each leads to a file of the tree, and to a heading that this file has. Their
commands: a file of the tree that one begins with can be run."""

import posixpath
import re

_LINK = re.compile(r'\]\(([^)\s]+)\)')
_FENCE = re.compile(r'\s*```')
_COMMAND = re.compile(r'(?:[A-Z_]+=\S+ +)*(?:\.{1,2}/)*([\w./-]+\.(?:py|sh))(?= |$)')
_HEADING = re.compile(r'#{1,6}\s+(.*)')


def anchors(text):
    """The names under which web pages of the document have its headings."""
    names, seen, code = set(), {}, False
    for line in text.split('\n'):
        if _FENCE.match(line):
            code = not code
        heading = None if code else _HEADING.match(line)
        if not heading:
            continue
        shown = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading.group(1)).strip().lower()
        name = re.sub(r'[^\w\- ]', '', shown).replace(' ', '-')
        seen[name] = seen.get(name, 0) + 1
        names.add(name if seen[name] == 1 else f'{name}-{seen[name] - 1}')
    return names


def check(path, text, read):
    """(line, message) of each link that leads nowhere. `read` gives the text of a path of the tree,
    '' for what is there and has no headings, None for what is not there."""
    code = False
    for number, line in enumerate(text.split('\n'), 1):
        if _FENCE.match(line):
            code = not code
        if code:
            continue
        for target in _LINK.findall(re.sub(r'`[^`]*`', '', line)):
            if re.match(r'[a-z]+:', target):
                continue
            file, _, anchor = target.partition('#')
            beside = posixpath.join(posixpath.dirname(path), file)
            where = posixpath.normpath(beside) if file else path
            there = text if where == path else read(where)
            if there is None:
                yield number, f'{target} leads to no file'
            elif anchor and anchor not in anchors(there):
                yield number, f'{file or path} has no heading for #{anchor}'


def commands_that_cannot_run(text, runs):
    """(line, message) of each command in a block, or of several words between backticks, that
    begins with a file which cannot be executed. `runs` tells of a path; None: it is not there."""
    code = False
    for number, line in enumerate(text.split('\n'), 1):
        if _FENCE.match(line):
            code = not code
            continue
        commands = [line] if code else [c for c in re.findall(r'`([^`]*)`', line) if ' ' in c]
        for command in commands:
            begin = _COMMAND.match(command.strip())
            if begin and runs(begin.group(1)) is False:
                yield number, f'{begin.group(1)} cannot be run: it has no x bit'
