"""MongoDB's wire protocol, as far as tests need it: documents as bytes, a client that writes rows,
and a responder. The responder is no database: it answers hello, ping, find, getMore and endSessions
from a list of documents, so that a real client library can be used, cut off and lied to over a real
socket."""

import os
import socket
import struct
import threading

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
MESSAGE_BYTES_MAX = 48 << 20


class Oid(bytes):
    """An ObjectId."""


def encode_value(value):
    """Its kind, and its bytes."""
    if isinstance(value, Oid):
        return 7, bytes(value)
    if isinstance(value, bool):
        return 8, bytes([value])
    if isinstance(value, int):
        wide = abs(value) >= 1 << 31
        return (18, struct.pack('<q', value)) if wide else (16, struct.pack('<i', value))
    if isinstance(value, float):
        return 1, struct.pack('<d', value)
    if value is None:
        return 10, b''
    if isinstance(value, str):
        text = value.encode() + b'\0'
        return 2, struct.pack('<i', len(text)) + text
    if isinstance(value, list):
        return 4, encode({str(i): one for i, one in enumerate(value)})
    # Bytes are a document as it is, right or wrong.
    return 3, value if isinstance(value, bytes) else encode(value)


def encode(document):
    out = b''
    for key, value in document.items():
        kind, raw = encode_value(value)
        out += bytes([kind]) + key.encode() + b'\0' + raw
    return struct.pack('<i', len(out) + 5) + out + b'\0'


FIXED = {1: '<d', 8: '<?', 9: '<q', 16: '<i', 17: '<Q', 18: '<q'}


def decode_value(kind, data, at):
    """The value, and where the next one begins."""
    if kind in FIXED:
        return struct.unpack_from(FIXED[kind], data, at)[0], at + struct.calcsize(FIXED[kind])
    if kind == 7:
        return Oid(data[at:at + 12]), at + 12
    if kind in (10, 127, 255):
        return None, at
    length = struct.unpack_from('<i', data, at)[0]
    if kind == 2:
        return data[at + 4:at + 3 + length].decode(), at + 4 + length
    if kind == 5:
        return data[at + 5:at + 5 + length], at + 5 + length
    if kind not in (3, 4):
        raise ValueError(f'a value of kind {kind}')
    inner = decode(data[at:at + length])
    return (inner if kind == 3 else list(inner.values())), at + length


def decode(data):
    """The document at the front of `data`."""
    at, out = 4, {}
    while data[at] != 0:
        end = data.index(b'\0', at + 1)
        out[data[at + 1:end].decode()], at = decode_value(data[at], data, end + 1)
    return out


def receive_bytes(connection, size):
    out = b''
    while len(out) < size:
        more = connection.recv(size - len(out))
        if not more:
            raise OSError('the other end is gone')
        out += more
    return out


def receive(connection):
    """A message's number, kind and body."""
    size, number, _, kind = struct.unpack('<iiii', receive_bytes(connection, 16))
    if not 16 <= size <= MESSAGE_BYTES_MAX:
        raise ValueError(f'a message of {size} bytes')
    return number, kind, receive_bytes(connection, size - 16)


def message(number, answered, kind, body):
    return struct.pack('<iiii', 16 + len(body), number, answered, kind) + body


class Client:
    """Commands to a server without passwords: enough to write rows into a real one."""

    def __init__(self, host, port):
        self.connection = socket.create_connection((host, port), 30)

    def command(self, document):
        self.connection.sendall(message(1, 0, OP_MSG, b'\0\0\0\0\0' + encode(document)))
        answer = decode(receive(self.connection)[2][5:])
        if answer.get('ok') != 1:
            raise AssertionError(f'{document}: {answer}')
        return answer

    def close(self):
        self.connection.close()


class Responder:
    """`documents` are what find finds. `mode`: "right", or how it goes wrong. `port`: one that the
    system gives nobody while it is stopped."""

    BATCH = 3

    def __init__(self):
        self.documents = []
        self.mode = 'right'
        self.finds = 0
        self.batches = 0
        self.wrong = 0  # Answers that went wrong.
        self.asked = {}  # The last find.
        self.port = 0  # Any that is free, and the same ever after.
        self.listener = None
        self.connections = set()
        self.lock = threading.Lock()
        self.start()

    def start(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(('127.0.0.1', self.port))
        listener.listen(16)
        self.port = listener.getsockname()[1]
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def stop(self):
        """As if its process were killed."""
        with self.lock:
            listener, self.listener = self.listener, None
            ended, self.connections = self.connections, set()
        if listener is not None:
            self.end(listener)
        for connection in ended:
            self.end(connection)

    @staticmethod
    def end(connection):
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()

    def accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                known = self.listener is listener
                if known:
                    self.connections.add(connection)
            if not known:
                self.end(connection)
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        cursors = {}
        try:
            while self.answer(connection, cursors, *receive(connection)):
                pass
        except (OSError, ValueError, KeyError, struct.error):
            pass
        with self.lock:
            self.connections.discard(connection)
        self.end(connection)

    def answer(self, connection, cursors, number, kind, body):
        """Whether the connection goes on."""
        mode = self.mode
        if kind == OP_QUERY:
            name = body.index(b'\0', 4) + 1
            reply = encode(self.run(decode(body[name + 8:]), cursors, mode))
            raw = message(1, number, OP_REPLY, struct.pack('<iqii', 8, 0, 0, 1) + reply)
        elif kind == OP_MSG and body[4] == 0:
            reply = encode(self.run(decode(body[5:]), cursors, mode))
            raw = message(1, number, OP_MSG, b'\0\0\0\0\0' + reply)
        else:
            raise ValueError(f'a message of kind {kind}')
        wrong = mode not in ('right', 'cut later', 'refuse', 'no more', 'no cursor')
        if wrong or (mode == 'cut later' and cursors):
            self.wrong += 1
        if mode == 'silent':
            return True
        if mode == 'cut' or (mode == 'cut later' and cursors):
            connection.sendall(raw[:len(raw) // 2])
            return False
        if mode == 'garbage':
            raw = os.urandom(len(raw))
        elif mode in ('huge', 'short'):
            raw = struct.pack('<i', 0x7fffffff if mode == 'huge' else 17) + raw[4:]
        connection.sendall(raw)
        return True

    def run(self, command, cursors, mode):
        name = next(iter(command))
        if name.lower() in ('ismaster', 'hello'):
            return {'ismaster': True, 'isWritablePrimary': True, 'helloOk': True,
                    'maxBsonObjectSize': 16 << 20, 'maxMessageSizeBytes': 48000000,
                    'maxWriteBatchSize': 100000, 'minWireVersion': 0, 'maxWireVersion': 13,
                    'readOnly': False, 'ok': 1.0}
        if name == 'find':
            return self.find(command, cursors, mode)
        if name == 'getMore':
            return self.more(command['getMore'], cursors, mode)
        if name in ('ping', 'endSessions', 'killCursors'):
            return {'ok': 1.0}
        return {'ok': 0.0, 'errmsg': f'no such command: {name}', 'code': 59}

    def find(self, command, cursors, mode):
        self.finds += 1
        self.asked = command
        self.wrong += mode in ('refuse', 'no cursor')
        if mode == 'refuse':
            return {'ok': 0.0, 'errmsg': 'not authorized on flyt', 'code': 13,
                    'codeName': 'Unauthorized'}
        if mode == 'no cursor':
            return {'ok': 1.0}
        left = [{'_id': Oid(struct.pack('>QI', 7, i)), **one} if isinstance(one, dict) else one
                for i, one in enumerate(self.documents)]
        number = (1 << 40) + self.finds
        cursors[number] = left
        return self.batch('firstBatch', number, cursors)

    def more(self, number, cursors, mode):
        self.batches += 1
        if mode == 'no more':
            self.wrong += 1
            return {'ok': 0.0, 'errmsg': 'cursor id not found', 'code': 43}
        return self.batch('nextBatch', number, cursors)

    def batch(self, key, number, cursors):
        left = cursors.pop(number)
        if left[self.BATCH:]:
            cursors[number] = left[self.BATCH:]
        number = (number if number in cursors else 0)
        # An identifier has 64 bits, also where it is 0.
        encoded = encode({key: left[:self.BATCH], 'ns': 'd.c'})
        identifier = b'\x12id\0' + struct.pack('<q', number)
        size = struct.pack('<i', len(encoded) + len(identifier))
        return {'cursor': size + identifier + encoded[4:], 'ok': 1.0}
