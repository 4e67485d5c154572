#!/usr/bin/env python3
"""Programs that find their GPU by themselves, at a client manager's socket. desk_test.py BUILD.

The client library, `flyt run`, a node manager and its servers are the real ones; the desk is played
by the test, so that it can also say what no client manager would.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'node'))
from desk import MAGIC, Desk, granted, message, refused, waiting  # noqa: E402
from node_process import GROUP, NodeTest, main  # noqa: E402

NO_DEVICE = 100
DEVICE_UNAVAILABLE = 46
# What a program may take that waits for some seconds, on a busy machine with sanitizers.
BOUND_SECONDS = 100
TRIES = 10
DENIED = 6
USE, AGAIN = 1, 4


class Desks(NodeTest):
    def setUp(self):
        self.path = f'{self.node.folder}/client.sock'

    def environment(self, wait_ms=60000):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith('FLYT_')}
        environment['LD_LIBRARY_PATH'] = os.path.join(self.node.build, 'lib', 'client')
        environment['FLYT_CLIENT_SOCKET'] = self.path
        environment['FLYT_WAIT_MS'] = str(wait_ms)
        return environment

    def run_program(self, wait_ms=60000):
        """A plain program: its first line, and what was said beside it."""
        begin = time.monotonic()
        done = subprocess.run([self.node.subject()], env=self.environment(wait_ms),
                              capture_output=True, text=True, check=False, timeout=120)
        self.assertLess(time.monotonic() - begin, BOUND_SECONDS)
        return json.loads(done.stdout), done.stderr

    def lease(self, name, sms=GROUP, memory='128M'):
        """What a client manager would say of a lease."""
        self.node.create(name, sms, memory)
        token = self.node.ask('token', name)
        return granted(token['urls'][0], token['token'])

    def flyt_run(self, *words):
        environment = self.environment()
        del environment['LD_LIBRARY_PATH']
        return subprocess.run([self.node.program('flyt'), 'run', *words, '--', self.node.subject()],
                              env=environment, capture_output=True, text=True, check=False,
                              timeout=120)

    def test_without_a_client_manager_everything_is_as_before(self):
        seen, said = self.run_program()
        self.assertEqual(seen, {'failed': 'cuInit', 'error': NO_DEVICE})
        self.assertIn('set FLYT_SERVER', said)
        done = self.flyt_run()
        self.assertEqual(done.returncode, 127)
        self.assertIn('no server: give --server URL', done.stderr)

    def test_a_plain_program_gets_its_gpu(self):
        answer = self.lease('plain')
        with Desk(self.path, lambda connection: connection.sendall(answer)) as desk:
            seen, said = self.run_program()
            self.assertEqual((seen.get('sees'), seen.get('total')), (True, 128 << 20), said)
            self.assertEqual(said, '')
            self.assertEqual(len(desk.asked), 1)
            self.assertIn(b'node_subject', desk.asked[0])
            self.assertTrue(desk.closed[0].wait(120))

    def test_the_gpu_is_the_programs_until_it_ends(self):
        answer = self.lease('held')
        with Desk(self.path, lambda connection: connection.sendall(answer)) as desk:
            program = subprocess.Popen(
                [self.node.subject(), 'hold', str(16 << 20)], env=self.environment(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.node.tenants.append(program)
            self.assertTrue(json.loads(program.stdout.readline()).get('holds'))
            self.assertFalse(desk.closed[0].is_set())
            self.assertTrue(self.node.poke(program).get('kept'))
            self.assertFalse(desk.closed[0].is_set())
            program.kill()
            self.assertTrue(desk.closed[0].wait(120))

    def test_the_gpu_stays_when_the_client_manager_goes(self):
        answer = self.lease('orphan')
        with Desk(self.path, lambda connection: connection.sendall(answer)):
            program = subprocess.Popen(
                [self.node.subject(), 'hold', str(16 << 20)], env=self.environment(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.node.tenants.append(program)
            self.assertTrue(json.loads(program.stdout.readline()).get('holds'))
        self.assertTrue(self.node.poke(program).get('kept'))

    def test_a_program_says_what_it_waits_for(self):
        answer = self.lease('late')
        steps = [threading.Event(), threading.Event()]

        def play(connection):
            connection.sendall(waiting(2, 'all GPUs are taken'))
            steps[0].wait(60)
            connection.sendall(waiting(1))
            steps[1].wait(60)
            # A message may come in pieces, several at once.
            both = waiting(0) + answer
            connection.sendall(both[:5])
            connection.sendall(both[5:])

        with Desk(self.path, play):
            program = subprocess.Popen([self.node.subject()], env=self.environment(), text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            self.node.tenants.append(program)
            said = program.stderr.readline()
            self.assertIn('waiting for a GPU ahead=2 why="all GPUs are taken"', said)
            steps[0].set()
            self.assertIn('waiting for a GPU ahead=1', program.stderr.readline())
            steps[1].set()
            self.assertTrue(json.loads(program.stdout.readline()).get('sees'))

    def test_a_short_wait_is_nothing_to_talk_about(self):
        answer = self.lease('short')
        with Desk(self.path,
                  lambda connection: connection.sendall(waiting(0, 'a node starts it') + answer)):
            # On a busy machine the answer may take longer, and that is told: then once more.
            for _ in range(TRIES):
                seen, said = self.run_program()
                self.assertTrue(seen.get('sees'), said)
                if not said:
                    break
            self.assertEqual(said, '')
            for _ in range(TRIES):
                done = self.flyt_run()
                if not done.stderr:
                    break
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_flyt_run_says_how_many_are_ahead(self):
        answer = self.lease('run')
        asked = []
        steps = [threading.Event(), threading.Event()]

        def play(connection):
            asked.append(connection)
            if len(asked) == 1:
                connection.sendall(waiting(2) + waiting(2))
                steps[0].wait(60)
                connection.sendall(waiting(1, 'soon'))
                steps[1].wait(60)
            connection.sendall(answer)

        environment = self.environment()
        del environment['LD_LIBRARY_PATH']
        with Desk(self.path, play):
            run = subprocess.Popen([self.node.program('flyt'), 'run', '--', self.node.subject()],
                                   env=environment, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.node.tenants.append(run)
            self.assertEqual(run.stderr.readline(), 'flyt: waiting for a GPU: 2 ahead of you\n')
            steps[0].set()
            self.assertEqual(run.stderr.readline(),
                             'flyt: waiting for a GPU: 1 ahead of you; soon\n')
            steps[1].set()
            self.assertTrue(json.loads(run.stdout.readline()).get('sees'))
            self.assertEqual(run.wait(60), 0)
        # Once to wait, and once by the program, which has it.
        self.assertEqual(len(asked), 2)

    def test_waiting_ends(self):
        with Desk(self.path, lambda connection: connection.sendall(waiting(2, 'all taken'))):
            seen, said = self.run_program(wait_ms=5000)
            self.assertEqual(seen, {'failed': 'cuInit', 'error': DEVICE_UNAVAILABLE})
            self.assertIn('no GPU within 5 s: 2 ahead of it; all taken', said)
            done = self.flyt_run('--wait', '5')
            self.assertEqual(done.returncode, 127)
            self.assertIn('flyt: no GPU within 5 s: 2 ahead of it; all taken', done.stderr)

    def test_a_desk_that_says_nothing_is_left(self):
        with Desk(self.path, lambda connection: None):
            seen, said = self.run_program(wait_ms=500)
        self.assertEqual(seen['error'], DEVICE_UNAVAILABLE)
        self.assertIn('does not answer', said)

    def test_a_desk_that_never_stops_talking_is_left(self):
        def play(connection):
            number = 0
            while True:
                number += 1
                connection.sendall(waiting(number % 1000))

        with Desk(self.path, play):
            seen, _ = self.run_program(wait_ms=500)
        self.assertEqual(seen['error'], DEVICE_UNAVAILABLE)

    def test_refusals_reach_the_user(self):
        with Desk(self.path,
                  lambda connection: connection.sendall(refused(DENIED, 'not for you'))):
            seen, said = self.run_program()
            self.assertEqual(seen, {'failed': 'cuInit', 'error': NO_DEVICE})
            self.assertIn('not for you', said)
            done = self.flyt_run()
            self.assertEqual((done.returncode, done.stderr), (127, 'flyt: not for you\n'))

    def test_nonsense_is_an_error_at_once(self):
        url = 'unix:///nowhere/server.sock'
        nonsense = {
            'another protocol': b'HTTP/1.1 200 OK\r\n\r\n',
            'another version': message(2, b'\0\0\0\0\0\0', version=2),
            'an unknown kind': message(9, b''),
            'a length without end': MAGIC + b'\1\0\2\0\xff\xff\xff\xff',
            'a text longer than its message': message(4, b'\0\0\xff\xff'),
            'a text longer than allowed': message(4, b'\0\0\x01\x10' + b'x' * 4097),
            'a granted GPU without a URL': granted(''),
            'a question': message(1, b'\1\0\0\0\0\0\0\0'),
            'bytes left over': message(2, b'\0\0\0\0\0\0\0'),
            'an unknown error': refused(99, ''),
            'a URL that is none': granted('gopher://x'),
            'a server that is not there': granted(url),
        }
        for what, answer in nonsense.items():
            with self.subTest(what):
                with Desk(self.path, lambda connection, answer=answer: connection.sendall(answer)):
                    seen, said = self.run_program()
                self.assertIn(seen.get('error'), (DEVICE_UNAVAILABLE, NO_DEVICE, 803), said)
                self.assertNotEqual(said, '')

    def play_each(self, *answers):
        """A desk that gives each program that asks the next answer, and the last one again."""
        asked = []

        def play(connection):
            asked.append(connection)
            connection.sendall(answers[min(len(asked), len(answers)) - 1])
        return play

    def purposes(self, desk):
        return [struct.unpack_from('<H', one, 16)[0] for one in desk.asked]

    def test_a_gpu_that_was_taken_away_meanwhile_is_asked_for_again(self):
        taken = self.lease('taken')
        self.node.ctl('release', 'taken')
        other = self.node.create('other', GROUP, '128M')['urls'][0].replace('unix://', 'shm://')
        stale = granted(other, 'flyt-token-of-another-lease')
        with Desk(self.path, self.play_each(taken, stale, self.lease('fresh'))) as desk:
            seen, said = self.run_program()
            self.assertTrue(seen.get('sees'), said)
            self.assertEqual(said, '')
            self.assertEqual(self.purposes(desk), [USE, AGAIN, AGAIN])
            self.assertTrue(desk.closed[0].wait(120))
            self.assertTrue(desk.closed[1].wait(120))

    def test_a_gpu_that_is_never_there_is_an_error_in_the_end(self):
        taken = self.lease('gone')
        self.node.ctl('release', 'gone')
        with Desk(self.path, self.play_each(taken)) as desk:
            seen, said = self.run_program()
            self.assertEqual(seen, {'failed': 'cuInit', 'error': DEVICE_UNAVAILABLE})
            self.assertIn('no session with the GPU server', said)
            self.assertEqual(self.purposes(desk), [USE, AGAIN, AGAIN, AGAIN])

    def test_an_earlier_client_manager_is_asked_as_it_understands(self):
        taken = self.lease('old')
        self.node.ctl('release', 'old')
        fresh = self.lease('new')
        asked = []

        def play(connection):
            asked.append(connection)
            if len(asked) == 2:
                connection.shutdown(socket.SHUT_RDWR)
            else:
                connection.sendall(taken if len(asked) == 1 else fresh)

        with Desk(self.path, play) as desk:
            seen, said = self.run_program()
            self.assertTrue(seen.get('sees'), said)
            self.assertEqual(self.purposes(desk), [USE, AGAIN, USE])

    def test_waiting_for_another_gpu_ends(self):
        taken = self.lease('late')
        self.node.ctl('release', 'late')
        with Desk(self.path, self.play_each(taken, waiting(0, 'all taken'))):
            seen, said = self.run_program(wait_ms=5000)
        self.assertEqual(seen, {'failed': 'cuInit', 'error': DEVICE_UNAVAILABLE})
        self.assertIn('all taken', said)

    def test_a_desk_that_goes_away_is_an_error(self):
        for part in (b'', granted('unix:///x')[:20]):
            def play(connection, part=part):
                connection.sendall(part)
                connection.shutdown(socket.SHUT_RDWR)

            with Desk(self.path, play):
                seen, said = self.run_program()
            self.assertEqual(seen['error'], DEVICE_UNAVAILABLE)
            self.assertIn('went away', said)

    def test_a_socket_that_was_left_over_is_an_error(self):
        with socket.socket(socket.AF_UNIX) as left_over:
            left_over.bind(self.path)
        try:
            seen, said = self.run_program()
        finally:
            os.unlink(self.path)
        self.assertEqual(seen['error'], DEVICE_UNAVAILABLE)
        self.assertIn('does not answer', said)

    def test_a_named_server_comes_first(self):
        self.node.create('named', GROUP, '128M')
        environment = self.environment()
        environment.update({name: value for name, value in self.node.settings('named').items()
                            if name in ('FLYT_SERVER', 'FLYT_TOKEN')})
        with Desk(self.path, lambda connection: connection.sendall(refused(DENIED, 'no'))) as desk:
            done = subprocess.run([self.node.subject()], env=environment, capture_output=True,
                                  text=True, check=False, timeout=120)
        self.assertTrue(json.loads(done.stdout).get('sees'), done.stderr)
        self.assertEqual(desk.asked, [])

    def test_programs_that_wait_do_not_hold_up_others(self):
        answer = self.lease('many')
        lock = threading.Lock()
        count = [0]

        def play(connection):
            with lock:
                count[0] += 1
                first = count[0] == 1
            connection.sendall(waiting(1) if first else answer)

        with Desk(self.path, play) as desk:
            slow = subprocess.Popen([self.node.subject()], env=self.environment(), text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE)
            self.node.tenants.append(slow)
            self.node.wait_for(lambda: desk.asked)
            seen, said = self.run_program()
            self.assertTrue(seen.get('sees'), said)
            self.assertIsNone(slow.poll())


if __name__ == '__main__':
    main('__main__')
