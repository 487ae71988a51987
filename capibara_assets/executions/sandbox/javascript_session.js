// JavaScript sessions: one vm context, one JSON request and one JSON answer a line.
// Top-level let/const/class are re-declarable, as in a notebook; the value of the last expression is the result.
// Run with --expose-internals for Node's own parser (acorn). A vm context is no security boundary.
// replay/javascript_worker.js takes sessions from here, in its own thread or in workers of this file.
'use strict';

const readline = require('node:readline');
const util = require('node:util');
const vm = require('node:vm');
const { isMainThread, parentPort, workerData } = require('node:worker_threads');
const acorn = require('internal/deps/acorn/acorn/dist/acorn');

const ALLOWED = new Set([
  'assert', 'assert/strict', 'buffer', 'crypto', 'events', 'path', 'querystring', 'stream', 'string_decoder',
  'timers', 'timers/promises', 'url', 'util', 'zlib',
]);

// What the tests of translated benchmarks take of lodash, a package that is not installed: deep equality, and no more.
// As there, lists that a Set holds are compared without regard to order.
const unordered = (value) => (Array.isArray(value) ? value.map(unordered).map((one) => util.inspect(one)).sort() : value);
const ofSet = (value) => (util.types.isSet(value) ? new Set([...value].map(unordered)) : value);
const LODASH = Object.freeze({
  isEqual: Object.freeze((a, b) => a === b || util.isDeepStrictEqual(ofSet(a), ofSet(b))),
});

// What `console` does, given how to write a line to a stream.
const consoleOf = (write) => ({
  log: write('stdout'), info: write('stdout'), debug: write('stdout'), dir: (value) => write('stdout')(util.inspect(value)),
  error: write('stderr'), warn: write('stderr'), trace: write('stderr'),
  table: (rows) => {
    const { Console } = require('node:console');
    const { Writable } = require('node:stream');
    const sink = new Writable({ write(chunk, _, done) { write('stdout').raw(String(chunk)); done(); } });
    new Console(sink).table(rows);
  },
  assert: (condition, ...message) => {
    if (!condition) write('stderr')(message.length ? 'Assertion failed: ' + util.format(...message) : 'Assertion failed');
  },
});

const nodeContext = (write) => vm.createContext({
  console: consoleOf(write),
  require: (name) => {
    if (name === 'lodash') return LODASH;
    const bare = String(name).replace(/^node:/, '');
    if (!ALLOWED.has(bare)) throw new Error(`Cannot find module '${name}'`);
    return require(bare);
  },
  setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, clearImmediate, queueMicrotask,
  structuredClone, URL, URLSearchParams, TextEncoder, TextDecoder, AbortController, Buffer, performance,
  module: { exports: {} }, exports: {},
});

const ACORN = { ecmaVersion: 'latest', sourceType: 'script', allowAwaitOutsideFunction: true, allowReturnOutsideFunction: false };

// Walks a node without entering functions: is there an `await` at the top level?
function awaits(node) {
  if (!node || typeof node.type !== 'string') return false;
  if (node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await)) return true;
  if (/Function/.test(node.type) || node.type === 'ClassBody') return false;
  return Object.values(node).some((child) => (Array.isArray(child) ? child.some(awaits) : awaits(child)));
}

function names(pattern) {
  switch (pattern && pattern.type) {
    case 'Identifier': return [pattern.name];
    case 'ObjectPattern': return pattern.properties.flatMap((item) => names(item.value ?? item.argument));
    case 'ArrayPattern': return pattern.elements.flatMap(names);
    case 'AssignmentPattern': return names(pattern.left);
    case 'RestElement': return names(pattern.argument);
    default: return [];
  }
}

function splice(code, edits) {
  let text = code;
  for (const [start, end, by] of edits.sort((a, b) => b[0] - a[0])) text = text.slice(0, start) + by + text.slice(end);
  return text;
}

// let/const become var of the same width, `class A` becomes `var A = class A`: positions in tracebacks hardly move.
function redeclarable(code, tree) {
  const edits = [];
  for (const node of tree.body) {
    if (node.type === 'VariableDeclaration' && node.kind !== 'var') {
      edits.push([node.start, node.start + node.kind.length, 'var'.padEnd(node.kind.length)]);
    } else if (node.type === 'ClassDeclaration') {
      edits.push([node.start, node.start, `var ${node.id.name} = `], [node.end, node.end, ';']);
    }
  }
  return splice(code, edits);
}

// A cell with a top-level await runs in an async function; its declarations become variables of the context.
function asyncCell(code, tree) {
  const edits = [], hoisted = [];
  for (const [position, node] of tree.body.entries()) {
    if (node.type === 'VariableDeclaration') {
      hoisted.push(...node.declarations.flatMap((item) => names(item.id)));
      const parts = node.declarations.filter((item) => item.init).map((item) => `(${code.slice(item.start, item.end)})`);
      edits.push([node.start, node.end, `void (${parts.join(', ') || 0});`]);
    } else if (node.type === 'ClassDeclaration' || node.type === 'FunctionDeclaration') {
      hoisted.push(node.id.name);
      edits.push([node.start, node.start, `${node.id.name} = `]);
      edits.push([node.end, node.end, ';']);
    } else if (node.type === 'ExpressionStatement' && position === tree.body.length - 1) {
      edits.push([node.start, node.start, 'return (']);
      edits.push([node.expression.end, node.end, ');']);
    }
  }
  const declared = hoisted.length ? `var ${hoisted.join(', ')}; ` : '';
  return `${declared}(async () => { ${splice(code, edits)}\n})()`;
}

function traceback(error) {
  if (!(error && typeof error.stack === 'string')) return util.inspect(error);
  return error.stack.split('\n').filter((line) => !/^\s+at /.test(line) || /Cell\[\d+\]/.test(line)).join('\n');
}

const TIMED_OUT = Symbol('timed out');
const STUCK = Symbol('stuck');

// A context and what it wrote; `makeContext` gets the function that writes. Closed: without timers and anything else that
// comes from outside, so that a promise that is still pending when all that is due has run stays so for ever.
function createSession(makeContext, closed = false) {
  let out = { stdout: [], stderr: [] };
  const write = (stream) => Object.assign(
    (...args) => { out[stream].push(util.format(...args) + '\n'); },
    { raw: (text) => { out[stream].push(text); } },
  );
  const context = makeContext(write);
  return { write, run: (code, count, timeout) => run(context, out = { stdout: [], stderr: [] }, code, count, timeout, closed) };
}

async function run(context, out, code, count, timeout, closed) {
  const filename = `Cell[${count}]`;
  let timer, value;
  try {
    let source = code;
    try {
      const tree = acorn.parse(code, ACORN);
      source = tree.body.some(awaits) ? asyncCell(code, tree) : redeclarable(code, tree);
    } catch {
      // Not ours to report: V8 says below what is wrong with the cell, in its own words.
    }
    value = vm.runInContext(source, context, { filename, timeout, displayErrors: true });
    if (util.types.isPromise(value)) {
      const late = new Promise((resolve) => {
        if (closed) setImmediate(resolve, STUCK);
        else timer = setTimeout(resolve, timeout, TIMED_OUT).unref(); // a thread in which nothing is due any more ends
      });
      value = await Promise.race([value, late]);
      if (value === TIMED_OUT) return { timeout: true };
      if (value === STUCK) return { stuck: true };
    }
    await new Promise((resolve) => setImmediate(resolve)); // rejections and callbacks that are due now
  } catch (error) {
    if (error && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') return { timeout: true };
    const isError = util.types.isNativeError(error) || error instanceof Error;
    const failure = isError
      ? { name: String(error.name), value: String(error.message), traceback: traceback(error) }
      : { name: 'Error', value: typeof error === 'string' ? error : util.inspect(error), traceback: util.inspect(error) };
    return { ...out, results: [], error: failure };
  } finally {
    clearTimeout(timer);
  }
  const results = value === undefined ? [] : [{ text: typeof value === 'string' ? value : util.inspect(value) }];
  return { ...out, results, error: null };
}

// Late failures are written to whatever session `current` gives.
function reportLate(current) {
  process.on('unhandledRejection', (error) => { current().write('stderr')('Unhandled rejection: ' + util.inspect(error)); });
  process.on('uncaughtException', (error) => { current().write('stderr')('Uncaught ' + util.inspect(error)); });
}

// All cells of a session, up to the first that fails: the answer of the last one that ran, and its number.
async function runAll(session, cells, timeout) {
  let answer, cell = 0;
  for (; cell < cells.length; cell += 1) {
    answer = await session.run(cells[cell], cell + 1, timeout);
    if (answer.timeout || answer.stuck || answer.error) break;
  }
  return { ...answer, cell: Math.min(cell, cells.length - 1) };
}

async function main() {
  let count = 0;
  const session = createSession(nodeContext);
  reportLate(() => session);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    count += 1;
    process.stdout.write(JSON.stringify(await session.run(request.code, count, request.timeout * 1000)) + '\n');
  }
  process.exit(0);
}

async function oneSession({ cells, timeout }) {
  const session = createSession(nodeContext);
  reportLate(() => session);
  parentPort.postMessage(await runAll(session, cells, timeout));
  process.exit(0);
}

if (!isMainThread) oneSession(workerData);
else if (require.main === module) main();

module.exports = { LODASH, consoleOf, createSession, reportLate, runAll };
