#!/usr/bin/env python3
"""flyt-client-manager over a cluster that the test plays. client_manager_test.py BUILD.

Client manager, client library, node manager and servers are the real ones.
"""

import contextlib
import json
import os
import queue
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'node'))
from node_process import GROUP, NodeTest, main  # noqa: E402

NOT_FOUND = 5
TRIES = 10


class Cluster:
    """A fake_cluster process."""

    def __init__(self, build, path):
        self.process = subprocess.Popen([os.path.join(build, 'tests', 'fake_cluster'), path],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.asked = queue.Queue()
        self.count = {}
        if self.process.stdout.readline() != 'serving\n':
            raise AssertionError('the cluster did not start')
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            word = line.split()[0]
            self.count[word] = self.count.get(word, 0) + 1
            self.asked.put(line.strip())

    def say(self, line):
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()

    def ready(self, url, token, generation=1):
        self.say(f'ready 0 {generation} {url} {token} ')

    def wait_for(self, text, seconds=120):
        """The next question that begins so; those before it are forgotten."""
        deadline = time.monotonic() + seconds
        while True:
            line = self.asked.get(timeout=max(0.01, deadline - time.monotonic()))
            if line.startswith(text):
                return line

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class ClientManagers(NodeTest):
    grace = 1

    def setUp(self):
        self.folder = self.node.folder
        self.socket = f'{self.folder}/client.sock'
        self.config = f'{self.folder}/client.toml'
        self.cluster_path = f'{self.folder}/cluster.sock'
        self.state = f'{self.folder}/client-{self.id().rsplit(".", 1)[1]}'
        self.log_path = f'{self.state}.log'
        self.manager = None
        self.cluster = Cluster(self.node.build, self.cluster_path)
        with open(self.config, 'w', encoding='utf-8') as file:
            file.write(f'[cluster]\naddresses = ["unix://{self.cluster_path}"]\n'
                       f'[programs]\nsocket = "{self.socket}"\n'
                       f'[lease]\ngrace = {self.grace}\n[client]\nstate = "{self.state}"\n')

    def tearDown(self):
        self.node.end_tenants()
        if self.manager is not None:
            self.stop(signal.SIGKILL)
        self.cluster.end()
        super().tearDown()

    def start(self):
        with open(self.log_path, 'ab') as log:
            self.manager = subprocess.Popen(
                [self.node.program('flyt-client-manager'), '--config', self.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.node.wait_for(lambda: self.status(check=False) or self.manager.poll() is not None)
        self.assertIsNone(self.manager.poll(), self.log())

    def stop(self, with_signal=signal.SIGTERM):
        self.manager.send_signal(with_signal)
        status = self.manager.wait(120)
        self.manager = None
        return status

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def environment(self, wait_ms=60000):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith('FLYT_')}
        environment['LD_LIBRARY_PATH'] = os.path.join(self.node.build, 'lib', 'client')
        environment['FLYT_CLIENT_SOCKET'] = self.socket
        environment['FLYT_WAIT_MS'] = str(wait_ms)
        environment['FLYT_LOG'] = 'info'
        return environment

    def status(self, check=True):
        environment = self.environment()
        del environment['LD_LIBRARY_PATH']
        done = subprocess.run([self.node.program('flyt'), 'client', 'status'], env=environment,
                              capture_output=True, text=True, check=False, timeout=60)
        if not check and done.returncode != 0:
            return None
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def becomes(self, **wanted):
        def check():
            status = self.status()
            return all(status[name] == value for name, value in wanted.items())
        self.node.wait_for(check)

    def program(self, *words, wait_ms=60000):
        program = subprocess.Popen([self.node.subject(), *words], env=self.environment(wait_ms),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.node.tenants.append(program)
        return program

    def result_of(self, program):
        out, said = program.communicate(timeout=120)
        self.node.tenants.remove(program)
        return json.loads(out or '{}'), said

    def holder(self):
        program = self.program('hold', str(16 << 20))
        self.assertTrue(json.loads(program.stdout.readline() or '{}').get('holds'),
                        program.poll())
        return program

    def lease(self, name):
        self.node.create(name, GROUP, '128M')
        token = self.node.ask('token', name)
        return token['urls'][0].replace('unix://', 'shm://'), token['token']

    def test_a_gpu_is_asked_for_used_and_given_back(self):
        self.cluster.ready(*self.lease('life'))
        self.start()
        self.cluster.wait_for('watch')
        self.assertEqual(self.cluster.count.get('request', 0), 0)
        holder = self.holder()
        self.assertEqual(self.cluster.wait_for('request'), 'request  token')
        self.becomes(phase='ready', programs=1, waiting=0)
        seen, said = self.result_of(self.program())
        self.assertTrue(seen.get('sees'), said)
        self.assertEqual(self.cluster.count['request'], 1,
                         'a user has one token' + said + self.log())
        self.assertEqual(self.cluster.count.get('release', 0), 0)
        holder.kill()
        self.cluster.wait_for('release')
        self.becomes(phase='none', programs=0)
        self.assertEqual(self.stop(), 0)

    def test_programs_wait_for_their_turn(self):
        url, token = self.lease('turn')
        self.cluster.say('waiting 2 0 - - all GPUs are taken')
        self.start()
        environment = self.environment()
        del environment['LD_LIBRARY_PATH']
        run = subprocess.Popen([self.node.program('flyt'), 'run', '--', self.node.subject()],
                               env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.stderr.readline(),
                         'flyt: waiting for a GPU: 2 ahead of you; all GPUs are taken\n')
        self.cluster.say('waiting 1 0 - - all GPUs are taken')
        self.assertEqual(run.stderr.readline(),
                         'flyt: waiting for a GPU: 1 ahead of you; all GPUs are taken\n')
        self.becomes(phase='waiting', ahead=1, waiting=1)
        self.cluster.ready(url, token)
        out, said = run.communicate(timeout=60)
        self.assertTrue(json.loads(out).get('sees'), said)
        self.assertEqual(run.returncode, 0)

    def test_waiting_ends_and_says_why(self):
        self.cluster.say('waiting 3 0 - - all GPUs are taken')
        self.start()
        self.becomes(phase='waiting')
        seen, said = self.result_of(self.program(wait_ms=5000))
        self.assertEqual(seen.get('failed'), 'cuInit')
        self.assertIn('no GPU within 5 s: 3 ahead of it; all GPUs are taken', said)
        self.cluster.wait_for('release')

    def test_programs_go_on_without_the_cluster(self):
        self.cluster.ready(*self.lease('alone'))
        self.start()
        holder = self.holder()
        self.cluster.end()
        self.node.wait_for(lambda: self.status()['cluster'] != 'answers')
        self.assertTrue(self.node.poke(holder).get('kept'))
        seen, said = self.result_of(self.program())
        self.assertTrue(seen.get('sees'), 'its token is still good: ' + said)
        holder.kill()
        holder.wait()
        os.unlink(self.cluster_path)
        self.cluster = Cluster(self.node.build, self.cluster_path)
        self.cluster.say('ready 0 1 tcp://nowhere:1 token ')
        self.cluster.wait_for('release')

    def test_who_comes_as_the_cluster_comes_back_gets_what_is_there_now(self):
        self.cluster.ready(*self.lease('lease-1'), 1)
        self.start()
        holder = self.holder()
        # Who comes before it is noticed that the cluster is away, or seconds before it answers
        # again, is given what was known, and says that he asks again: then another one comes.
        for generation in range(2, 2 + TRIES):
            after = self.lease(f'lease-{generation}')
            self.node.ctl('release', f'lease-{generation - 1}')
            self.cluster.end()
            os.unlink(self.cluster_path)
            self.cluster = Cluster(self.node.build, self.cluster_path)
            self.cluster.ready(*after, generation)
            seen, said = self.result_of(self.program())
            self.assertTrue(seen.get('sees'), said)
            if not said:
                break
        self.assertEqual(said, '')
        holder.kill()

    def test_a_lease_that_its_node_does_not_know_is_no_error_of_the_program(self):
        self.cluster.ready(*self.lease('lost'), 1)
        self.start()
        holder = self.holder()
        self.node.ctl('release', 'lost')
        # The token of the first one is still good, as far as anybody here can know.
        self.cluster.ready(*self.lease('found'), 1)
        seen, said = self.result_of(self.program())
        self.assertTrue(seen.get('sees'), said)
        # The cluster may have had to be asked once more before it knew of the second one.
        self.assertGreaterEqual(self.cluster.count['request'], 2)
        holder.kill()

    def test_who_comes_while_the_cluster_is_away_is_told_so(self):
        self.cluster.end()
        os.unlink(self.cluster_path)
        self.start()
        self.node.wait_for(lambda: self.status()['cluster'] != 'answers')
        seen, said = self.result_of(self.program(wait_ms=5000))
        self.assertEqual(seen.get('failed'), 'cuInit')
        self.assertIn('the cluster does not answer', said)
        late = self.program()
        self.node.wait_for(lambda: self.status()['waiting'] == 1)
        self.cluster = Cluster(self.node.build, self.cluster_path)
        self.cluster.ready(*self.lease('late'))
        seen, said = self.result_of(late)
        self.assertTrue(seen.get('sees'), said)

    def test_a_refusal_reaches_the_program(self):
        self.cluster.say(f'error {NOT_FOUND} there is no VM vm')
        self.start()
        seen, said = self.result_of(self.program())
        self.assertEqual(seen.get('failed'), 'cuInit')
        self.assertIn('there is no VM vm', said)

    def test_a_new_manager_gives_nothing_back_while_programs_run(self):
        self.cluster.ready(*self.lease('kept'))
        self.start()
        holder = self.holder()
        programs = f'{self.state}/programs'
        self.node.wait_for(lambda: os.path.exists(programs) and os.path.getsize(programs) > 0)
        for with_signal in (signal.SIGKILL, signal.SIGTERM):
            self.stop(with_signal)
            self.start()
            self.becomes(phase='ready', programs=1)
        # Longer than the grace: the status says that time has passed.
        self.cluster.wait_for('watch')
        end = time.monotonic() + 3 * self.grace
        while time.monotonic() < end:
            self.assertEqual(self.status()['programs'], 1)
        self.assertEqual(self.cluster.count.get('release', 0), 0)
        self.assertTrue(self.node.poke(holder).get('kept'))
        holder.kill()
        holder.wait()
        self.cluster.wait_for('release')

    def test_programs_of_another_gpu_get_its_token(self):
        self.cluster.ready(*self.lease('first'), 1)
        self.start()
        holder = self.holder()
        self.cluster.ready(*self.lease('second'), 2)
        self.becomes(phase='ready')
        self.node.wait_for(lambda: 'generation=2' in self.log())
        seen, said = self.result_of(self.program())
        self.assertTrue(seen.get('sees'), said)
        self.assertTrue(self.node.poke(holder).get('kept'))

    def processor_seconds(self):
        with open(f'/proc/{self.manager.pid}/stat', encoding='ascii') as file:
            fields = file.read().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def test_out_of_descriptors_it_does_not_spin_and_then_serves(self):
        self.start()
        pid = self.manager.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        numbers = {int(name) for name in os.listdir(f'/proc/{pid}/fd')}
        free = min(set(range(len(numbers) + 1)) - numbers)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, limits[1]))
        with contextlib.ExitStack() as knocks:
            # A number that was taken for a moment is free again: another knock takes it.
            def refused():
                knock = knocks.enter_context(socket.socket(socket.AF_UNIX))
                knock.connect(self.socket)
                return 'nobody can connect for now' in self.log()
            self.node.wait_for(refused)
            end, used = time.monotonic() + 1, self.processor_seconds()
            self.node.wait_for(lambda: time.monotonic() >= end)
            self.assertLess(self.processor_seconds() - used, 0.3)
            self.assertEqual(self.log().count('nobody can connect for now'), 1)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        self.assertIsNotNone(self.status())

    def test_descriptors_that_take_long_to_close_hold_up_nobody(self):
        self.start()
        with contextlib.ExitStack() as ends:
            for words in (b'x' * 64, b'x'):
                listener = ends.enter_context(socket.create_server(('127.0.0.1', 0)))
                near = socket.create_connection(listener.getsockname())
                ends.enter_context(listener.accept()[0])
                near.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        near.send(bytes(65536))
                # The last one who has it waits until all was taken, or so long.
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 600))
                knock = ends.enter_context(socket.socket(socket.AF_UNIX))
                self.manager.send_signal(signal.SIGSTOP)
                knock.connect(self.socket)
                try:
                    socket.send_fds(knock, [words], [near.fileno()])
                except PermissionError:
                    # A Linux of today does not let it through.
                    knock.send(words)
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 0, 0))
                near.close()
                self.manager.send_signal(signal.SIGCONT)
            for _ in range(3):
                self.assertIsNotNone(self.status())

    def test_it_does_not_start_beside_another_or_with_nonsense(self):
        self.start()
        again = subprocess.run([self.node.program('flyt-client-manager'), '--config', self.config],
                               capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(again.returncode, 1)
        self.assertIn('in use', again.stderr)
        self.assertIsNotNone(self.status())
        with open(self.config, 'a', encoding='utf-8') as file:
            file.write('colour = "blue"\n')
        wrong = subprocess.run([self.node.program('flyt-client-manager'), '--config', self.config,
                                '--check-config'], capture_output=True, text=True, check=False)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn('unknown key client.colour', wrong.stderr)


if __name__ == '__main__':
    main('__main__')
