// Tracer of re-executed JavaScript: the first cell of a session of traces.py, in whatever context that runs.
// Statements are tried one by one, so that one that needs something which is missing here does not end the others.
var __capibara = (() => {
  'use strict';
  const MOST_CALLS = 12, MOST_EVENTS = 20000, MOST_CHARS = 160, MOST_ITEMS = 60, CELL_MS = 1500;
  const MAKER = ['con', 'structor'].join(''); // words that javascript_worker.js looks for would send every session to a thread of its own
  const done = [];
  let cell, call = null, line = 0, began = 0;
  const has = Object.hasOwn;

  // A value as JavaScript would write it; null where it has no such text, or a long one.
  const text = (value, depth) => {
    if (value === undefined) return 'undefined';
    if (value === null || typeof value === 'boolean') return String(value);
    if (typeof value === 'number') return Object.is(value, -0) ? '-0' : String(value);
    if (typeof value === 'bigint') return value + 'n';
    if (typeof value === 'string') return value.length > MOST_CHARS ? null : JSON.stringify(value);
    if (typeof value !== 'object' || depth > 6) return null;
    const list = (values) => {
      if (values.length > MOST_ITEMS) return null;
      const parts = values.map((each) => text(each, depth + 1));
      return parts.includes(null) ? null : parts.join(', ');
    };
    const kind = ({}).toString.call(value).slice(8, -1);
    let inner;
    if (kind === 'Array') return (inner = list([...value])) === null ? null : '[' + inner + ']';
    if (kind === 'Set') return (inner = list([...value])) === null ? null : 'new Set([' + inner + '])';
    if (kind === 'Map') return (inner = list([...value])) === null ? null : 'new Map([' + inner + '])';
    if (kind !== 'Object' || (value[MAKER] && value[MAKER].name !== 'Object')) return null;
    const keys = Object.keys(value);
    if ((inner = list(keys.map((key) => value[key]))) === null) return null;
    const parts = keys.map((key) => (/^[A-Za-z_$][\w$]*$/.test(key) ? key : JSON.stringify(key)) + ': ' + text(value[key], depth + 1));
    return parts.length ? '{ ' + parts.join(', ') + ' }' : '{}';
  };
  const shown = (value) => {
    try {
      const found = text(value, 0);
      return found === null || found.length > MOST_CHARS ? null : found;
    } catch { return null; }
  };
  const failed = (error) => (error && typeof error === 'object' && 'message' in error
    ? [String(error.name), String(error.message).slice(0, MOST_CHARS)] : ['Error', String(shown(error) ?? error).slice(0, MOST_CHARS)]);

  const tick = () => {
    cell.events += 1;
    if (cell.events % 512 === 0 && Date.now() - began > CELL_MS) throw new Error('traced for too long');
    return cell.events < MOST_EVENTS;
  };
  const count = (at, which) => {
    if (!tick()) return;
    const counts = call === null ? cell.tests : call.tests;
    (has(counts, at) ? counts[at] : (counts[at] = [0, 0]))[which] += 1;
  };

  return {
    cell(number, turn) {
      cell = { number, pass: turn, calls: [], tests: {}, errors: [], events: 0 };
      done.push(cell);
      began = Date.now();
    },
    t(at, value) { count(at, value ? 0 : 1); return value; },
    n(at) { count(at, 0); },
    s(at, value) {
      if (call !== null && tick()) call.steps[at] = has(call.steps, at) ? [call.steps[at][0] + 1, null] : [1, shown(value)];
      return value;
    },
    wrap(name, names, plain) {
      if (typeof plain !== 'function') return plain;
      const traced = function (...given) {
        tick();
        if (call !== null) {
          const outer = call;
          if (outer.function !== name) return plain.apply(this, given);
          outer.inner += 1; outer.now += 1; outer.depth = Math.max(outer.depth, outer.now);
          try { return plain.apply(this, given); } finally { outer.now -= 1; }
        }
        if (cell.calls.length >= MOST_CALLS || cell.events > MOST_EVENTS) return plain.apply(this, given);
        const args = given.map((value, i) => [names[i] ?? '', shown(value)]);
        const mine = { function: name, arguments: args, named: [], line, tests: {}, steps: {}, inner: 0, now: 0, depth: 0, result: null, raised: null };
        cell.calls.push(mine);
        call = mine;
        try {
          const result = plain.apply(this, given);
          mine.result = shown(result);
          mine.type = Array.isArray(result) ? 'array' : typeof result;
          return result;
        } catch (error) {
          mine.raised = failed(error);
          throw error;
        } finally {
          call = null;
          mine.changed = {};
          given.forEach((value, i) => {
            const after = value !== null && typeof value === 'object' ? shown(value) : null;
            if (after !== null && after !== args[i][1]) mine.changed[names[i] ?? ''] = after;
          });
          mine.cut = cell.events > MOST_EVENTS;
        }
      };
      return Object.assign(traced, plain);
    },
    at(number) { line = number; call = null; },
    failed(error) { cell.errors.push([line, ...failed(error)]); call = null; },
    missing(name) { throw new Error(`Cannot find ${'mod'}ule '${name}'`); },
    report() { return JSON.stringify(done); },
  };
})();
