#!/usr/bin/env python3
"""The cluster's web page: who may see it, its documents, their stream, and it in a browser.

    page_test.py BUILD

The browser is Debian's chromium, or FLYT_CHROMIUM; what needs it is skipped where there is none.
FLYT_SCREENSHOT=FILE keeps a picture.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402
from authority import Authority  # noqa: E402
from cluster_process import GROUP, QUICK, Cluster, main  # noqa: E402
from cluster_process import ClusterTest as Base  # noqa: E402
from daemon_process import free_port  # noqa: E402

STREAMS_MAX = 32
TOKEN = 'a-token-of-24-characters'
INJECTION = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'


# What each report of a node brings anew, every second.
REPORTED = ('reported_at_ms', 'measured_microseconds', 'busy_microseconds', 'queued_microseconds',
            'launches')


def steady(document):
    """The same with the values gone that change all the time; that they are there is kept."""
    if isinstance(document, list):
        return [steady(one) for one in document]
    if isinstance(document, dict):
        return {key: None if key in REPORTED else steady(one) for key, one in document.items()}
    return document


class Stream:
    """A stream of events: the last document of each name."""

    def __init__(self, connection):
        self.connection = connection
        connection.request('GET', '/api/v1/watch')
        self.answer = connection.getresponse()
        self.seen = []
        self.last = {}

    def take(self):
        """The name of the next event; None at the end."""
        name = None
        while line := self.answer.readline():
            word, _, rest = line.decode().rstrip('\n').partition(': ')
            if word == 'event':
                name = rest
            elif word == 'data' and rest:
                self.last[name] = json.loads(rest)
            elif not word and name:
                self.seen.append(name)
                return name
        return None

    def until(self, name, right=lambda document: True):
        while (taken := self.take()) is not None:
            if taken == name and right(self.last[name]):
                return self.last[name]
        raise AssertionError(f'the stream ended: {self.seen}')

    def close(self):
        # An answer that ends with its connection has that.
        self.answer.close()
        self.connection.close()


class Served(unittest.TestCase):
    """A cluster that serves its page."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix='flyt-page-')
        cls.authority = Authority(Base.build, cls.folder)
        cls.ca = cls.authority.folder
        for name, role in (('cluster', 'admin'), ('eve', 'viewer'), ('oscar', 'operator'),
                           ('anna', 'admin'), ('left', 'viewer'), ('vm-a', 'vm'), ('n1', 'node')):
            cls.authority.issue(name, role, '127.0.0.1')
        cls.authority.revoke('left')
        cls.port = free_port()
        cls.metrics, node_metrics = free_port(), free_port()
        with open(f'{cls.folder}/token', 'w', encoding='utf-8') as file:
            file.write(TOKEN + '\n')
        token = f'token = "{cls.folder}/token"\n'
        cls.cluster = Cluster(
            Base.build, ('n1', 'n2'), 1,
            QUICK + cls.authority.section('api', 'cluster', f'crl = "{cls.ca}/crl.pem"\n') +
            f'[page]\nlisten = "127.0.0.1:{cls.port}"\n'
            f'[metrics]\nlisten = "127.0.0.1:{cls.metrics}"\n{token}')
        cls.node_metrics = node_metrics
        with open(cls.cluster.nodes['n1'].config, 'a', encoding='utf-8') as file:
            file.write(f'[metrics]\nlisten = "127.0.0.1:{node_metrics}"\n{token}')
        try:
            cls.cluster.start_all()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.cluster.remove()
        shutil.rmtree(cls.folder)

    def tearDown(self):
        for vm in self.cluster.list('vms'):
            self.cluster.ctl('vm', 'rm', vm['spec']['name'], '--force')
        self.cluster.settle()

    def context(self, who):
        cert, key, ca = self.authority.files(who)
        return browser.tls(cert if who else '', key if who else '', ca)

    def connect(self, who):
        connection = http.client.HTTPSConnection('127.0.0.1', self.port, timeout=120,
                                                 context=self.context(who))
        self.addCleanup(connection.close)
        return connection

    def ask(self, who, path):
        connection = self.connect(who)
        connection.request('GET', path)
        answer = connection.getresponse()
        return answer, answer.read().decode()

    def watch(self, who='eve'):
        stream = Stream(self.connect(who))
        self.addCleanup(stream.close)
        return stream


class Page(Served):
    def test_people_see_the_page_and_machines_and_strangers_do_not(self):
        for who in ('eve', 'oscar', 'anna'):
            answer, text = self.ask(who, '/')
            self.assertEqual(answer.status, 200)
            self.assertIn('<title>Flyt cluster</title>', text)
            self.assertIn("default-src 'none'", answer.headers['Content-Security-Policy'])
        for who in ('vm-a', 'n1', 'left', None):
            for path in ('/', '/metrics', '/readyz', '/healthz', '/api/v1/vms', '/api/v1/watch'):
                with self.assertRaises((OSError, http.client.HTTPException), msg=f'{who} {path}'):
                    self.ask(who, path)
        self.assertIn('vm-a has the role vm; this needs viewer', self.cluster.log())
        self.assertIn('the certificate of left was revoked', self.cluster.log())

    def test_certificates_of_others_and_no_tls_get_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Authority(Base.build, folder)
            other.issue('eve', 'viewer')
            context = browser.tls(*other.files('eve')[:2], f'{self.ca}/ca.crt')
            connection = http.client.HTTPSConnection('127.0.0.1', self.port, timeout=120,
                                                     context=context)
            with self.assertRaises((OSError, http.client.HTTPException)):
                connection.request('GET', '/')
                connection.getresponse()
            connection.close()
        with socket.create_connection(('127.0.0.1', self.port), timeout=120) as plain:
            plain.sendall(b'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')
            self.assertNotIn(b'HTTP/1.1', plain.recv(1000))

    def test_documents_are_what_flytctl_tells(self):
        self.cluster.add_vm('a')
        self.cluster.want('a')
        for name in ('vms', 'nodes', 'leases'):
            # A node may report something new in between; on a slow machine each is some seconds.
            self.cluster.wait_for(
                lambda: steady(json.loads(self.ask('eve', f'/api/v1/{name}')[1])) ==
                steady(self.cluster.ask(name)), 120)
        cluster = json.loads(self.ask('eve', '/api/v1/cluster')[1])
        self.assertEqual((cluster['caller'], cluster['role']), ('eve', 'viewer'))
        self.cluster.wait_for(lambda: json.loads(self.ask('eve', '/api/v1/explain?vm=a')[1]) ==
                              self.cluster.ask('explain', 'a'), 120)
        self.assertEqual(self.ask('eve', '/api/v1/explain?vm=b')[0].status, 404)
        for path in ('/api/v1/audit', '/api/v1/', '/api', '/page', '/../etc/passwd', '/page.js/'):
            self.assertEqual(self.ask('anna', path)[0].status, 404)

    def test_the_stream_tells_all_and_then_what_changes(self):
        stream = self.watch()
        self.assertEqual(stream.answer.headers['Content-Type'], 'text/event-stream')
        stream.until('events')
        self.assertEqual(stream.seen[:7], ['cluster', 'health', 'nodes', 'leases', 'vms', 'queue',
                                           'events'])
        self.cluster.add_vm('a')
        stream.until('vms', lambda all: len(all['vms']) == 1)
        self.cluster.want('a')
        stream.until('leases', lambda all: [one['state'] for one in all['leases']] == ['ready'])

    def test_the_stream_ends_for_who_is_revoked(self):
        self.authority.issue('late', 'viewer')
        stream = self.watch('late')
        stream.until('events')
        self.authority.revoke('late')
        while stream.take() is not None:
            pass

    def test_streams_are_so_many_and_no_more(self):
        streams = [self.watch() for _ in range(STREAMS_MAX)]
        for stream in streams:
            stream.until('cluster')
        answer, text = self.ask('eve', '/api/v1/watch')
        self.assertEqual((answer.status, text), (503, 'too many watch already\n'))
        self.assertEqual(self.ask('eve', '/')[0].status, 200)
        for stream in streams:
            stream.close()

        def room():
            stream = self.watch()
            status = stream.answer.status
            stream.close()
            return status == 200
        self.cluster.wait_for(room)

    def test_connections_that_say_nothing_hold_nobody_up_for_long(self):
        silent = [socket.create_connection(('127.0.0.1', self.port), timeout=120)
                  for _ in range(60)]
        self.assertEqual(self.ask('eve', '/')[0].status, 200)
        self.cluster.add_vm('a')
        for connection in silent:
            connection.close()

    def plain(self, path, port=None, token=None):
        request = urllib.request.Request(f'http://127.0.0.1:{port or self.metrics}{path}')
        if token is not None:
            request.add_header('Authorization', f'Bearer {token}')
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_in_the_clear_a_token_admits_to_metrics_and_nothing_to_the_page(self):
        self.assertEqual(self.plain('/healthz'), (200, 'ok\n'))
        for port in (self.metrics, self.node_metrics):
            for token in (None, '', 'x', TOKEN[:-1], TOKEN + 'x'):
                status, text = self.plain('/metrics', port, token)
                self.assertEqual(status, 401)
                self.assertIn('metrics.token', text)
            self.assertEqual(self.plain('/metrics', port, TOKEN)[0], 200)
        self.assertEqual(self.plain('/readyz')[0], 401)
        self.assertEqual(self.plain('/readyz', token=TOKEN), (200, 'ok\n'))
        for path in ('/', '/api/v1/vms', '/api/v1/watch'):
            self.assertEqual(self.plain(path)[0], 401)
            self.assertEqual(self.plain(path, token=TOKEN)[0], 404)

    def test_the_examples_of_alerts_and_dashboards_ask_for_what_there_is(self):
        exported = set()
        for port in (self.metrics, self.node_metrics):
            exported |= set(re.findall(r'^# TYPE (\w+) ', self.plain('/metrics', port, TOKEN)[1],
                                       re.M))
        self.assertGreater(len(exported), 40)
        folder = os.path.join(os.path.dirname(__file__), '..', '..', 'packaging', 'monitoring')
        with open(f'{folder}/grafana-dashboard.json', encoding='utf-8') as file:
            asked = [target['expr'] for panel in json.load(file)['panels']
                     for target in panel['targets']]
        with open(f'{folder}/prometheus-rules.yml', encoding='utf-8') as file:
            asked += re.findall(r'^ +expr: (.*)$', file.read(), re.M)
        self.assertGreater(len(asked), 25)
        for expression in asked:
            names = re.findall(r'\bflyt_\w+', expression) or re.findall(r'^up\b', expression)
            self.assertTrue(names, expression)
            self.assertLessEqual(set(names) - {'up'}, exported, expression)

    def test_the_page_serves_metrics_to_certificates(self):
        answer, text = self.ask('eve', '/metrics')
        self.assertEqual(answer.status, 200)
        self.assertIn('flyt_cluster_node_up{node="n1"} 1\n', text)
        self.assertEqual(self.ask('eve', '/readyz')[1], 'ok\n')


@unittest.skipIf(browser.CHROMIUM is None, 'there is no chromium: apt-get install chromium')
class Browsed(Served):
    """The page in a browser, and what it may ask and say."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            context = browser.tls(*cls.authority.files('eve'))
            cls.relay = browser.Relay(('127.0.0.1', cls.port), context)
            cls.browser = browser.Browser()
        except BaseException:
            super().tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.relay.close()
        super().tearDownClass()

    def setUp(self):
        page = self.browser
        page.urls.clear()
        page.errors.clear()
        page.open(self.relay.origin + '/')
        page.wait('document.readyState === "complete" && document.body.dataset.live === "yes" &&'
                  ' document.querySelectorAll(".node").length === 2')

    def tearDown(self):
        super().tearDown()
        self.check_browser()

    def check_browser(self):
        self.assertEqual(self.browser.errors, [])
        self.assertEqual([url for url in self.browser.urls
                          if not url.startswith((self.relay.origin + '/', 'data:'))], [])

    def rows(self, body):
        return self.browser.evaluate(f'[...document.querySelectorAll("#{body} tr")]'
                                     '.map((row) => row.innerText)')


class ManyVms(Browsed):
    """More than the page shows."""

    MANY = 1100

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = f'{cls.folder}/vms.json'
        with open(path, 'w', encoding='utf-8') as file:
            json.dump([{'name': f'vm{10000 + i}', 'sms': GROUP, 'memory_bytes': 256 << 20,
                        'labels': {'place': f'<{i}>'}} for i in range(cls.MANY)], file)
        cls.cluster.ctl('vm', 'import', path)

    def tearDown(self):
        self.check_browser()

    def filter(self, text):
        self.browser.evaluate(f'document.querySelector("#filter").value = {json.dumps(text)};'
                              'document.querySelector("#filter").dispatchEvent(new Event("input"))')

    def test_a_list_that_is_cut_says_so_and_is_searched_whole(self):
        page = self.browser
        cut = 'document.querySelector("#vms-cut")'
        count = 'document.querySelectorAll("#vm-rows tr").length'
        page.wait(f'{count} === 1000 && !{cut}.hidden &&'
                  f' {cut}.innerText.startsWith("The first 1000 of {self.MANY}.")')
        self.assertTrue(page.evaluate('document.querySelector("#nodes-cut").hidden'))
        # One that was not sent, by its name and by what it is labelled with.
        for text in ('VM11099', '<1099>'):
            self.filter(text)
            page.wait(f'{count} === 1 && {cut}.innerText.startsWith("1 found, of {self.MANY};") &&'
                      ' document.querySelector("#vm-rows").innerText.startsWith("vm11099")')
            self.filter('nobody is called so')
            page.wait(f'{count} === 0')
        # What changes meanwhile is found as well.
        self.filter('vm11098')
        page.wait(f'{count} === 1')
        self.cluster.ctl('vm', 'set', 'vm11098', '--memory', '640M')
        page.wait('document.querySelector("#vm-rows").innerText.includes("640 MiB")')
        self.filter('')
        page.wait(f'{count} === 1000 && {cut}.innerText.startsWith("The first 1000 of")')


class InABrowser(Browsed):
    def test_it_shows_nodes_gpus_vms_and_events_and_who_one_is(self):
        page = self.browser
        self.cluster.add_vm('train', GROUP, '512M')
        self.cluster.want('train')
        page.wait('document.querySelector("#vm-rows")?.innerText.startsWith("train") &&'
                  ' document.querySelector("#vm-rows").innerText.includes("ready")')
        self.assertRegex(self.rows('vm-rows')[0], r'(?s)train.*ready.*n[12], GPU 0.*512 MiB')
        maps = page.evaluate('[...document.querySelectorAll(".map")]'
                             '.map((map) => map.getAttribute("aria-label"))')
        self.assertIn('4 groups of multiprocessors: train 1, free 3', maps)
        self.assertIn('4 groups of multiprocessors: free 4', maps)
        coloured = 'document.querySelectorAll(".map [class^=lease-]").length'
        self.assertEqual(page.evaluate(coloured), 1)
        self.assertIn('You are eve, viewer.', page.evaluate('document.body.innerText'))
        self.assertTrue(any('gpu-ready' in row for row in self.rows('event-rows')))

    def test_it_tells_of_a_last_group_of_another_size(self):
        gpu = self.cluster.list('nodes')[0]['description']['gpus'][0]
        told = ('((figure) => [figure.textContent, figure.querySelector(".map").ariaLabel])'
                '(gpuFigure(%s, []))')
        text, label = self.browser.evaluate(told % json.dumps(gpu))
        self.assertNotIn('the last of', text + label)
        gpu['groups'][-1]['sms'] = GROUP + 4
        text, label = self.browser.evaluate(told % json.dumps(gpu))
        self.assertIn(f'groups: the last of {GROUP + 4}, the others of {GROUP}', text)
        self.assertIn(f'4 groups of multiprocessors, the last of {GROUP + 4}, '
                      f'the others of {GROUP}: free 4', label)

    def test_it_follows_what_happens_without_being_asked_again(self):
        page = self.browser
        page.evaluate('window.same = true')
        for vm in ('a', 'b', 'c', 'd', 'late'):
            self.cluster.add_vm(vm, GROUP, '512M')
            self.cluster.speak('request', vm)
        page.wait('document.querySelector("#queue-rows").innerText.includes("late")')
        page.wait('document.querySelectorAll(".map [class^=lease-]").length === 4')
        self.cluster.ctl('vm', 'rm', 'a', '--force')
        page.wait('document.querySelectorAll("#queue-rows tr").length === 0')
        self.cluster.ctl('cordon', 'n1')
        page.wait('document.querySelector(".node").innerText.includes("cordoned")')
        self.cluster.ctl('uncordon', 'n1')
        page.wait('document.querySelector(".node").innerText.includes("ready")')
        self.assertTrue(page.evaluate('window.same'))

    def test_what_a_tenant_writes_is_text(self):
        page = self.browser
        self.cluster.add_vm('evil', GROUP, '512M', '--label', 'k=' + INJECTION, '--host', INJECTION)
        page.wait('document.querySelector("#vm-rows")?.innerText.includes("onerror")')
        self.cluster.want('evil')
        page.wait('document.querySelector("#vm-rows").innerText.includes("ready")')
        self.assertIn('k=' + INJECTION, self.rows('vm-rows')[0])
        self.assertEqual(page.evaluate('document.querySelectorAll("img").length'), 0)
        self.assertEqual(page.evaluate('document.querySelectorAll("script").length'), 1)
        self.assertEqual(page.evaluate('typeof window.hacked'), 'undefined')

    def test_the_keyboard_asks_why(self):
        page = self.browser
        self.cluster.add_vm('curious')
        # What was made for another test may still be told at first.
        page.wait('document.querySelector("#vm-rows")?.innerText.startsWith("curious") &&'
                  ' document.querySelectorAll("#vm-rows button").length === 1')
        page.evaluate('document.querySelector("#vm-rows button").focus()')
        page.press('Enter', 13)
        page.wait('document.querySelector("#why").open &&'
                  ' document.querySelector("#why-lines").innerText.includes("asks for none")')
        page.press('Escape', 27)
        page.wait('!document.querySelector("#why").open')
        # A change elsewhere in the row leaves the focus where it is.
        self.cluster.add_vm('curious', GROUP, '640M')
        page.wait('document.querySelector("#vm-rows").innerText.includes("640 MiB")')
        self.assertEqual(page.evaluate('document.activeElement.textContent'), 'why')

    def test_a_filter_shows_what_is_looked_for(self):
        page = self.browser
        for vm in ('red', 'green'):
            self.cluster.add_vm(vm)
        page.wait('document.querySelectorAll("#vm-rows tr").length === 2')
        page.evaluate('document.querySelector("#filter").focus()')
        page.call('Input.insertText', text='red')
        page.wait('document.querySelectorAll("#vm-rows tr").length === 1')
        self.assertEqual(page.evaluate('document.querySelectorAll(".node").length'), 0)
        page.evaluate('document.querySelector("#filter").value = "";'
                      'document.querySelector("#filter").dispatchEvent(new Event("input"))')
        page.wait('document.querySelectorAll(".node").length === 2')

    def test_it_is_readable_in_the_dark_and_in_the_light(self):
        page = self.browser
        self.cluster.add_vm('train', GROUP, '512M', '--label', 'team=vision')
        self.cluster.want('train')
        page.wait('document.querySelector("#vm-rows")?.innerText.includes("ready")')
        backs = []
        for theme in ('light', 'dark'):
            page.theme(theme)
            backs.append(page.evaluate('getComputedStyle(document.body).backgroundColor'))
            self.assertEqual(page.evaluate(CONTRASTS), [])
        self.assertNotEqual(*backs)

    def test_it_says_when_the_manager_is_gone_and_goes_on_when_it_is_back(self):
        page = self.browser
        self.cluster.stop(signal.SIGKILL)
        page.wait('document.body.dataset.live === "no" &&'
                  ' document.querySelector("#live").innerText.includes("not connected")')
        self.cluster.start()
        page.wait('document.body.dataset.live === "yes"')
        page.errors.clear()

    @unittest.skipUnless(os.environ.get('FLYT_SCREENSHOT'), 'FLYT_SCREENSHOT names no file')
    def test_a_picture(self):
        page = self.browser
        page.theme(os.environ.get('FLYT_THEME', 'light'))
        for vm, groups, memory, team in (
                ('train', 2, '512M', 'vision'), ('serve', 1, '256M', 'search'),
                ('notebook', 1, '128M', 'research'), ('render', 2, '512M', 'media'),
                ('batch', 3, '896M', 'search')):
            self.cluster.add_vm(vm, groups * GROUP, memory, '--label', f'team={team}')
            self.cluster.speak('request', vm)
        holders = [self.cluster.hold('train', 300), self.cluster.hold('render', 100)]
        page.wait('document.querySelectorAll("#queue-rows tr").length === 1')
        page.wait('document.querySelectorAll(".map [class^=lease-]").length === 6')
        page.wait('document.querySelector("#vm-rows").innerText.match(/300 MiB/) &&'
                  ' document.querySelector("#vm-rows").innerText.match(/100 MiB/)')
        self.assertEqual(len(holders), 2)
        page.screenshot(os.environ['FLYT_SCREENSHOT'])


# Texts whose contrast with what is behind them is less than 4.5, as WCAG counts it.
CONTRASTS = '''(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((part) => {
      part /= 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const back = getComputedStyle(at).backgroundColor;
      if ((parts(back)[3] ?? 1) === 1) return back;
    }
    return 'rgb(255, 255, 255)';
  };
  const bad = [];
  for (const element of document.querySelectorAll('body *')) {
    if (!element.offsetParent) continue;
    const texts = [...element.childNodes].filter((node) => node.nodeType === 3);
    if (!texts.some((node) => node.data.trim())) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(element.outerHTML.slice(0, 100) + ' ' + ratio.toFixed(2));
  }
  return bad;
})()'''

if __name__ == '__main__':
    main(__name__)
