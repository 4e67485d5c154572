"""C++ text taken apart as far as the lint rules need: comments, strings, scopes, functions."""

import bisect
import dataclasses
import re

_TOKEN = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|R"([^\s()\\]{0,16})\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|\b[0-9](?:'?[0-9a-zA-Z_.])*"
    r"|'(?:\\.|[^'\\\n])+'",
    re.S,
)
_PREPROCESSOR = re.compile(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.M)
_BRACKET = re.compile(r'[(){};]')
_CONSTRUCTOR_LIST = re.compile(r'\)\s*(?:noexcept\b[^:{;]*)?:(?!:)')


@dataclasses.dataclass
class Comment:
    line: int
    text: str
    alone: bool  # nothing but the comment stands on its line


@dataclasses.dataclass
class Function:
    head: str
    first_line: int
    last_line: int
    body_start: int
    body_end: int


@dataclasses.dataclass
class Declaration:
    text: str
    line: int
    in_class: bool


def _blank(text):
    return re.sub(r'[^\n]', ' ', text)


class Source:
    """One C++ file. `code` is the text with comments blanked and strings emptied, same offsets."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split('\n')
        self._line_starts = [0]
        for line in self.lines:
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self.comments = []
        self.code = self._strip()
        self.plain = _PREPROCESSOR.sub(lambda m: _blank(m.group()), self.code)
        self.functions = []
        self.declarations = []
        self._scan()

    def line_of(self, offset):
        return bisect.bisect_right(self._line_starts, offset)

    def _strip(self):
        pieces = []
        end = 0
        for match in _TOKEN.finditer(self.text):
            token = match.group()
            pieces.append(self.text[end:match.start()])
            end = match.end()
            if token.startswith(('//', '/*')):
                self._add_comment(match.start(), token)
                pieces.append(_blank(token))
            elif token.startswith(('"', 'R"')) and '\n' not in token:
                pieces.append('"' + ' ' * (len(token) - 2) + '"')
            elif token.startswith('R"'):
                pieces.append('"' + _blank(token[1:-1]) + '"')
            elif token.startswith("'"):
                pieces.append("'" + ' ' * (len(token) - 2) + "'")
            else:
                pieces.append(token)
        pieces.append(self.text[end:])
        return ''.join(pieces)

    def _add_comment(self, offset, token):
        line = self.line_of(offset)
        before = self.text[self._line_starts[line - 1]:offset]
        alone = not before.strip()
        for i, text in enumerate(token.split('\n')):
            self.comments.append(Comment(line + i, text, alone or i > 0))

    def _scan(self):
        """Finds functions and the declarations at namespace and class scope."""
        scopes = []  # kinds of the open braces outside functions
        parens = 0
        start = 0
        function = None
        for match in _BRACKET.finditer(self.plain):
            token, at = match.group(), match.start()
            if function:
                depth = function[2] + (token == '{') - (token == '}')
                function = (function[0], function[1], depth)
                if depth == 0:
                    self._add_function(function[0], function[1], at)
                    function = None
                    start = at + 1
                continue
            if token in '()':
                parens = max(0, parens + (1 if token == '(' else -1))
            elif token == '{':
                kind = 'init' if parens else self._kind(self.plain[start:at], scopes)
                if kind == 'function':
                    function = (start, at, 1)
                    continue
                scopes.append((kind, parens))
                if kind != 'init':
                    start = at + 1
                parens = 0
            elif token == '}':
                kind, parens = scopes.pop() if scopes else ('namespace', 0)
                if kind in ('namespace', 'class'):
                    start = at + 1
            elif parens == 0:
                inside_initialiser = bool(scopes) and scopes[-1][0] == 'init'
                if not inside_initialiser:
                    self._add_declaration(start, at, scopes)
                    start = at + 1

    @staticmethod
    def _kind(head, scopes):
        if scopes and scopes[-1][0] == 'init':
            return 'init'
        head = re.sub(r'\[\[.*?\]\]', ' ', head, flags=re.S).strip()
        head = re.sub(r'^(?:(?:public|private|protected)\s*:\s*)+', '', head)
        head = re.sub(r'^(?:template\s*<.*?>\s*(?:requires\b[^{]*?\)\s*)?)+(?=[\w:~])', '', head,
                      flags=re.S)
        if re.match(r'(?:inline\s+)?namespace\b', head) or re.fullmatch(r'extern\s*"\s*"', head):
            return 'namespace'
        if re.match(r'(?:typedef\s+)?(?:class|struct|union)\b', head) and not _returns(head):
            return 'class'
        if re.match(r'(?:typedef\s+)?enum\b', head):
            return 'init'
        bare = re.sub(r'operator\s*[^\s(]+', 'operator_', head)
        outside = re.sub(r'\(.*\)', '()', bare, flags=re.S)
        if ')' not in bare or re.search(r'[^=!<>]=(?!=)', outside):
            return 'init'
        if _CONSTRUCTOR_LIST.search(bare) and bare[-1] not in ')}':
            return 'init'
        return 'function'

    def _add_function(self, start, body_start, body_end):
        head = self.plain[start:body_start]
        start += len(head) - len(head.lstrip())
        self.functions.append(Function(' '.join(head.split()), self.line_of(start),
                                       self.line_of(body_end), body_start, body_end))

    def _add_declaration(self, start, end, scopes):
        text = self.plain[start:end]
        start += len(text) - len(text.lstrip())
        text = re.sub(r'^(?:(?:public|private|protected)\s*:\s*)+', '', text.strip())
        if text:
            in_class = bool(scopes) and scopes[-1][0] == 'class'
            self.declarations.append(
                Declaration(' '.join(text.split()), self.line_of(start), in_class))


def _returns(head):
    """True for `struct X f() {`: a function that spells out its type."""
    return re.match(r'(?:class|struct|union)\s+\w+\s*[*&]?\s+\w+\s*\(', head) is not None
