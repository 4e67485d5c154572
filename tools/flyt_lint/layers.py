"""Who may include whom: the table of ARCHITECTURE.md."""

import re

# What a folder of src/ may name in an include, beside itself. A name is the first part of the
# include's path; `commands` is generated.
ALLOWED = {
    'base': set(),
    'cuda': {'base'},
    'trace': {'base'},
    'nvml': {'base'},
    'wire': {'base'},
    'transport': {'base'},
    'rpc': {'base', 'wire', 'transport'},
    'driver': {'base', 'cuda', 'nvml'},
    'softgpu': {'base', 'cuda'},
    'store': {'base', 'cuda', 'driver'},
    'client': {'base', 'cuda', 'nvml', 'trace', 'wire', 'transport', 'rpc', 'commands'},
    'server': {'base', 'cuda', 'nvml', 'wire', 'transport', 'rpc', 'driver', 'store', 'commands'},
    'control': {'base', 'nvml', 'trace', 'wire', 'transport', 'rpc', 'commands'},
}
NARROWER = {
    'control/cluster': {'base', 'control', 'transport'},
    'control/cli': {'base', 'control', 'nvml', 'trace', 'transport'},
    'control/node': {'base', 'control', 'nvml', 'transport'},
}
OURS = set(ALLOWED) | {'commands', 'bin', 'tests', 'bench'}

# Headers that a folder must not see although they are not ours.
FORBIDDEN = [
    (re.compile(r'src/'), re.compile(r'cuda\.h|cuda_runtime.*|cudaTypedefs\.h|nvml\.h'),
     'the build needs no CUDA toolkit; use "cuda/types.h"'),
    (re.compile(r'src/(?!control/)'), re.compile(r'grpc.*|google/protobuf.*|absl/.*'),
     'gRPC, protobuf and abseil belong to the control plane'),
    # gRPC's headers cost seconds for each file that sees them.
    (re.compile(r'src/control/(?!grpc/|(node|cluster)/api_thread\.cc|cli/node/node_client\.cc'
                r'|client/cluster_link\.cc|cluster/enrol_thread\.cc'
                r'|cluster_client/(cluster|enrol)_client\.cc'
                r'|etcd/etcd_client\.cc)'),
     re.compile(r'grpc.*|control/grpc/.*|control/\w+\.grpc\.pb\.h'),
     'gRPC is seen by control/grpc and by one file on each side'),
    (re.compile(r'src/control/(?!grpc/)'),
     re.compile(r'grpcpp/(grpcpp|create_channel|security/(server_)?credentials)\.h'),
     'channels and credentials are made in control/grpc'),
    (re.compile(r''), re.compile(r'httplib\.h'),
     'HTTP is served by control/daemon/pages_thread.cc, which bounds what it reads'),
    (re.compile(r'src/(?!control/cluster/requirements/mongodb\.cc)'),
     re.compile(r'mongoc/.*|bson/.*|mongoc\.h|bson\.h'),
     'MongoDB is asked by control/cluster/requirements/mongodb.cc'),
    (re.compile(r'src/wire/(?!.*_test\.cc)'),
     re.compile(r'base/clock\.h|base/random\.h|base/executor\.h'),
     'src/wire holds pure functions'),
    (re.compile(r''), re.compile(r'\.\./.*'), 'write includes from src/'),
]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def includes(text):
    """(offset, is_ours, path) of each include."""
    return [(m.start(), m.group(1) == '"', m.group(2)) for m in _INCLUDE.finditer(text)]


def _table_row(path):
    match = re.match(r'src/([^/]+)/(?:([^/]+)/)?', path)
    if not match or match.group(1) == 'bin':
        return None, None
    folder = match.group(1)
    narrower = f'{folder}/{match.group(2)}'
    if narrower in NARROWER:
        return narrower, NARROWER[narrower]
    return folder, ALLOWED.get(folder, set()) | {folder}


def check(source):
    """(line, message) for every include that the table does not allow."""
    folder, allowed = _table_row(source.path)
    for offset, quoted, target in includes(source.text):
        line = source.line_of(offset)
        for where, what, why in FORBIDDEN:
            if where.match(source.path) and what.fullmatch(target):
                yield line, f'{target} is not for {source.path}: {why}'
        top = target.split('/')[0]
        if allowed is None or '/' not in target or top not in OURS:
            continue
        if top not in allowed:
            yield line, f'src/{folder} must not include {target} (table in ARCHITECTURE.md)'
