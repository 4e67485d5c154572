"""Starts a flyt-server and runs programs through it; used by the demo and the GPU tests."""

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time

_FIELD = re.compile(r'(\w+)=("(?:\\.|[^"\\])*"|\S+)')


class ServerError(Exception):
    """The server did not start; the message says why."""


def fields_of(line):
    """The named fields of a log line."""
    found = {}
    for name, value in _FIELD.findall(line):
        found[name] = re.sub(r'\\(.)', r'\1', value[1:-1]) if value.startswith('"') else value
    return found


class Server:
    """A running flyt-server; a context manager that ends it.

    prefix   folder with bin/ and lib/
    driver   auto, soft or a path
    url      default: a unix socket in a new temporary folder
    log      path of the log file; default: beside the socket
    """

    START_SECONDS_MAX = 120

    def __init__(self, prefix, driver='auto', url=None, log=None, arguments=()):
        self.prefix = os.path.abspath(prefix)
        self._folder = tempfile.TemporaryDirectory(prefix='flyt-')
        self.url = url or f'unix://{self._folder.name}/server.sock'
        self.log_path = log or os.path.join(self._folder.name, 'server.log')
        self._command = [os.path.join(self.prefix, 'bin', 'flyt-server'), '--listen', self.url,
                         '--driver', driver, *arguments]
        # What a test or demo leaves behind goes with it.
        if '--module-cache' not in arguments:
            self._command += ['--module-cache', os.path.join(self._folder.name, 'modules')]
        self._process = None

    def __enter__(self):
        with open(self.log_path, 'wb') as log:
            try:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True)
            except OSError as error:
                raise ServerError(f'{self._command[0]}: {error.strerror}') from error
        deadline = time.monotonic() + self.START_SECONDS_MAX
        while time.monotonic() < deadline:
            for line in self.log().splitlines():
                if 'listening' in line:
                    self.url = fields_of(line).get('url', self.url)
                    return self
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        reason = self.log().strip() or 'it said nothing'
        self.__exit__(None, None, None)
        raise ServerError(f'{shlex.join(self._command)} did not start: {reason}')

    def __exit__(self, *unused):
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(3)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._folder.cleanup()

    def alive(self):
        return self._process.poll() is None

    def pid(self):
        return self._process.pid

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def session_of(self, pid, before, wait_seconds=1.0):
        """Fields of the line that tells the end of a client's session: by pid, else the newest one
        written since the log had `before` characters. Empty if there is none."""
        deadline = time.monotonic() + wait_seconds
        while True:
            ended = [fields_of(line) for line in self.log()[before:].splitlines()
                     if 'session ended' in line]
            # `flyt run` greets the server under the same pid first, and calls nothing.
            ended = [fields for fields in ended
                     if (fields.get('posted'), fields.get('waited')) != ('0', '0')]
            for fields in ended:
                if fields.get('client_pid') == str(pid):
                    return fields
            if time.monotonic() > deadline:
                return ended[-1] if ended else {}
            time.sleep(0.01)

    def run_command(self, command):
        """The command that runs `command` through this server."""
        flyt = os.path.join(self.prefix, 'bin', 'flyt')
        return [flyt, 'run', '--server', self.url, '--', *command]
