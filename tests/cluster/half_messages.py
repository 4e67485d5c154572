"""A client that begins messages and never ends them: HTTP/2 by hand, over TLS."""

import socket
import ssl
import struct

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_HEADERS = 4
ACK = 1


def literal(name, value):
    """A header as HPACK says it without a table, all of its texts shorter than 127 bytes."""
    name, value = name.encode(), value.encode()
    return b'\x10' + bytes([len(name)]) + name + bytes([len(value)]) + value


class HalfMessages:
    """One connection on which calls of `method` have messages that lack their last byte."""

    def __init__(self, address, files, method):
        cert, key, ca = files
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
        context.set_alpn_protocols(['h2'])
        host, port = address.rsplit(':', 1)
        plain = socket.create_connection((host, int(port)), timeout=30)
        self.socket = context.wrap_socket(plain, server_hostname=host)
        self.method = method
        self.windows = {0: 65535}
        self.first_window = 65535
        self.frame_bytes = 16384
        self.refused = {}
        self.closed = False
        self.buffer = b''
        self.next_stream = 1
        self.left = {}
        self.socket.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + self.frame(SETTINGS, 0, 0, b''))

    @staticmethod
    def frame(kind, flags, stream, body):
        front = struct.pack('>I', len(body))[1:] + bytes([kind, flags])
        return front + struct.pack('>I', stream) + body

    def begin(self, size):
        """A call with a message of so many bytes."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        headers = b''.join(literal(*one) for one in (
            (':method', 'POST'), (':scheme', 'https'), (':path', self.method),
            (':authority', 'cluster'), ('te', 'trailers'), ('content-type', 'application/grpc')))
        self.windows[stream] = self.first_window
        self.left[stream] = struct.pack('>BI', 0, size), size - 1
        self.socket.sendall(self.frame(HEADERS, END_HEADERS, stream, headers))

    def pump(self, seconds=20.0):
        """Until all calls are refused or all is sent that they may have, or nothing has come for so
        long."""
        self.socket.settimeout(seconds)
        self.send()
        while not self.closed and any(len(front) + rest for front, rest in self.left.values()):
            try:
                got = self.socket.recv(65536)
            except TimeoutError:
                return
            except OSError:
                got = b''
            self.closed = not got
            self.buffer += got
            self.take()
            self.send()

    def write(self, frame):
        try:
            self.socket.sendall(frame)
        except OSError:
            self.closed = True

    def send(self):
        for stream, (front, rest) in list(self.left.items()):
            while len(front) + rest > 0:
                room = min(self.windows[stream], self.windows[0], self.frame_bytes)
                if room <= 0:
                    break
                body = front[:room]
                front = front[len(body):]
                more = min(room - len(body), rest)
                body += bytes(more)
                rest -= more
                self.windows[stream] -= len(body)
                self.windows[0] -= len(body)
                self.write(self.frame(DATA, 0, stream, body))
            self.left[stream] = front, rest

    def take(self):
        while len(self.buffer) >= 9:
            size = int.from_bytes(self.buffer[:3], 'big')
            if len(self.buffer) < 9 + size:
                return
            kind, flags = self.buffer[3], self.buffer[4]
            stream = int.from_bytes(self.buffer[5:9], 'big') & 0x7fffffff
            body, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
            if kind == WINDOW:
                self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(body, 'big')
            elif kind == SETTINGS and not flags & ACK:
                for at in range(0, size, 6):
                    key, value = struct.unpack('>HI', body[at:at + 6])
                    if key == 4:
                        for known in self.windows:
                            if known:
                                self.windows[known] += value - self.first_window
                        self.first_window = value
                    if key == 5:
                        self.frame_bytes = value
                self.write(self.frame(SETTINGS, ACK, 0, b''))
            elif kind == PING and not flags & ACK:
                self.write(self.frame(PING, ACK, 0, body))
            elif kind in (RESET, HEADERS):
                self.refused[stream] = body
                self.left.pop(stream, None)
            elif kind == GOAWAY:
                self.refused[0] = body

    def close(self):
        self.socket.close()
