"""Every rule over one file. A rule yields (line, rule name, message)."""

import ast
import re

from flyt_lint import layers
from flyt_lint.source import Source

LINES_MAX = 800
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

CPP = ('.h', '.cc', '.c', '.cu')
LINE_LENGTH_FREE = ('.md', '.json', '.api', '.lock', '.ptx', '.txt', '.tsv', '.csv')
LENGTH_FREE = ('.md', '.json', '.lock', '.ptx', '.txt', '.tsv', '.csv')
# Whose first line may be code: what they are is told by their folder or by their form.
SUBJECT_FREE_NAMES = ('CMakeLists.txt', '__init__.py')
COMMENT_STARTS = {'.h': '//', '.cc': '//', '.c': '//', '.cu': '//', '.py': ('#', '"""'), '.sh': '#',
                  '.cmake': '#', '.api': '#'}

# The client library: our guests' rules hold in these folders.
GUEST = r'src/((client|rpc|wire|transport|cuda|commands)/|trace/recording)'
TEST = r'(tests/.*|src/(\w+/)*testing/.*|.*_test\.(cc|h|py))$'
PROGRAMS = r'(tests|bench|tools|codegen)/'


class Pattern:
    """A rule that is one expression over code (comments and strings already blanked)."""

    def __init__(self, name, expression, message, where=r'', allowed=None, after=None):
        self.name = name
        self.expression = re.compile(expression, re.M)
        self.message = message
        self.where = re.compile(where)
        self.allowed = re.compile(allowed) if allowed else None
        # A match right behind this is fine.
        self.after = re.compile(f'(?:{after})$') if after else None

    def check(self, source, code):
        if not self.where.match(source.path):
            return
        if self.allowed and self.allowed.match(source.path):
            return
        for match in self.expression.finditer(code):
            # The first visible character: leading context of the match may be a line before.
            offset = match.start() + len(match.group()) - len(match.group().lstrip())
            if self.after and self.after.search(code[max(0, offset - 120):offset]):
                continue
            yield source.line_of(offset), self.name, self.message


PATTERNS = [
    Pattern('time', r'\b(steady_clock|system_clock|high_resolution_clock)::|\bclock_gettime\s*\('
            r'|\bgettimeofday\s*\(|\b__rdtsc\b|::time\s*\(',
            'time comes from a Clock', allowed=r'src/base/(clock|log)\.cc|' + PROGRAMS),
    Pattern('sleep', r'\bsleep_(for|until)\s*\(|\b(u|nano)?sleep\s*\(|\bclock_nanosleep\s*\(',
            'tests wait for events, never for time', where=TEST),
    Pattern('sleep', r'this_thread::sleep_|\b(u|nano)sleep\s*\(|(?<![\w.>])sleep\s*\(\s*\d',
            'time passes through a Clock', where=r'src/',
            allowed=r'src/base/clock\.cc|' + TEST),
    Pattern('chance', r'\brandom_device\b|\bmt19937|\bs?rand\s*\(|\bgetrandom\s*\(|\barc4random',
            'chance comes from Random', allowed=r'src/base/random\.cc'),
    Pattern('threads', r'\bstd::j?thread\b(?!::)|\bpthread_create\s*\(|\bstd::async\b',
            'threads are started by an Executor, so that a simulator can order them', where=r'src/',
            allowed=r'src/(\w+/)*(\w+_)?(executor|workers?|threads?|watchdog)(_\w+)?\.(h|cc)|'
            + TEST),
    Pattern('sockets', r'#\s*include\s*<(sys/socket\.h|sys/un\.h|netinet/\w+\.h|arpa/inet\.h'
            r'|netdb\.h|sys/epoll\.h)>', 'sockets belong to src/transport',
            allowed=r'src/transport/|tests/|bench/|src/server/parent/handoff\.(h|cc)'),
    Pattern('memory', r'(?<!operator )(?<![\w:>.])new\b(?!\s*\()'
            r'|(?<![\w:>.])new\s*\((?=[^)]*nothrow)',
            'no new: make_unique, a container or a member',
            # A private constructor keeps make_unique out.
            after=r'\bunique_ptr<[^;{}]*>\s*(\w+\s*)?[({]\s*'),
    Pattern('memory', r'(?<!= )(?<!=)(?<!operator )\bdelete\b(?!\s*[;,)]\s*$)'
            r'(?=\s*(\[\s*\]\s*)?[\w(*:])',
            'no delete: resources are released by destructors'),
    Pattern('memory', r'(?<![\w.>])(std::|::)?(malloc|calloc|realloc|strdup|posix_memalign)\s*\('
            r'|(?<!\w)(std)?::free\s*\(', 'no malloc and free'),
    Pattern('goto', r'\bgoto\b', 'no goto'),
    Pattern('reinterpret_cast', r'\breinterpret_cast\b',
            'bytes go through Reader, Writer and base/bytes.h', where=r'src/',
            allowed=r'src/base/bytes\.h|src/driver/|src/transport/|src/softgpu/memory|'
            + TEST),
    Pattern('output', r'#\s*include\s*<iostream>|\bstd::(cout|cerr|clog)\b'
            r'|(?<![\w.>])(std::|::)?(v?f?printf|f?puts|putchar|perror)\s*\(',
            'log fields through Log; never printf or iostream', where=r'src/',
            allowed=r'src/control/cli/|src/bin/|' + TEST),
    Pattern('guest', r'(?<![\w.>:])(std::|::)?(_?exit|_Exit|quick_exit|abort|terminate|sigaction'
            r'|signal(?=\s*\(\s*SIG))\s*\(|\bdlsym\s*\(\s*RTLD_NEXT',
            'a guest neither ends its host nor takes its signals', where=GUEST, allowed=TEST),
    Pattern('guest', r'#\s*include\s*<(iostream|fstream|sstream|regex|locale)>|\bthrow\b'
            r'|\bdynamic_cast\b|\btypeid\b',
            'no streams, exceptions or type information in the client library', where=GUEST,
            allowed=TEST),
]

# One place each for what an API without a session argument forces on us.
GLOBALS_ALLOWED = re.compile(r'src/client/(current|trace)\.(h|cc)|src/softgpu/current\.cc'
                             r'|src/cuda/default_stream\.(h|cc)|src/server/lease/usage_board\.cc')
_NOT_VARIABLE = re.compile(
    r'^(using|typedef|friend|static_assert|namespace|class|struct|union|enum|template|asm|return'
    r'|requires|concept|extern\s*"[^"]*"\s*$|#|default|case)\b')


def _strip_template_arguments(text):
    previous = None
    while previous != text:
        previous = text
        text = re.sub(r'(?<=\w)\s*<[^<>;]*>', '', text)
    return text


def _is_mutable(text):
    """True for the text of a variable that can be changed after its initialisation."""
    head = re.split(r'=|\{', text, maxsplit=1)[0]
    if re.search(r'\b(constexpr|constinit const|const constinit)\b', head):
        return False
    flat = _strip_template_arguments(head)
    if '&' in flat:
        return False
    if '*' in flat:
        return not re.search(r'\*\s*const\b[^*]*$', flat)
    return not re.search(r'\bconst\b', flat)


def check_globals(source):
    if not re.match(r'src/', source.path) or re.match(TEST, source.path):
        return
    if GLOBALS_ALLOWED.fullmatch(source.path):
        return
    message = ('no mutable globals: state has one owner (src/client/current.cc and trace.cc are '
               'exceptions)')
    for declaration in source.declarations:
        text = re.sub(r'\[\[.*?\]\]|\balignas\s*\([^)]*\)', '', declaration.text).strip()
        if _NOT_VARIABLE.match(text):
            continue
        if declaration.in_class and not re.search(r'\bstatic\b|\bthread_local\b', text):
            continue
        flat = _strip_template_arguments(text)
        head = re.split(r'=|\{', flat, maxsplit=1)[0]
        # A parenthesis before the value means a function (or a macro), `operator` always one.
        if '(' in head or 'operator' in head or not re.search(r'\w\s+[*&]*\s*\w', head):
            continue
        if _is_mutable(text):
            yield declaration.line, 'globals', message
    for function in source.functions:
        body = source.plain[function.body_start:function.body_end]
        for match in re.finditer(r'(?<=[;{}])\s*((?:static|thread_local)\b[^;{(]*)', body):
            if _is_mutable(match.group(1)):
                offset = function.body_start + match.start(1)
                yield source.line_of(offset), 'globals', message


_PARENTHESISED_CODE = re.compile(
    r'^//\s?(?:[\w:<>*&\s.\->\[\]]+\([^.]*\)\s*;|[\w:<>*&\s.\->\[\]]+ [-+|&]?= .*;'
    r'|(?:if|for|while|switch)\s*\(.*\)\s*\{?|return\b.*;|#\s*(?:include|define|if|endif)\b.*'
    r'|(?:auto|const|int|void|std::)\b.*[;{]|\}\s*(?:else.*)?;?)\s*$')


def check_comments(source):
    for comment in source.comments:
        text = comment.text
        todo = re.search(r'\b(TODO|FIXME|XXX|HACK)\b(\(\w[^)]*\): \w)?', text)
        if todo and not todo.group(2):
            yield comment.line, 'todo', 'no bare TODO: do it, or TODO(who or why): a sentence'
        # Two or more spaces after the slashes mark an example, which may be code.
        if comment.alone and not text.startswith('//  ') and _PARENTHESISED_CODE.match(text):
            yield comment.line, 'dead-code', 'no commented-out code (an example is indented)'


def check_functions(source):
    for function in source.functions:
        count = function.last_line - function.first_line + 1
        if count > FUNCTION_LINES_MAX:
            name = re.search(r'([\w:~]+)\s*\(', function.head)
            yield (function.first_line, 'function-length',
                   f'{name.group(1) if name else "function"} has {count} lines; at most '
                   f'{FUNCTION_LINES_MAX}')


def check_python_functions(path, text):
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield error.lineno or 1, 'syntax', str(error.msg)
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            count = node.end_lineno - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield (node.lineno, 'function-length',
                       f'{node.name} has {count} lines; at most {FUNCTION_LINES_MAX}')


def check_text(path, lines):
    """Length, width and machine paths: the rules for every file."""
    if len(lines) > LINES_MAX and not path.endswith(LENGTH_FREE):
        yield LINES_MAX, 'file-length', f'{len(lines)} lines; at most {LINES_MAX}'
    wide_allowed = path.endswith(LINE_LENGTH_FREE)
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and not wide_allowed and 'http' not in line:
            yield number, 'columns', f'{len(line)} columns; at most {COLUMNS_MAX}'
        if re.search(r'(?<![\w/.-])/(work|home|root)/', line):
            yield number, 'machine-path', 'a path of somebody\'s machine'
        if '\t' in line and path.endswith(CPP + ('.py', '.sh', '.cmake', '.api')):
            yield number, 'tab', 'no tabs'
        if line != line.rstrip() and not path.endswith('.md'):
            yield number, 'trailing-space', 'no spaces at the end of a line'


def check_subject(path, lines, exists):
    """Line 1 tells the subject; a .cc is told by the header it implements or tests."""
    name = path.rsplit('/', 1)[-1]
    suffix = name[name.rfind('.'):] if '.' in name else ''
    if name in SUBJECT_FREE_NAMES or suffix not in COMMENT_STARTS:
        return
    first = lines[0] if lines else ''
    if first.startswith('#!') and len(lines) > 1:
        first = lines[1]
    starts = COMMENT_STARTS[suffix]
    if first.startswith(starts) and len(first) > 8:
        return
    if suffix == '.cc':
        stem = path[:-3]
        # parser_function.cc is a part of what parser.h tells, parser_test.cc its test.
        while stem:
            if exists(stem + '.h'):
                return
            folder, _, base = stem.rpartition('/')
            stem = f'{folder}/{base.rpartition("_")[0]}' if '_' in base else ''
    yield 1, 'subject', 'line 1 tells what the file is about'


def check_file(path, text, exists=lambda path: False):
    """All findings of one file, as (line, rule, message)."""
    lines = text.split('\n')
    if lines and lines[-1] == '':
        lines.pop()
    elif text:
        yield len(lines), 'newline', 'the file ends without a newline'
    yield from check_text(path, lines)
    yield from check_subject(path, lines, exists)
    if path.endswith('.py'):
        yield from check_python_functions(path, text)
    if not path.endswith(CPP):
        return
    source = Source(path, text)
    for pattern in PATTERNS:
        yield from pattern.check(source, source.code)
    yield from check_globals(source)
    yield from check_functions(source)
    yield from check_comments(source)
    for line, message in layers.check(source):
        yield line, 'layers', message
