"""What gpu_bench.py has measured, as a table for people (markdown) and as JSON for programs."""

import statistics

# (figure, what it is, unit, factor from the measured value, digits); rates are given in bytes.
TIMES = [
    ('post_cpu_ns', 'posted launch, processor time of the client', 'ns', 1, 0),
    ('post_ns', 'posted launch, time of the call', 'ns', 1, 0),
    ('launch_sync_us', 'launch + synchronise', 'us', 1, 1),
    ('wait_us', 'waiting call (`cuMemGetInfo`)', 'us', 1, 1),
    ('item', '`a[0].item()`', 'us', 1, 1),
    ('small_op', '`b = b + 1` on 16 floats', 'us', 1, 2),
]
COPIES = [
    ('h2d_pinned_268435456_us', 'to device, pinned, 256 MiB'),
    ('d2h_pinned_268435456_us', 'to host, pinned, 256 MiB'),
    ('h2d_pageable_268435456_us', 'to device, pageable, 256 MiB'),
    ('d2h_pageable_268435456_us', 'to host, pageable, 256 MiB'),
]
WORK = [
    ('resnet_1', 'ResNet-50 fp32 inference, batch 1', 'ms', 1, 2),
    ('resnet_64', 'ResNet-50 fp32 inference, batch 64', 'ms', 1, 2),
    ('resnet_1_stream', 'the same, batch 1, one wait for 20', 'ms', 1, 2),
    ('resnet_64_stream', 'the same, batch 64, one wait for 20', 'ms', 1, 2),
    ('gpt2', 'GPT-2 small fp16 generate, 64 tokens', 'ms', 1, 1),
    ('train', 'ResNet-50 autocast training step, batch 64', 'ms', 1, 2),
    ('first_tensor', 'first CUDA tensor (server warm)', 'ms', 1, 0),
    ('first_inference', 'ResNet-50 to the GPU, first inference', 'ms', 1, 0),
]
BYTES = 256 << 20
# A round counts if its processor took at most so many times as long as the quietest of the run.
SLOW = 1.2
ROUNDS_MIN = 3


def median(values):
    return statistics.median(values) if values else None


def spread(values):
    """How far rounds lie apart: (largest - smallest) / median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle and len(values) > 1 else None


class Results:
    """Figures of rounds: {way: {figure: [value of each round]}}; `native` is one of the ways."""

    def __init__(self, ways):
        self.ways = list(ways)
        self.rounds = {way: {} for way in self.ways}
        # {way: {figure: [how long a fixed loop took, for each round]}}; only for some figures.
        self.processors = {way: {} for way in self.ways}
        self.waits = {}    # {way: {workload: what count_waits() says}}
        self.idle = {}     # {way: {'client': share of a core, 'server': the same}}
        self.checks = {}   # {workload: {way: what must be equal}}
        self.raw = {}      # {figure: [values]}
        self.troubles = []
        self.facts = {}    # of the machine and the versions

    def add(self, way, figures):
        for name, value in figures.items():
            if isinstance(value, (int, float)) and name not in ('done', 'processor'):
                self.rounds[way].setdefault(name, []).append(value)
                if 'processor' in figures:
                    self.processors[way].setdefault(name, []).append(figures['processor'])

    def add_raw(self, figures):
        for name, value in figures.items():
            self.raw.setdefault(name, []).append(value)

    def undisturbed(self, way, figure):
        """Figures of the rounds whose processor ran at its full speed; all if nobody looked."""
        values = self.rounds[way].get(figure, [])
        looked = self.processors[way].get(figure)
        if not looked:
            return values
        quietest = min(min(found) for figures in self.processors.values()
                       for found in figures.values())
        return [value for value, took in zip(values, looked) if took <= SLOW * quietest]

    def counted(self, way, figure):
        """Figures of the rounds that count: all of each way, if one had too few undisturbed."""
        enough = all(len(self.undisturbed(each, figure)) >= min(ROUNDS_MIN, len(found))
                     for each in self.ways if (found := self.rounds[each].get(figure, [])))
        return self.undisturbed(way, figure) if enough else self.rounds[way].get(figure, [])

    def disturbed(self):
        """{figure: {way: 'so many of all'}} of disturbed rounds, and whether they count all the
        same."""
        found = {}
        for way in self.ways:
            for figure, values in self.rounds[way].items():
                out = len(values) - len(self.undisturbed(way, figure))
                if out:
                    used = '' if len(self.counted(way, figure)) < len(values) else ', counted'
                    found.setdefault(figure, {})[way] = f'{out} of {len(values)}{used}'
        return found

    def median(self, way, figure):
        return median(self.counted(way, figure))

    def different(self):
        """Workloads whose results differ from native, and where."""
        found = []
        for workload, by_way in self.checks.items():
            found += [f'{workload} ({way})' for way, value in by_way.items()
                      if 'native' in by_way and value != by_way['native']]
        return found

    def compared(self):
        """Workloads that have run natively and some other way."""
        return [workload for workload, by_way in self.checks.items()
                if 'native' in by_way and len(by_way) > 1]

    def as_json(self):
        medians = {way: {name: self.median(way, name) for name in figures}
                   for way, figures in self.rounds.items()}
        return {'facts': self.facts, 'medians': medians, 'rounds': self.rounds,
                'processors': self.processors, 'disturbed': self.disturbed(),
                'waits': self.waits, 'idle': self.idle, 'checks': self.checks, 'raw': self.raw,
                'different': self.different(), 'troubles': self.troubles}


def cell(value, digits):
    return '-' if value is None else f'{value:.{digits}f}'


def ratio(a, b):
    return '-' if a is None or not b else f'{a / b:.2f}'


def markdown(rows):
    """A table whose first row is its head; columns of text are left as they are."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ['| ' + ' | '.join(text.ljust(width) for text, width in zip(row, widths)) + ' |'
             for row in rows]
    lines.insert(1, '|' + '|'.join('-' * (width + 2) for width in widths) + '|')
    return '\n'.join(lines) + '\n'


def figure_rows(results):
    remotes = results.ways[1:]
    head = ['what', 'native', 'noise']
    for way in remotes:
        head += [way, '/native']
    rows = [head]

    def add(label, figure, digits, convert):
        if not any(figure in results.rounds[way] for way in results.ways):
            return
        values = {way: results.median(way, figure) for way in results.ways}
        shown = {way: None if value is None else convert(value) for way, value in values.items()}
        noise = spread(results.counted('native', figure))
        row = [label, cell(shown['native'], digits), '-' if noise is None else f'{noise:.0%}']
        for way in remotes:
            row += [cell(shown[way], digits), ratio(shown[way], shown['native'])]
        rows.append(row)

    for figure, label, unit, factor, digits in TIMES + WORK:
        add(f'{label}, {unit}', figure, digits, lambda value, factor=factor: value * factor)
    for figure, label in COPIES:
        add(f'{label}, GB/s', figure, 2, lambda us: BYTES / us / 1000 if us else None)
    return rows


def wait_rows(results):
    ways = [way for way in results.ways if results.waits.get(way)]
    names = [figure for figure, *_ in TIMES + WORK
             if any(figure in results.waits[way] for way in ways)]
    rows = [['waits for one', *(f'{way}: own + ours' for way in ways), 'which']]
    for name in names:
        found = [results.waits[way].get(name) for way in ways]
        any_found = next(one for one in found if one)
        cells = [f'{one["own_waits"]:.3f} + {one["our_waits"]:.3f}' if one else '-'
                 for one in found]
        which = ', '.join(f'{call} {count:.3g}' for call, count in
                          list((found[-1] or any_found)['by_call'].items())[:4])
        rows.append([f'{any_found["unit"]} ({name})', *cells, which or 'none'])
    return rows


def idle_rows(results):
    rows = [['idle, share of one core', 'client', 'server']]
    for way, shares in results.idle.items():
        rows.append([way, *(f'{shares[side]:.2%}' if side in shares else '-'
                            for side in ('client', 'server'))])
    return rows


def raw_rows(results):
    rows = [['raw sockets of the same run', 'figure']]
    for name in sorted(results.raw):
        value = median(results.raw[name])
        kind, figure = name.split('_', 1)
        if figure == 'rtt_us':
            rows.append([f'{kind} round trip of 64 bytes, us', cell(value, 1)])
        else:
            count = figure.split('_')[1]
            rows.append([f'{kind}, 256 MiB over {count} connection{"s" * (count != "1")}, GB/s',
                         cell(BYTES / value / 1000 if value else None, 2)])
    return rows


def share_rows(results):
    """What copies have of the fastest sockets that are as far away."""
    rows = []
    for way in results.ways:
        streams = [median(values) for name, values in results.raw.items()
                   if name.startswith(f'{way}_streams_')]
        for figure, label in COPIES:
            copy = results.median(way, figure)
            if streams and copy:
                rows.append([f'{way}: {label}, of the fastest of these',
                             cell(min(streams) / copy, 2)])
    return rows


def report(results):
    facts = results.facts
    lines = [f'## {facts.get("gpu", "no GPU")}, {facts.get("date", "")}', '',
             f'{facts.get("machine", "")}, driver {facts.get("driver", "-")}; '
             f'Flyt {facts.get("flyt", "-")}; PyTorch {facts.get("torch", "-")}. '
             f'Client and server on one host; {facts.get("rounds", "?")} rounds, native and remote '
             'in turn, medians.', '',
             'Noise: how far the native rounds lay apart, (largest - smallest) / median; the host '
             'is shared or virtual, so that a ratio is no better than that.',
             '/native of times: remote / native; of GB/s: the share of the native rate.', '']
    for rows in (figure_rows(results), wait_rows(results), idle_rows(results),
                 raw_rows(results) + share_rows(results)):
        if len(rows) > 1:
            lines += [markdown(rows)]
    if results.disturbed():
        lines += [f'Rounds whose processor took more than {SLOW} times as long as the quietest for '
                  'a fixed loop do not count, where every way has three others. They were: ' +
                  '; '.join(f'{figure} ' + ', '.join(f'{way} {out}' for way, out in ways.items())
                            for figure, ways in results.disturbed().items()) + '.', '']
    if any('+' in way for way in results.ways):
        lines += ['`+TIME`: that much added to each direction.', '']
    if results.waits:
        lines += ['Waits: answers of the server that the client waited for, start-up not counted; '
                  'own (*): in calls that wait natively too.', '']
    if results.compared():
        different = results.different()
        lines += ['Results differ from native: ' + ', '.join(different) if different else
                  f'Results equal to native: {", ".join(results.compared())}.', '']
    lines += [f'- {trouble}' for trouble in results.troubles]
    return '\n'.join(lines).rstrip() + '\n'
