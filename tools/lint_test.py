#!/usr/bin/env python3
"""Tests of the linter: what each rule refuses, and what it must let pass."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint  # noqa: E402
from flyt_lint import library, links, rules  # noqa: E402
from flyt_lint.source import Source  # noqa: E402

HEAD = '// A file with a subject.\n'


def found(text, path='src/rpc/sample.cc', exists=()):
    """The names of the rules that refuse the text, in order of appearance."""
    return [rule for _, rule, _ in rules.check_file(path, HEAD + text, lambda p: p in exists)]


class Refuses(unittest.TestCase):
    def check(self, rule, text, path='src/rpc/sample.cc'):
        self.assertIn(rule, found(text, path), text)

    def test_mutable_globals(self):
        for text in ('int count = 0;\n', 'namespace a {\nstd::map<int, int> registry;\n}\n',
                     'static Session* current;\n', 'thread_local int depth;\n',
                     'const char* name = "x";\n', 'std::atomic<int> x{0};\n',
                     'namespace {\nstd::function<void(int)> hook;\n}\n',
                     'struct A {\n  static inline int x = 0;\n};\n',
                     'void f() {\n  static int calls = 0;\n}\n',
                     'void f() {\n  int a;\n  static std::mutex m;\n}\n'):
            self.check('globals', text)

    def test_other_sources_of_time_chance_threads_and_sockets(self):
        self.check('time', 'auto t = std::chrono::steady_clock::now();\n')
        self.check('time', 'int f() { return clock_gettime(0, 0); }\n')
        self.check('sleep', 'void f() { std::this_thread::sleep_for(x); }\n')
        self.check('chance', 'void f() { std::random_device d; }\n')
        self.check('threads', 'void f() { std::thread t(g); }\n')
        self.check('sockets', '#include <sys/socket.h>\n')

    def test_sleeps_in_tests(self):
        self.check('sleep', 'void f() { usleep(10); }\n', 'tests/kill/a.cc')
        self.check('sleep', 'void f() { clock.sleep_for(x); }\n', 'src/rpc/channel_test.cc')

    def test_manual_memory_and_goto(self):
        for text in ('auto* p = new Thing(1);', 'delete p;', 'delete[] p;', 'void* p = malloc(3);',
                     'void* p = std::calloc(3, 1);', '::free(p);', 'char* c = strdup(s);'):
            self.check('memory', f'void f() {{\n  {text}\n}}\n')
        self.check('goto', 'void f() {\n  goto out;\n}\n')

    def test_reinterpret_cast_outside_its_places(self):
        self.check('reinterpret_cast', 'auto f(char* p) { return reinterpret_cast<int*>(p); }\n')

    def test_printf_and_iostream(self):
        self.check('output', '#include <iostream>\n')
        for text in ('printf("x");', 'std::fprintf(stderr, "x");', 'puts("x");', 'perror("x");'):
            self.check('output', f'void f() {{\n  {text}\n}}\n')

    def test_what_a_guest_must_not_do(self):
        for text in ('exit(1);', 'std::abort();', 'signal(SIGPIPE, SIG_IGN);', 'throw 1;',
                     'dlsym(RTLD_NEXT, "x");'):
            self.check('guest', f'void f() {{\n  {text}\n}}\n', 'src/client/a.cc')

    def test_dead_code_and_bare_todos(self):
        for text in ('// x = 3;', '// return y;', '// call(a, b);', '// if (x) {', '// }',
                     '// #include "a.h"'):
            self.check('dead-code', f'void f() {{\n  {text}\n}}\n')
        self.check('todo', '// TODO: later\n')
        self.check('todo', '// FIXME\n')

    def test_long_files_functions_and_lines(self):
        self.check('file-length', 'using A = int;\n' * 800)
        self.check('function-length', 'int f(int a) {\n' + '  ++a;\n' * 70 + '}\n')
        self.check('function-length', 'A::A() : b_{1}, c_(2) {\n' + '  ++a;\n' * 70 + '}\n')
        self.check('function-length', 'TEST(A, B) {\n' + '  ++a;\n' * 70 + '}\n', 'src/a_test.cc')
        names = [rule for _, rule, _ in rules.check_file(
            'tools/a.py', '"""A."""\ndef f():\n' + '    pass\n' * 70)]
        self.assertIn('function-length', names)
        self.check('columns', '// ' + 'x' * 100 + '\n')

    def test_includes_against_the_table(self):
        for path, target in (('src/base/a.h', 'wire/frame.h'), ('src/rpc/a.cc', 'cuda/types.h'),
                             ('src/client/a.cc', 'server/session.h'), ('src/cuda/a.h', 'wire/b.h'),
                             ('src/softgpu/a.cc', 'driver/table.h'), ('src/wire/a.h', 'base/clock.h'),
                             ('src/transport/tcp.cc', 'wire/frame.h'),
                             ('src/server/a.cc', 'client/call.h'), ('src/server/a.cc', '../x/y.h')):
            self.check('layers', f'#include "{target}"\n', path)
        self.check('layers', '#include <cuda.h>\n', 'src/server/a.cc')

    def test_a_file_without_a_subject(self):
        names = [rule for _, rule, _ in rules.check_file('src/rpc/a.cc', '#include "x.h"\n')]
        self.assertIn('subject', names)

    def test_paths_of_a_machine(self):
        self.check('machine-path', '// See ' + '/home' + '/someone/notes.\n')


class Commands(unittest.TestCase):
    FILES = {'tests/a.py': True, 'tests/b.py': False}

    def check(self, text):
        return [line for line, _ in links.commands_that_cannot_run(text, self.FILES.get)]

    def test_what_cannot_be_run(self):
        self.assertEqual(self.check('Say:\n```\ntests/b.py x\n```\n'), [3])
        self.assertEqual(self.check('```\nA=1 B_C=2 ../../tests/b.py\n```\n'), [2])
        self.assertEqual(self.check('So `SEED=1 tests/b.py build` is the long run.\n'), [1])

    def test_what_can_and_what_is_only_named(self):
        block = '```\ntests/a.py x\npython3 tests/b.py x\ntests/c.py\n```\n'
        self.assertEqual(self.check(block), [])
        self.assertEqual(self.check('`tests/b.py` has them; `python3 tests/b.py x` runs them.\n'), [])


class LetsPass(unittest.TestCase):
    def check(self, text, path='src/rpc/sample.cc'):
        self.assertEqual(found(text, path), [], text)

    def test_constants_functions_and_types(self):
        self.check('constexpr int kMax = 3;\nconst std::string kName = "a";\n'
                   'const char* const kText = "b";\nextern const int kOther;\n'
                   'int f(int a = 3);\nclass A;\nusing B = std::map<int, int>;\n'
                   'bool operator==(const A& a, const B& b);\ntemplate <class T>\nT g(T t);\n'
                   'enum class E : int { kA, kB };\n'
                   'struct S {\n  int member = 0;\n  static constexpr int kX = 1;\n'
                   '  static S make(int x);\n  std::vector<int> list{1, 2};\n};\n'
                   'constexpr std::array<int, 2> kTable = {{1, 2}};\n')

    def test_constant_statics_in_functions(self):
        self.check('const A& f() {\n  static const A value;\n  return value;\n}\n')

    def test_words_in_comments_and_strings(self):
        self.check('// A new thread goes on; delete it with care (printf is not for us).\n'
                   'const std::string_view kText = "new delete goto malloc(";\n'
                   'const std::string_view kRaw = R"(goto printf("x");)";\n')

    def test_examples_in_comments(self):
        self.check('// Used so:\n//   Post post = channel.begin(op);\n//   post.commit();\n')

    def test_deleted_members_and_placement(self):
        self.check('struct A {\n  A(const A&) = delete;\n  A& operator=(const A&) = delete;\n};\n'
                   'void f(void* p) {\n  new (p) A();\n}\n')

    def test_an_owner_that_takes_a_private_object(self):
        self.check('void f() {\n  std::unique_ptr<A> a(new A(1));\n}\n'
                   'auto g() { return std::unique_ptr<A>(new A(1)); }\n')

    def test_what_programs_may_do(self):
        self.check('int main() {\n  std::printf("x");\n}\n', 'bench/a.cc')
        self.check('void f() {\n  clock.sleep_for(x);\n}\n')

    def test_includes_along_the_table(self):
        self.check('#include "rpc/channel.h"\n#include "commands/event.h"\n', 'src/client/a.cc')
        self.check('#include "cuda/types.h"\n', 'src/driver/load.cc')
        self.check('#include "client/a.h"\n#include "server/b.h"\n', 'src/bin/flyt.cc')

    def test_a_source_told_by_its_header(self):
        for path in ('src/rpc/a.cc', 'src/rpc/a_test.cc'):
            got = list(rules.check_file(path, '#include "rpc/a.h"\n', {'src/rpc/a.h'}.__contains__))
            self.assertEqual(got, [])

    def test_a_long_class_of_short_functions(self):
        self.check('class A {\n' + '  int f() const noexcept { return 1; }\n' * 90 + '};\n')


class Suppressions(unittest.TestCase):
    def test_cover_their_line_or_the_next(self):
        covered, malformed = lint.suppressions([
            'x  // lint: allow(memory): the caller frees it', '// lint: allow(goto, globals): because',
            '// of this and that.', 'y'])
        self.assertEqual(covered, {1: {'memory'}, 4: {'goto', 'globals'}})
        self.assertEqual(malformed, [])

    def test_need_a_reason(self):
        self.assertEqual(lint.suppressions(['x  // lint: allow(memory)'])[1], [1])


class Links(unittest.TestCase):
    FILES = {'docs/b.md': '# B\n\n## How `x` works: [now](c.md)\n## Twice\n```\n# code\n```\n## Twice\n',
             'docs/picture.png': '', 'README.md': ''}

    def found(self, text, path='docs/a.md'):
        return [message for _, message in links.check(path, text, self.FILES.get)]

    def test_lead_to_files_and_headings(self):
        self.assertEqual(self.found(
            '# A\n[b](b.md), [x](b.md#how-x-works-now), [2](b.md#twice-1), [up](../README.md), [here](#a)\n'
            '![p](picture.png) [web](https://example.org/none) `[code](none.md)`\n```\n[code](none.md)\n```\n'),
            [])

    def test_are_refused_that_lead_nowhere(self):
        for target in ('none.md', 'README.md', 'b.md#none', 'b.md#code', 'b.md#twice-2', '#none'):
            self.assertEqual(len(self.found(f'# A\nSee [it]({target}).\n')), 1, target)


class Library(unittest.TestCase):
    def test_names_exports_that_are_not_the_abi(self):
        lines = ['0000 T cuInit', '0000 T cuMemAlloc_v2@@V1', '0000 T flyt_secret', '0000 T nvmlInit_v2']
        self.assertEqual(library.bad_exports(lines), ['flyt_secret'])

    def test_names_objects_with_constructors(self):
        lines = ['libflyt_rpc.a:channel.cc.o:0000 t _GLOBAL__sub_I_channel.cc',
                 'libflyt_rpc.a:other.cc.o:0000 t f']
        self.assertEqual(library.global_constructors(lines), ['channel.cc.o'])

    def test_names_foreign_libraries(self):
        lines = [' 0x1 (NEEDED)  Shared library: [libstdc++.so.6]', ' 0x1 (NEEDED) Shared library: [libc.so.6]']
        self.assertEqual(library.foreign_libraries(lines), ['libstdc++.so.6'])


class Scopes(unittest.TestCase):
    def test_functions_are_found_in_classes_templates_and_namespaces(self):
        text = ('namespace a::b {\ntemplate <class T>\nclass CAPABILITY("m") A final : public B<T> {\n'
                ' public:\n  explicit A(int x) : x_{x} {}\n  int f() const override { return 1; }\n};\n'
                'extern "C" int g(void) {\n  if (x) { return 2; }\n  return 1;\n}\n}\n'
                'auto h() -> std::vector<int> {\n  return {1};\n}\n')
        names = [f.head for f in Source('a.cc', text).functions]
        self.assertEqual(len(names), 4, names)


if __name__ == '__main__':
    unittest.main()
