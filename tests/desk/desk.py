"""A client manager's desk, played by the test: says what the test wants, when it wants."""

import os
import socket
import struct
import threading

MAGIC = b'FLYTGPU\n'
WAITING, GRANTED, REFUSED, STATUS = 2, 3, 4, 5


def text(value):
    data = value.encode()
    return struct.pack('<H', len(data)) + data


def message(kind, body, version=1):
    return MAGIC + struct.pack('<HHI', version, kind, len(body)) + body


def waiting(ahead, why=''):
    return message(WAITING, struct.pack('<I', ahead) + text(why))


def granted(url, token='', generation=1):
    return message(GRANTED, struct.pack('<Q', generation) + text(url) + text(token))


def refused(code, why):
    return message(REFUSED, struct.pack('<H', code) + text(why))


class Desk:
    """Listens at `path` and does `play(connection)` with each program that has asked. What `play`
    leaves open is open until the program closes it, or the desk ends."""

    def __init__(self, path, play):
        self.path = path
        self.play = play
        self.asked = []    # The bytes of each request.
        self.closed = []   # An event for each of them: the program's end was closed.
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self._listener.close()
        os.unlink(self.path)
        for connection in self._connections:
            connection.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            header = self._exactly(connection, 16)
            body = self._exactly(connection, struct.unpack_from('<I', header, 12)[0])
            self.asked.append(header + body)
            closed = threading.Event()
            self.closed.append(closed)
            self.play(connection)
            while connection.recv(4096):
                pass
            closed.set()
        except OSError:
            pass

    @staticmethod
    def _exactly(connection, size):
        data = b''
        while len(data) < size:
            more = connection.recv(size - len(data))
            if not more:
                raise OSError('the program went away')
            data += more
        return data
