"""A headless Chromium, driven over a pipe, and a way for it to a server that wants certificates."""

import base64
import fcntl
import json
import os
import select
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time

PATIENCE = 60.0
CHROMIUM = os.environ.get('FLYT_CHROMIUM') or shutil.which('chromium')
FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run',
         '--disable-background-networking', '--disable-component-update', '--disable-sync',
         '--disable-extensions', '--disable-dev-shm-usage', '--hide-scrollbars',
         '--window-size=1280,1000', '--remote-debugging-pipe']


class Relay:
    """Passes bytes from a port of this machine, in the clear, to one with certificates."""

    def __init__(self, target, context):
        self.target = target
        self.context = context
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.origin = 'http://127.0.0.1:%d' % self.listener.getsockname()[1]
        self.ends = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            try:
                far = self.context.wrap_socket(socket.create_connection(self.target, timeout=30),
                                               server_hostname=self.target[0])
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self.ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        for end in self.ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Browser:
    """One page of a Chromium of its own. What it asks for is in `urls`, what goes wrong there in
    `errors`."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix='flyt-chromium-')
        low_read, self.out = os.pipe()
        self.into, low_write = os.pipe()
        to_browser, from_browser = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
                                    for end in (low_read, low_write))
        os.close(low_read)
        os.close(low_write)
        # Chromium reads at 3 and writes at 4; neither may be what the other one is made of. Bash
        # alone takes descriptors of two digits.
        command = ['bash', '-c', f'exec "$@" 3<&{to_browser} 4>&{from_browser}', 'bash', CHROMIUM,
                   *FLAGS, f'--user-data-dir={self.profile}', 'about:blank']
        self.process = subprocess.Popen(command, pass_fds=(to_browser, from_browser),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=dict(os.environ, HOME=self.profile))
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b''
        self.number = 0
        self.session = None
        self.urls = []
        self.errors = []
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        attached = self.call('Target.attachToTarget', targetId=target, flatten=True)
        self.session = attached['sessionId']
        for domain in ('Page', 'Runtime', 'Network', 'Log'):
            self.call(f'{domain}.enable')

    def message(self, deadline):
        while b'\0' not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise AssertionError('the browser does not answer')
            data = os.read(self.into, 1 << 20)
            if not data:
                raise AssertionError('the browser has ended')
            self.buffer += data
        text, _, self.buffer = self.buffer.partition(b'\0')
        return json.loads(text)

    def note(self, message):
        method, more = message.get('method'), message.get('params', {})
        if method == 'Network.requestWillBeSent':
            self.urls.append(more['request']['url'])
        elif method == 'Runtime.exceptionThrown':
            details = more['exceptionDetails']
            self.errors.append(details.get('exception', {}).get('description', details['text']))
        elif method == 'Log.entryAdded' and more['entry']['level'] == 'error':
            self.errors.append(f'{more["entry"]["text"]} {more["entry"].get("url", "")}')

    def call(self, method, **more):
        self.number += 1
        words = {'id': self.number, 'method': method, 'params': more}
        if self.session:
            words['sessionId'] = self.session
        os.write(self.out, json.dumps(words).encode() + b'\0')
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self.message(deadline)
            if message.get('id') != self.number:
                self.note(message)
            elif 'error' in message:
                raise AssertionError(f'{method}: {message["error"]}')
            else:
                return message['result']

    def evaluate(self, script):
        answer = self.call('Runtime.evaluate', expression=script, returnByValue=True,
                           awaitPromise=True)
        if 'exceptionDetails' in answer:
            raise AssertionError(f'{script}: {answer["exceptionDetails"]}')
        return answer['result'].get('value')

    def wait(self, script):
        """Until it is true of the page."""
        deadline = time.monotonic() + PATIENCE
        while not (value := self.evaluate(script)):
            if time.monotonic() > deadline:
                raise AssertionError(f'{script} is {value}: '
                                     f'{self.evaluate("document.body.innerText")[:2000]}')
            # Until the page has drawn once more.
            self.evaluate('new Promise((done) => setTimeout(done, 50))')
        return value

    def open(self, url):
        self.call('Page.navigate', url=url)

    def theme(self, name):
        self.call('Emulation.setEmulatedMedia',
                  features=[{'name': 'prefers-color-scheme', 'value': name}])

    def press(self, key, code):
        for kind in ('keyDown', 'keyUp'):
            self.call('Input.dispatchKeyEvent', type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code, text='\r' if key == 'Enter' else '')

    def screenshot(self, path):
        picture = self.call('Page.captureScreenshot', format='png')['data']
        with open(path, 'wb') as file:
            file.write(base64.b64decode(picture))

    def close(self):
        self.session = None
        try:
            self.call('Browser.close')
        except (AssertionError, OSError):
            pass
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)


def tls(cert, key, authority):
    context = ssl.create_default_context(cafile=authority)
    if cert:
        context.load_cert_chain(cert, key)
    return context
