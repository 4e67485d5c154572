// The cluster's page: shows the documents that /api/v1/watch sends, as they come. What a tenant
// wrote goes into the page as text only: there is no HTML made of strings here.
'use strict';

const COLOURS = 12;
const AGAIN_MS = 3000;
const SEARCH_MS = 300;
const shown = {cluster: {}, health: {}, nodes: [], vms: [], queue: [], leases: [], events: []};

const byId = (id) => document.getElementById(id);

// An element with attributes and children; texts become text.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Makes `parent` have one child for each item, in order; those that are there and whose item is as
// it was stay, with the focus that they may have.
function sync(parent, items, keyOf, build) {
  const known = new Map();
  for (const child of parent.children) known.set(child.dataset.key, child);
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const print = JSON.stringify(item);
    let child = known.get(key);
    known.delete(key);
    if (!child) {
      child = build(item, null);
    } else if (child.dataset.print !== print) {
      const next = build(item, child);
      if (child === place) place = next;
      if (next !== child) child.replaceWith(next);
      child = next;
    }
    child.dataset.key = key;
    child.dataset.print = print;
    if (child === place) {
      place = place.nextElementSibling;
    } else {
      parent.insertBefore(child, place);
    }
  }
  for (const child of known.values()) child.remove();
}

// A row whose cells are replaced one by one: a button that has the focus keeps it.
function row(old, cells) {
  const line = old || make('tr');
  cells.forEach((cell, index) => {
    const there = line.children[index];
    if (!there) {
      line.append(cell);
    } else if (!there.isEqualNode(cell)) {
      there.replaceWith(cell);
    }
  });
  return line;
}

const cell = (...children) => make('td', null, ...children);
const number = (value) => make('td', {class: 'number'}, String(value));

function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return (Number.isInteger(value) ? value : value.toFixed(1)) + ' ' + units[unit];
}

function timeOf(ms) {
  const at = new Date(ms);
  return make('time', {datetime: at.toISOString()},
              at.toISOString().replace('T', ' ').slice(0, 19) + ' UTC');
}

function stateClass(state) {
  if (state === 'ready' || state === 'running') return 'state good';
  if (state === 'lost' || state === 'unknown') return 'state bad';
  return 'state warn';
}

// Parts of a whole as a bar; `text` says the same in words.
function bar(whole, parts, text) {
  const box = make('div', {class: 'bar', role: 'img', 'aria-label': text, title: text});
  for (const [kind, part] of parts) {
    const piece = make('span', {class: kind});
    piece.style.width = (whole > 0 ? Math.min(100, 100 * part / whole) : 0) + '%';
    box.append(piece);
  }
  return box;
}

// What a GPU gives out: it may be more than it has.
const smsOf = (gpu) => Math.floor(gpu.sms * (gpu.sm_percent || 100) / 100);

// Colours by what the lease is called, so that one keeps its own while others come and go; letters
// by place, as flytctl has them. Those that have all their groups together with others come last.
function looksOf(gpu, leases) {
  const seen = gpu.groups.map((group) => group.lease_id).filter((id) => id);
  const places = [...new Set([...seen, ...leases.map((one) => one.lease.id)])];
  const looks = new Map(places.map((id) => [id, null]));
  const taken = new Set();
  for (const id of [...places].sort()) {
    let hash = 0;
    for (const letter of id) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
    let colour = hash % COLOURS;
    for (let i = 0; i < COLOURS && taken.has(colour); ++i) colour = (colour + 1) % COLOURS;
    taken.add(colour);
    const at = places.indexOf(id);
    const lease = leases.find((one) => one.lease.id === id);
    looks.set(id, {
      colour: 'lease-' + colour,
      letter: at < 26 ? String.fromCharCode(65 + at) : '#',
      name: lease ? nameOf(lease) : 'a lease',
      groups: lease ? lease.lease.groups.length : seen.filter((one) => one === id).length,
    });
  }
  return looks;
}

function mapCell(group, looks) {
  const sms = ', ' + group.sms + ' SMs';
  if (group.leases > 1) {
    return make('span', {class: 'shared', title: group.leases + ' leases' + sms}, '*');
  }
  const look = looks.get(group.lease_id);
  if (!look) return make('span', {class: 'free', title: 'free' + sms}, '·');
  return make('span', {class: look.colour, title: look.name + sms}, look.letter);
}

// Of a GPU whose groups are not of one size.
function lastGroup(gpu) {
  const first = gpu.groups[0];
  const last = gpu.groups[gpu.groups.length - 1];
  if (!last || first.sms === last.sms) return '';
  return 'the last of ' + last.sms + ', the others of ' + first.sms;
}

function mapOf(gpu, looks) {
  const told = [...looks.values()].map((look) => look.name + ' ' + look.groups);
  const shared = gpu.groups.filter((group) => group.leases > 1).length;
  if (shared) told.push('shared ' + shared);
  told.push('free ' + gpu.groups.filter((group) => !group.lease_id).length);
  const last = lastGroup(gpu);
  const label = gpu.groups.length + ' groups of multiprocessors' + (last ? ', ' + last : '') + ': ' +
      told.join(', ');
  return make('div', {class: 'map', role: 'img', 'aria-label': label},
              ...gpu.groups.map((group) => mapCell(group, looks)));
}

function nameOf(lease) {
  return lease.vm || lease.lease.name + ' (foreign)';
}

function gpuFigure(gpu, all) {
  const mine = all.filter((one) => one.lease.gpu === gpu.index && one.lease.id);
  const looks = looksOf(gpu, mine);
  const places = [...looks.keys()];
  mine.sort((a, b) => places.indexOf(a.lease.id) - places.indexOf(b.lease.id));
  const parts = mine.map((one) => [looks.get(one.lease.id).colour, one.lease.memory_bytes]);
  const rest = gpu.memory_leased_bytes - parts.reduce((sum, part) => sum + part[1], 0);
  if (rest > 0) parts.push(['used', rest]);
  parts.push(['held', gpu.memory_overhead_bytes]);
  const memory = 'memory: ' + size(gpu.memory_leased_bytes) + ' leased, ' +
      size(gpu.memory_overhead_bytes) + ' kept back, of ' + size(gpu.memory_bytes);
  const rows = mine.map((one) => {
    const look = looks.get(one.lease.id);
    return make('tr', null,
                cell(make('span', {class: 'key ' + look.colour}, look.letter)),
                make('th', {scope: 'row'}, nameOf(one)), cell(one.lease.sms_granted + ' SMs'),
                cell(size(one.lease.memory_used_bytes) + ' of ' + size(one.lease.memory_bytes)),
                cell(one.lease.sessions + ' sessions'));
  });
  return make('figure', {class: 'gpu'},
              make('figcaption', null, 'GPU ' + gpu.index + ': ' + gpu.name + ', ' + gpu.mode +
                       (gpu.mps ? ', MPS ' + gpu.mps : '') + ', ' + gpu.sms_free + ' of ' +
                       smsOf(gpu) + ' SMs free'),
              mapOf(gpu, looks),
              ...(lastGroup(gpu) ? [make('p', {class: 'facts'}, 'groups: ' + lastGroup(gpu))] : []),
              bar(gpu.memory_bytes, parts, memory),
              make('p', {class: 'facts'}, memory),
              ...(rows.length ? [make('table', null, make('tbody', null, ...rows))] : []));
}

function nodeArticle(item) {
  const node = item.node;
  const said = node.description;
  const facts = [
    'host ' + node.host,
    said.server ? 'driver ' + said.server : '',
    said.version ? 'version ' + said.version : '',
    node.leases + ' leases',
  ];
  return make('article', {class: 'node'},
              make('h3', null, node.name + ' ',
                   make('span', {class: stateClass(node.state)}, node.state)),
              make('p', {class: 'facts'}, facts.filter((fact) => fact).join(', ') +
                       (node.reason ? ': ' + node.reason : '')),
              ...said.gpus.map((gpu) => gpuFigure(gpu, item.leases)));
}

function whyButton(vm) {
  const button = make('button', {type: 'button', 'aria-label': 'Why: ' + vm}, 'why');
  button.addEventListener('click', () => explain(vm));
  return button;
}

async function explain(vm) {
  byId('why-title').textContent = vm;
  byId('why-lines').replaceChildren(make('li', null, 'asking'));
  byId('why').showModal();
  let lines;
  try {
    const answer = await fetch('/api/v1/explain?vm=' + encodeURIComponent(vm));
    lines = answer.ok ? (await answer.json()).lines : [await answer.text()];
  } catch (error) {
    lines = ['The manager does not answer: ' + error.message];
  }
  byId('why-lines').replaceChildren(...lines.map((line) => make('li', null, line)));
}

function wishOf(spec) {
  const range = spec.sms_max ? ', ' + spec.sms_min + ' to ' + spec.sms_max + ' by use' : '';
  return spec.sms + ' SMs' + range + ', ' + size(spec.memory_bytes);
}

function vmRow(vm, old) {
  const gpu = vm.gpu;
  const has = gpu.phase === 'ready' || gpu.phase === 'starting';
  const state = gpu.phase === 'waiting' ? 'waiting, ' + gpu.ahead + ' ahead' : gpu.phase;
  const memory = size(vm.memory_used_bytes) + ' of ' + size(gpu.memory_bytes);
  const labels = Object.entries(vm.spec.labels)
                     .map(([key, value]) => make('span', {class: 'label'}, key + '=' + value));
  // The button is a listener's: the cell is kept while its text is the same.
  return row(old, [
    make('th', {scope: 'row'}, vm.spec.name, whyButton(vm.spec.name)),
    cell(make('span', {class: gpu.phase === 'none' ? 'soft' : stateClass(gpu.phase)}, state),
         gpu.reason && gpu.phase !== 'waiting' ? ': ' + gpu.reason : ''),
    cell(has ? gpu.node + ', GPU ' + gpu.gpu : ''),
    number(has ? gpu.sms_granted || gpu.sms_asked : ''),
    has ? cell(bar(gpu.memory_bytes, [['used', vm.memory_used_bytes]], memory), memory) : cell(),
    number(vm.sessions),
    cell(wishOf(vm.spec)),
    cell(...labels),
  ]);
}

function queueRow(vm, old) {
  return row(old, [
    number(vm.gpu.ahead),
    make('th', {scope: 'row'}, vm.spec.name, whyButton(vm.spec.name)),
    cell(wishOf(vm.spec)),
    number(vm.spec.priority),
    cell(timeOf(vm.gpu.since_ms)),
    cell(vm.gpu.reason),
  ]);
}

function eventRow(event, old) {
  return row(old, [
    number(event.number), cell(timeOf(event.at_ms)),
    make('th', {scope: 'row'}, event.kind), cell(event.node), cell(event.vm), cell(event.text),
  ]);
}

// What somebody looks for, in any text of the item.
const sought = () => byId('filter').value.trim().toLowerCase();
function wanted(items) {
  const text = sought();
  return text ? items.filter((item) => JSON.stringify(item).toLowerCase().includes(text)) : items;
}

// Of lists that are longer than what is sent of them: what the manager found in all of it.
const totals = {nodes: 'nodes', vms: 'vms', queue: 'waiting'};
const found = {};
const searching = {};
const isCut = (name) => shown.cluster[totals[name]] > shown[name].length;

// What is to be shown of a list. Who looks for something in one that is cut asks for it, a moment
// after the last letter or change; until then what is here is searched.
function wantedOf(name, complete = (item) => item) {
  const text = sought();
  const here = wanted(shown[name].map(complete));
  if (!text || !isCut(name)) {
    delete found[name];
    return here;
  }
  if (!searching[name]) searching[name] = setTimeout(search, SEARCH_MS, name);
  const known = found[name];
  return known && known.text === text ? known.items.map(complete) : here;
}

async function search(name) {
  const text = sought();
  let items = null;
  try {
    const answer = text ? await fetch('/api/v1/' + name + '?match=' + encodeURIComponent(text)) : null;
    if (answer && answer.ok) items = (await answer.json())[name === 'nodes' ? 'nodes' : 'vms'];
  } catch (error) {
    // The line above says that the manager is away; what is here is shown.
  }
  const changed = items && JSON.stringify(found[name]) !== JSON.stringify({text, items});
  if (changed) found[name] = {text, items};
  // Until it is shown nobody asks again; what is shown as it was asks for nothing.
  if (changed) showers[name]();
  delete searching[name];
  if (text !== sought()) showers[name]();
}

function cut(name, rows) {
  const all = shown.cluster[totals[name]];
  byId(name + '-cut').hidden = !isCut(name);
  byId(name + '-cut').textContent = sought() ?
      rows + ' found, of ' + all + '; at most ' + shown[name].length + ' are shown.' :
      'The first ' + shown[name].length + ' of ' + all +
          '. "Show only" looks in all of them; flytctl lists them.';
}

function showNodes() {
  const of = new Map();
  for (const lease of shown.leases) {
    if (!of.has(lease.node)) of.set(lease.node, []);
    of.get(lease.node).push(lease);
  }
  // When it last reported changes all the time, and says nothing while it does.
  const items = wantedOf('nodes', (node) => (
    {node: {...node, reported_at_ms: 0}, leases: of.get(node.name) || []}));
  sync(byId('node-list'), items, (item) => item.node.name, nodeArticle);
  byId('nodes-none').hidden = shown.nodes.length !== 0;
  cut('nodes', items.length);
}

function showVms() {
  const items = wantedOf('vms');
  sync(byId('vm-rows'), items, (vm) => vm.spec.name, vmRow);
  byId('vms-none').hidden = shown.vms.length !== 0;
  cut('vms', items.length);
}

function showQueue() {
  const items = wantedOf('queue');
  sync(byId('queue-rows'), items, (vm) => vm.spec.name, queueRow);
  byId('queue-none').hidden = shown.queue.length !== 0;
  cut('queue', items.length);
}

const showers = {nodes: showNodes, vms: showVms, queue: showQueue};

// What is beyond the part that is sent changes without a word: it is looked for again.
function refreshFound() {
  for (const name of Object.keys(found)) showers[name]();
}

function showEvents() {
  sync(byId('event-rows'), wanted([...shown.events].reverse()), (event) => String(event.number),
       eventRow);
  byId('events-none').hidden = shown.events.length !== 0;
}

function showOverview() {
  const all = shown.cluster;
  const gpus = shown.nodes.flatMap((node) => node.description.gpus);
  const sum = (field) => gpus.reduce((total, gpu) => total + gpu[field], 0);
  const sms = gpus.reduce((total, gpu) => total + smsOf(gpu), 0);
  const tiles = [
    ['Nodes ready', all.nodes_ready + ' of ' + all.nodes],
    ['GPUs', all.gpus],
    ['SMs free', sum('sms_free') + ' of ' + sms],
    ['Memory free', size(sum('memory_free_bytes')) + ' of ' + size(sum('memory_bytes'))],
    ['VMs', all.vms],
    ['Virtual GPUs', all.leases],
    ['Waiting', all.waiting],
  ];
  sync(byId('overview'), tiles, (tile) => tile[0], (tile) => make('div', null,
       make('dt', null, tile[0]), make('dd', null, String(tile[1]))));
  byId('cluster').textContent = all.cluster + ', version ' + all.version;
  byId('who').textContent = 'You are ' + all.caller + ', ' + all.role + '. This page changes nothing.';
}

function showHealth() {
  const problems = shown.health.problems || [];
  byId('problems').hidden = problems.length === 0;
  sync(byId('problem-list'), problems, (problem) => problem, (problem) => make('li', null, problem));
}

// What each document brings, and what shows it.
const views = {
  cluster: (all) => {
    shown.cluster = all;
    for (const show of [showOverview, showNodes, showVms, showQueue]) show();
  },
  health: (health) => {
    shown.health = health;
    showHealth();
  },
  nodes: (list) => {
    shown.nodes = list.nodes;
    showNodes();
    showOverview();
  },
  leases: (list) => {
    shown.leases = list.leases;
    showNodes();
  },
  vms: (list) => {
    shown.vms = list.vms;
    showVms();
  },
  queue: (list) => {
    shown.queue = list.vms;
    showQueue();
  },
  events: (list) => {
    shown.events = list.events;
    showEvents();
    refreshFound();
  },
};

function setLive(live, text) {
  // It says since when, not how often it was tried.
  if (document.body.dataset.live === (live ? 'yes' : 'no') && byId('live').dataset.told) return;
  byId('live').dataset.told = 'yes';
  document.body.dataset.live = live ? 'yes' : 'no';
  byId('live').textContent = text;
}

function connect() {
  const source = new EventSource('/api/v1/watch');
  for (const [name, take] of Object.entries(views)) {
    source.addEventListener(name, (event) => {
      setLive(true, 'live');
      take(JSON.parse(event.data));
    });
  }
  source.addEventListener('beat', () => {
    setLive(true, 'live');
    refreshFound();
  });
  source.onerror = () => {
    setLive(false, 'not connected since ' + new Date().toISOString().slice(11, 19) +
            ' UTC; what is shown is old');
    // After an answer that refuses, the browser does not try again by itself.
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    setTimeout(connect, AGAIN_MS);
  };
}

byId('filter').addEventListener('input', () => {
  for (const show of [showNodes, showVms, showQueue, showEvents]) show();
});
connect();
