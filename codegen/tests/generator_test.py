"""The generator against a small description: what it writes, what it refuses, what the lock keeps.

After a wanted change of the output: python3 codegen/tests/generator_test.py --renew
"""

import os
import re
import shutil
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import artefacts  # noqa: E402
import generate  # noqa: E402
import lock  # noqa: E402
import where  # noqa: E402
from model import ApiError  # noqa: E402

GOLDEN = os.path.join(HERE, "golden")
SHOWN = ("cuda/types.h", "cuda/functions.h", "cuda/proc_address_rows.cc", "commands/sample.h",
         "client/sample.cc", "client/hooks_sample.h", "client/exports.h",
         "client/exports.cc", "server/sample.cc", "server/hooks_sample.h",
         "server/handlers.cc", "driver/table.h", "softgpu/weak.cc", "softgpu/variants.cc",
         "docs/coverage.md")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


class Copy:
    """A copy of the golden description that a test may change."""

    def __init__(self, case):
        self.root = tempfile.mkdtemp()
        case.addCleanup(shutil.rmtree, self.root)
        shutil.copytree(os.path.join(GOLDEN, "api"), os.path.join(self.root, "api"))

    def path(self, *parts):
        return os.path.join(self.root, "api", *parts)

    def edit(self, name, old, new):
        text = read(self.path(name))
        assert old in text, f"{old} is not in {name}"
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text.replace(old, new, 1))

    def load(self):
        return generate.load(self.root)

    def append(self):
        lock.append(lock.unnumbered(self.root), self.path("api.lock"))


class Golden(unittest.TestCase):
    maxDiff = None

    def test_every_artefact_is_as_it_was_reviewed(self):
        files = artefacts.render(generate.load(GOLDEN))
        for path in SHOWN:
            with self.subTest(path):
                self.assertEqual(files[path], read(GOLDEN, "expected", path))

    def test_generated_functions_are_short_and_name_their_line(self):
        files = artefacts.render(generate.load(os.path.dirname(os.path.dirname(HERE))))
        for path, text in files.items():
            if not re.match(r"(client|nvml_client|server|softgpu)/.*\.cc$", path):
                continue
            body = None
            lines = text.splitlines()
            for number, line in enumerate(lines):
                if re.match(r"(FLYT_WEAK )?(CUresult|nvmlReturn_t|void) \w+\(", line):
                    body = 0
                    self.assertRegex(lines[number - 1], r"^// api/\w+/\w+\.api:\d+")
                if body is not None:
                    body += 1
                    if line == "}":
                        # A client's have a line for each value that comes back.
                        most = 15 if "client/" in path else 12
                        self.assertLessEqual(body, most,
                                             f"{path}:{number}: {lines[number - body]}")
                        body = None

    def test_the_coverage_pages_are_current(self):
        root = os.path.dirname(os.path.dirname(HERE))
        api = generate.load(root)
        files = artefacts.render(api)
        for page in (each.family.page for each in api.together if each.family.exports):
            with self.subTest(page):
                self.assertEqual(read(root, page), files[page],
                                 "run python3 codegen/generate.py --docs")

    def test_names_that_other_headers_than_cuda_h_declare_are_exported(self):
        root = os.path.dirname(os.path.dirname(HERE))
        files = artefacts.render(generate.load(root))
        exports = files["tests/exports.txt"].split()
        for name in ("cuGLGetDevices_v2", "cuGraphicsGLRegisterImage", "cuGLMapBufferObject_v2",
                     "cuEGLStreamProducerConnect", "cuVDPAUGetDevice"):
            with self.subTest(name):
                self.assertIn(name, exports)
                self.assertNotIn(f"FACT_FUNCTION({name})", files["tests/facts.inc"])
                self.assertRegex(files["client/graphics.cc"], rf'refused\("{name}", "')

    def test_commands_without_functions_have_handlers_and_no_client(self):
        root = os.path.dirname(os.path.dirname(HERE))
        files = artefacts.render(generate.load(root))
        self.assertIn("commands/lease.h", files)
        self.assertIn("admin/types.h", files)
        self.assertNotIn("admin/functions.h", files)
        self.assertNotIn("table.h", files["server/lease.cc"])
        self.assertIn("hooks::lease_drain(request, command)", files["server/lease.cc"])

    def test_the_generator_names_no_function_of_cuda(self):
        for name in os.listdir(os.path.dirname(HERE)):
            if name.endswith(".py"):
                text = read(os.path.dirname(HERE), name)
                code = re.sub(r'"""(?:.|\n)*?"""|#.*', "", text)
                calls = set(re.findall(r"\bcu[A-Z]\w+", code))
                self.assertLessEqual(calls, {"cuName"}, name)


class Refused(unittest.TestCase):
    def test_each_mistake_is_told_with_its_place(self):
        cases = sorted(os.listdir(os.path.join(HERE, "refused")))
        self.assertGreater(len(cases), 30)
        for name in cases:
            with self.subTest(name):
                copy = Copy(self)
                shutil.copy(os.path.join(HERE, "refused", name), copy.path("cuda"))
                expected = re.findall(r"^# refused: (.*)$", read(HERE, "refused", name), re.M)
                self.assertEqual(len(expected), 1, "each file says what is expected")
                with self.assertRaises(ApiError) as caught:
                    copy.load()
                self.assertEqual(str(caught.exception), f"api/cuda/{name}:{expected[0]}")


class Lock(unittest.TestCase):
    def refused(self, copy, message):
        with self.assertRaises(ApiError) as caught:
            copy.load()
        self.assertIn(message, str(caught.exception))

    def test_a_shape_cannot_change_under_its_number(self):
        copy = Copy(self)
        copy.edit("cuda/sample.api", "unsigned int flags", "unsigned long long flags")
        self.refused(copy, "sampleCreate changed its shape from post(handle;u4) to "
                           "post(handle;u8)")

    def test_a_limit_is_part_of_the_shape(self):
        copy = Copy(self)
        copy.edit("cuda/sample.api", "bytes<=64", "bytes<=65")
        self.refused(copy, "set_weights changed its shape")

    def test_a_new_command_needs_a_number(self):
        copy = Copy(self)
        copy.edit("cuda/sample.api", "post command", "post command other()\npost command")
        self.refused(copy, "api/cuda/sample.api:18: other has no op number")

    def test_a_command_that_is_gone_must_be_retired(self):
        copy = Copy(self)
        copy.edit("cuda/sample.api", "post command set_weights(Thing thing, f32[]<=8 weights, "
                  "bytes<=64 note)\n", "")
        self.refused(copy, "set_weights, is described nowhere")

    def test_a_number_cannot_be_used_again(self):
        copy = Copy(self)
        text = read(copy.path("api.lock"))
        last = text.splitlines()[-1].split()[0]
        with open(copy.path("api.lock"), "a", encoding="utf-8") as file:
            file.write(f"{last} other post()\n")
        self.refused(copy, f"number {last} is not above {last}")

    def test_before_a_release_numbers_follow_the_description_until_they_are_frozen(self):
        copy = Copy(self)
        with open(copy.path("api.lock"), "a", encoding="utf-8") as file:
            file.write(lock.UNRELEASED + "\n")
        copy.edit("cuda/sample.api", "bytes<=64", "bytes<=65")
        copy.edit("cuda/sample.api", "post command", "post command other()\npost command")
        numbers = {command.name: command.op for command in copy.load().commands}
        lock.freeze(lock.unnumbered(copy.root), copy.path("api.lock"))
        self.assertEqual({command.name: command.op for command in copy.load().commands}, numbers)
        copy.edit("cuda/sample.api", "bytes<=65", "bytes<=66")
        self.refused(copy, "set_weights changed its shape")

    def test_appending_keeps_old_numbers_and_retires_old_shapes(self):
        copy = Copy(self)
        before = {command.name: command.op for command in copy.load().commands}
        copy.edit("cuda/sample.api", "bytes<=64", "bytes<=65")
        copy.edit("cuda/sample.api", "post command", "post command other()\npost command")
        copy.append()
        after = {command.name: command.op for command in copy.load().commands}
        highest = max(before.values())
        self.assertEqual(sorted((after.pop("other"), after.pop("set_weights"))),
                         [highest + 1, highest + 2])
        before.pop("set_weights")
        self.assertEqual(after, before)
        self.assertIn(" retired\n", read(copy.path("api.lock")))


class WhereTest(unittest.TestCase):
    def test_a_call_is_followed_through_the_tree(self):
        lines = where.report(generate.load(GOLDEN), GOLDEN, "sampleFill_ptsz")
        text = "\n".join(lines)
        for place in ("api/cuda/sample.api:8", "client/sample.cc", "server/sample.cc",
                      "src/client/hooks/sample.cc", "src/server/hooks/sample.cc",
                      "tests/conformance/sample_test.cc"):
            self.assertIn(place, text)

    def test_an_unknown_name_suggests_similar_ones(self):
        with self.assertRaisesRegex(KeyError, "sampleFill"):
            where.report(generate.load(GOLDEN), GOLDEN, "sampleFil")


def renew():
    shutil.rmtree(os.path.join(GOLDEN, "expected"), ignore_errors=True)
    files = artefacts.render(generate.load(GOLDEN))
    for path in SHOWN:
        generate.write_if_changed(os.path.join(GOLDEN, "expected", path), files[path])


if __name__ == "__main__":
    if sys.argv[1:] == ["--renew"]:
        renew()
    else:
        unittest.main()
