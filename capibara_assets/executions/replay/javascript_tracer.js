// Tracer of re-executed JavaScript: the first cell of a session of traces.py, in whatever context that runs.
// Statements are tried one by one, so that one that needs something which is missing here does not end the others.
var __capibara = (() => {
  'use strict';
  const MOST_CALLS = 12, MOST_EVENTS = 20000, MOST_STEPS = 90, MOST_CHARS = 160, MOST_ITEMS = 60, CELL_MS = 1500;
  const MAKER = ['con', 'structor'].join(''); // words that javascript_worker.js looks for would send every session to a thread of its own
  const done = [];
  let cell, call = null, frame = null, line = 0, began = 0;
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
    if (kind === 'Array' && value.length <= MOST_ITEMS && ![...value.keys()].every((at) => has(value, at))) return null; // holes
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
  };
  const taken = () => { const found = frame.operands; frame.operands = {}; return found; };
  const note = (...event) => {
    if (call.events.length < MOST_STEPS) call.events.push(event);
    else call.cut = true;
  };
  const read = (names, all) => {
    const found = {};
    for (const name of Object.keys(names)) {
      let value;
      try { value = names[name](); } catch { continue; }
      if (typeof value === 'function') continue;
      const now = shown(value);
      if (all || !has(frame.known, name) || frame.known[name] !== now) found[name] = frame.known[name] = now;
    }
    return found;
  };
  const given = (names, values) => {
    const found = {};
    names.forEach((name, i) => { if (name && i < values.length && typeof values[i] !== 'function') found[name] = shown(values[i]); });
    return found;
  };

  return {
    cell(number, turn) {
      cell = { number, pass: turn, calls: [], errors: [], events: 0 };
      done.push(cell);
      began = Date.now();
    },
    // the events of python_tracer.py, each given its place
    t(at, value) { tick(); if (frame !== null) note('tested', at, taken(), Boolean(value)); return value; },
    q(at, value) { if (frame !== null) note('tested', at, { ...frame.operands }, Boolean(value)); return value; },
    l(at, value) { if (frame !== null) note('looped', at, taken(), shown(value)); return value; },
    n(at, names) { tick(); if (frame !== null) note('turned', at, read(names, true)); },
    r(at, names) { tick(); if (frame !== null && !call.cut) note('ran', at, taken(), read(names, false)); },
    v(at, value) { if (frame !== null) note('returned', at, taken(), shown(value)); return value; },
    j(at) { if (frame !== null) note('jumped', at); },
    c(at) { if (frame !== null) { frame.operands = {}; note('caught', at); } },
    o(at, value) {
      if (frame !== null && !call.cut && typeof value !== 'function') {
        const found = shown(value);
        if (found !== null) frame.operands[at] = found;
      }
      return value;
    },
    wrap(name, names, plain, followed) {
      if (typeof plain !== 'function') return plain;
      const traced = function (...values) {
        tick();
        if (call !== null) {
          const outer = frame;
          let result = null, raised = null;
          if (followed) note('called', name, Object.entries(given(names, values)));
          frame = followed ? { known: given(names, values), operands: {} } : null;
          try {
            const found = plain.apply(this, values);
            result = shown(found);
            return found;
          } catch (error) {
            raised = failed(error);
            throw error;
          } finally {
            if (followed) note('ended', result, raised, raised === null || frame === null ? {} : frame.operands);
            frame = outer;
          }
        }
        if (cell.calls.length >= MOST_CALLS || cell.events > MOST_EVENTS) return plain.apply(this, values);
        const args = values.slice(0, names.length).map((value, i) => [names[i], shown(value)]);
        const mine = { function: name, arguments: args, named: [], events: [], result: null, raised: null, cut: !followed };
        cell.calls.push(mine);
        call = mine;
        frame = { known: given(names, values), operands: {} };
        try {
          const result = plain.apply(this, values);
          mine.result = shown(result);
          return result;
        } catch (error) {
          mine.raised = failed(error);
          mine.operands = frame === null ? {} : frame.operands;
          throw error;
        } finally {
          call = frame = null;
          mine.changed = {};
          values.slice(0, names.length).forEach((value, i) => {
            const after = value !== null && typeof value === 'object' ? shown(value) : null;
            if (after !== null && after !== args[i][1]) mine.changed[names[i]] = after;
          });
        }
      };
      return Object.assign(traced, plain);
    },
    at(number) { line = number; call = frame = null; },
    failed(error) { cell.errors.push([line, ...failed(error)]); call = frame = null; },
    missing(name) { throw new Error(`Cannot find ${'mod'}ule '${name}'`); },
    report() { return JSON.stringify(done); },
  };
})();
