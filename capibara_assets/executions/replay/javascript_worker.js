// Worker of workers.py for JavaScript: one JSON request (cells of a session) and one JSON answer a line.
// A session whose code names nothing of Node runs here in a fresh context that holds no object of this realm, so that it
// can change nothing for the next one; any other runs in a thread of its own, with everything of Node made anew.
// Run with --expose-internals, as javascript_session.js.
'use strict';

const path = require('node:path');
const readline = require('node:readline');
const vm = require('node:vm');
const { Worker } = require('node:worker_threads');
const { LODASH, consoleOf, createSession, reportLate, runAll } = require('../sandbox/javascript_session.js');

const OF_NODE = new RegExp('\\b(require|set(Timeout|Interval|Immediate)|clear(Timeout|Interval|Immediate)|queueMicrotask|structuredClone'
  + '|URL|URLSearchParams|TextEncoder|TextDecoder|AbortController|Buffer|performance|module|exports|globalThis|process|import'
  + '|nodejs|prepareStackTrace|FinalizationRegistry|WeakRef|SharedArrayBuffer|Atomics)\\b');

// `assert` and what there is of lodash are lent to a context as they are here: they keep nothing. Code that could reach
// through them runs in a thread.
const LENT = /\brequire\(\s*(['"`])(?:(?:node:)?assert(?:\/strict)?|lodash)\1\s*\)/g;
const REACHES = /\b(constructor|prototype|\w+PrototypeOf|definePropert\w+|Reflect|__\w+__)\b|\bassert\w*(\.\w+)*\s*=(?!=)(?!\s*require)/;

function needsThread(cells) {
  const lent = cells.some((cell) => LENT.test(cell));
  LENT.lastIndex = 0;
  return cells.some((cell) => OF_NODE.test(cell.replace(LENT, '')) || (lent && REACHES.test(cell.replace(LENT, 'require'))));
}

// Inside the context: its own console, whose functions hand their arguments over and throw errors of the context only.
const CONSOLE = new vm.Script(`(call) => {
  'use strict';
  const method = (name) => (...args) => {
    const failure = call(name, args);
    if (failure !== undefined) throw failure.ours ? failure.error : Object.assign(new Error(failure.message), { name: failure.name });
  };
  const names = ['log', 'info', 'debug', 'dir', 'error', 'warn', 'trace', 'table', 'assert'];
  return Object.fromEntries(names.map((name) => [name, method(name)]));
}`);

function pureContext(write) {
  const context = vm.createContext(Object.create(null));
  const inner = vm.runInContext('Object', context);
  const methods = consoleOf(write);
  const call = (name, args) => {
    try {
      methods[name](...args);
      return undefined;
    } catch (error) {
      const answer = new inner();
      answer.ours = !(error instanceof Error);
      if (answer.ours) answer.error = error;
      else { answer.name = String(error.name); answer.message = String(error.message); }
      return answer;
    }
  };
  const made = CONSOLE.runInContext(context)(call);
  const lend = (name) => (name === 'lodash' ? LODASH : require(/strict$/.test(name) ? 'node:assert/strict' : 'node:assert'));
  vm.runInContext('(made, lend) => { globalThis.console = made; globalThis.require = (name) => lend(name); }', context)(made, lend);
  return context;
}

// What a session could have changed in this realm if it got hold of one of its objects after all.
const INTRINSICS = [Object, Function, Array, String, Number, Boolean, Symbol, Map, Set, WeakMap, Promise, RegExp, Date, Error,
  TypeError, RangeError, SyntaxError, ReferenceError, JSON, Math, Reflect, Proxy, Buffer, globalThis,
  require('node:assert'), require('node:assert').AssertionError, require('node:assert/strict')]
  .flatMap((value) => (typeof value === 'function' && value.prototype ? [value, value.prototype] : [value]));
const UNKEPT = new Set(['legacyMainResolve']);
const picture = (value) => Reflect.ownKeys(value).flatMap((key) => {
  const found = Reflect.getOwnPropertyDescriptor(value, key);
  return UNKEPT.has(key) || value === RegExp ? [key] : [key, found.value, found.get, found.set];
});
let before;
const untouched = () => INTRINSICS.every((value, i) => {
  const now = picture(value);
  return now.length === before[i].length && now.every((part, j) => Object.is(part, before[i][j]));
});

function inThread(cells, timeout, memory) {
  return new Promise((resolve) => {
    const worker = new Worker(path.join(__dirname, '..', 'sandbox', 'javascript_session.js'), {
      workerData: { cells, timeout }, env: { TZ: 'UTC' }, stdin: false, stdout: true, stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: memory, stackSizeMb: 4 },
    });
    let answer = { ended: 'exit' };
    const timer = setTimeout(() => { answer = { ended: 'wall' }; worker.terminate(); }, timeout * (cells.length + 1));
    worker.on('message', (message) => { answer = message; });
    worker.on('error', (error) => { answer = { ended: error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? 'memory' : 'exit' }; });
    worker.on('exit', () => { clearTimeout(timer); resolve(answer); });
  });
}

let session;

async function answerTo(request) {
  const timeout = request.wall_s * 1000;
  if (needsThread(request.cells)) return inThread(request.cells, timeout, request.memory_mib);
  session = createSession(pureContext, true);
  return runAll(session, request.cells, timeout);
}

async function main() {
  reportLate(() => session);
  process.stdout.write('ready\n');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    before ??= INTRINSICS.map(picture);
    const used = process.cpuUsage();
    const answer = await answerTo(request);
    const { user, system } = process.cpuUsage(used);
    const clean = untouched();
    const bound = answer.timeout ? 'wall' : answer.stuck ? 'stuck' : null;
    const end = bound ? { ended: bound, cell: answer.cell } : answer;
    process.stdout.write(JSON.stringify({ ...end, leaving: !clean, cpu_s: (user + system) / 1e6, nonce: request.nonce }) + '\n');
    if (!clean) break; // the next session gets another process
  }
  process.stdout.write('', () => process.exit());
}

main();
