"""JavaScript that runs between an answer and its tests: reports of values, and values as what they hold.

What tests convert (`total() - 1`, a template, `JSON.stringify`), call methods of and print is of the language's own
kinds: no method by which an object of the answer says what it is (`valueOf`, `toJSON`, an array's own `includes`)
decides, unless the task asks for the class or the method. Built-in functions that the tests use have to be as they
were. A program that changes how functions are told from built-in ones may report any value, as `assertions.py` says.
"""

import json
from collections.abc import Collection

#: Names of built-in functions that this code calls itself: an answer that changes one is told as if the tests used it.
_USED = frozenset(
    {"call", "concat", "create", "filter", "for", "forEach", "get", "getOwnPropertyDescriptor", "getOwnPropertyNames",
     "getOwnPropertySymbols", "getPrototypeOf", "getTime", "has", "hasOwnProperty", "includes", "is", "isArray", "join",
     "keys", "map", "push", "set", "add", "sort", "source", "String", "stringify", "test", "valueOf"}
)  # fmt: skip

#: Runs before an answer that is not to be believed: of these functions none may be changed, whatever it defines.
NATIVE = r"""
const _capibara_native = Object.freeze([
  Math, JSON, Object, Array, String, Number, Boolean, Symbol, BigInt, Date, RegExp, Map, Set, Promise, Error, Function,
].flatMap((each) => Object.getOwnPropertyNames(each).concat(Object.getOwnPropertyNames(each.prototype || each)))
  .concat('parseInt', 'parseFloat', 'isNaN', 'isFinite'));
"""

_BUILT_IN = r"""
function _capibara_built_in(used, asked) {
  const kept = typeof _capibara_native === 'undefined' ? [] : _capibara_native;
  const mayChange = (name) => asked.methods.includes(name) && !kept.includes(name);
  const text = (each) => Function.prototype.toString.call(each);
  const named = { __proto__: null, trimLeft: 'trimStart', trimRight: 'trimEnd', toGMTString: 'toUTCString' };
  const native = (each, name) => text(each) === 'function ' + name + '() { [native code] }';
  const fits = (each, name) => native(each, named[name] || name) || (name === 'keys' && native(each, 'values'));
  const changed = (name) => { throw new TypeError('a built-in that the tests use was changed: ' + name); };
  const kinds = {
    Object, Array, String, Number, Boolean, Symbol, BigInt, Date, RegExp, Map, Set, Promise, Error, Function,
  };
  const owners = Object.keys(kinds).filter((name) => !asked.classes.includes(name));
  for (const name of owners) if (typeof kinds[name] !== 'function' || !native(kinds[name], name)) changed(name);
  const [makers, protos] = [owners.map((name) => kinds[name]), owners.map((name) => kinds[name].prototype)];
  for (const owner of [Math, JSON, ...makers, ...protos]) {
    for (const name of used) {
      if (name === 'constructor' || mayChange(name)) continue;
      const found = Object.getOwnPropertyDescriptor(owner, name);
      if (found && typeof found.value === 'function' && !fits(found.value, name)) changed(name);
      if (found && found.get && typeof owner === 'object' && !native(found.get, 'get ' + name)) changed(name);
    }
  }
  const functions = {
    parseInt, parseFloat, isNaN, isFinite, encodeURIComponent, decodeURIComponent, encodeURI, decodeURI,
  };
  for (const name in functions) {
    if (used.includes(name) && !mayChange(name) && !native(functions[name], name)) changed(name);
  }
  if (!native([][Symbol.iterator], 'values')) changed('Symbol.iterator');
  // one function of the worker makes both
  if (!asked.methods.includes('log') && text(console.log) !== text(console.info)) changed('console.log');
  for (const each of [{}, [], 0, '', true, 0n]) {
    if (each[Symbol.toPrimitive] !== undefined) changed('Symbol.toPrimitive');
    if (each.toJSON !== undefined && !asked.methods.includes('toJSON')) changed('toJSON');
  }
}
"""

_PLAIN = r"""
const _capibara_branded = (() => {
  const tells = (method) => (value) => { try { method.call(value); return true; } catch { return false; } };
  const size = (kind) => Object.getOwnPropertyDescriptor(kind.prototype, 'size').get;
  const array = (value) => {
    const made = [];
    for (let i = 0; i < value.length; i += 1) made[i] = value[i];
    return made;
  };
  const map = (value) => {
    const made = new Map();
    Map.prototype.forEach.call(value, (each, key) => made.set(key, each));
    return made;
  };
  const set = (value) => {
    const made = new Set();
    Set.prototype.forEach.call(value, (each) => made.add(each));
    return made;
  };
  const source = () => Object.getOwnPropertyDescriptor(RegExp.prototype, 'source').get;
  const kinds = {
    Array: () => [Array.isArray, array],
    Map: () => [tells(size(Map)), map],
    Set: () => [tells(size(Set)), set],
    Date: () => [tells(Date.prototype.getTime), (value) => new Date(Date.prototype.getTime.call(value))],
    RegExp: () => [tells(source()), null],
    String: () => [tells(String.prototype.valueOf), (value) => String.prototype.valueOf.call(value)],
    Number: () => [tells(Number.prototype.valueOf), (value) => Number.prototype.valueOf.call(value)],
    Boolean: () => [tells(Boolean.prototype.valueOf), (value) => Boolean.prototype.valueOf.call(value)],
  };
  const protos = { Array, Map, Set, Date, RegExp, String, Number, Boolean };
  const free = Object.keys(kinds).filter((name) => !_capibara_asked.classes.includes(name));
  return free.map((name) => [name, protos[name].prototype, ...kinds[name]()]);
})();
function _capibara_chain(value) {
  const chain = [];
  for (let each = value; each !== null; each = Object.getPrototypeOf(each)) chain.push(each);
  return chain;
}
function _capibara_brand(value) {
  for (const brand of _capibara_branded) if (brand[2](value)) return brand;
  return null;
}
function _capibara_is_asked(value) {
  return typeof value.constructor === 'function' && _capibara_asked.classes.includes(value.constructor.name);
}
function _capibara_unsaid(value) {
  if (value === null || typeof value !== 'object' || _capibara_is_asked(value)) return value;
  const chain = _capibara_chain(value);
  const brand = _capibara_brand(value);
  if (brand === null) {
    for (const [name, proto] of _capibara_branded) {
      if (value === proto || !chain.includes(proto)) continue;
      throw new TypeError('a value that says it is of another class: ' + name);
    }
    return value;
  }
  const [name, own, , made] = brand;
  if (value === own || made === null) return value;
  const names = [...Object.getOwnPropertyNames(own), ...Object.getOwnPropertySymbols(own)];
  const maker = 'function ' + name + '() { [native code] }';
  const says = (each) => (key) => key !== 'constructor' && key !== 'length'
    && !_capibara_asked.methods.includes(String(key.description || key))
    && Object.prototype.hasOwnProperty.call(each, key);
  for (const each of chain) {
    const found = each === value ? undefined : Object.getOwnPropertyDescriptor(each, 'constructor');
    if (found && typeof found.value === 'function' && Function.prototype.toString.call(found.value) === maker) break;
    if (names.some(says(each))) return made(value);
  }
  return value;
}
function _capibara_plain(value, seen = new Set()) {
  const plain = _capibara_unsaid(value);
  if (plain === null || typeof plain !== 'object' || seen.has(plain)) return plain;
  seen.add(plain);
  if (!_capibara_is_asked(plain)) {
    const hooks = ['valueOf', 'toString', 'toJSON', Symbol.toPrimitive, Symbol.for('node' + 'js.util.inspect.custom')];
    for (const hook of hooks) {
      const found = plain[hook], name = String(hook.description || hook);
      if (found === undefined || _capibara_asked.methods.includes(name)) continue;
      const text = typeof found === 'function' ? Function.prototype.toString.call(found) : '';
      if (!/^function \S+\(\) \{ \[native code\] \}$/.test(text)) {
        throw new TypeError('a value that says by ' + name + ' what it is');
      }
    }
  }
  if (Array.isArray(plain)) {
    const made = plain.map((each) => _capibara_plain(each, seen));
    return made.some((each, i) => !Object.is(each, plain[i])) ? made : plain;
  }
  const proto = Object.getPrototypeOf(plain);
  if (proto !== null && proto !== Object.prototype) return plain;
  const made = Object.keys(plain).map((key) => [key, plain[key], _capibara_plain(plain[key], seen)]);
  if (made.every(([, was, is]) => Object.is(was, is))) return plain;
  const copy = Object.create(proto);
  for (const [key, , is] of made) copy[key] = is;
  return copy;
}
"""

_REPORT = r"""
let _capibara_last;
function _capibara_report(place, given, how) {
  const value = how === 'number' && ['string', 'boolean'].includes(typeof given) ? Number(given) : given;
  const tagged = (name, parts) => name + '(' + parts.join(', ') + ')';
  const shown = (value, depth) => {
    if (depth > 100) throw new Error('nested too deeply');
    const more = (each) => shown(each, depth + 1);
    if (value === null || value === undefined || typeof value === 'boolean') return String(value);
    if (Object.is(value, -0)) return how === 'is' || how === 'deep' ? '-0' : '0';
    if (typeof value === 'number') return String(value);
    if (typeof value === 'bigint') return String(value) + 'n';
    if (typeof value === 'string') return JSON.stringify(value);
    if (typeof value !== 'object') return typeof value;
    const parts = [];
    if (Array.isArray(value)) {
      for (let i = 0; i < value.length; i += 1) parts.push(more(value[i]));
      return '[' + parts.join(', ') + ']';
    }
    const brand = _capibara_brand(value), kind = brand === null ? '' : brand[0];
    const name = value.constructor ? value.constructor.name : 'null';
    const own = name === kind ? kind : name + ' ' + kind;
    if (kind === 'Map') {
      Map.prototype.forEach.call(value, (each, key) => parts.push(more(key) + ' => ' + more(each)));
      return tagged(own, parts);
    }
    if (kind === 'Set') {
      Set.prototype.forEach.call(value, (each) => parts.push(more(each)));
      return tagged(own, parts);
    }
    if (kind === 'Date') return tagged(own, [String(Date.prototype.getTime.call(value))]);
    if (kind === 'RegExp') return tagged(own, [RegExp.prototype.toString.call(value)]);
    if (typeof value.message === 'string' && 'stack' in value) return tagged(value.name, [more(value.message)]);
    const pairs = Object.keys(value).sort().map((key) => JSON.stringify(key) + ': ' + more(value[key]));
    const proto = Object.getPrototypeOf(value);
    const bare = proto === null || (Object.getPrototypeOf(proto) === null && (name === 'Object' || name === 'null'));
    return (bare ? '' : (name === 'Object' ? 'another ' : '') + name + ' ') + '{' + pairs.join(', ') + '}';
  };
  let text = shown(value, 0);
  // Equality of objects is identity, and no NaN is `===` another.
  const other = value === Object(value) ? value !== _capibara_last : how === 'operator' && value !== value;
  if (how !== undefined && how !== 'deep' && place.endsWith('g1') && other) text += ' (another)';
  _capibara_last = value;
  const form = value === true || value === false ? ['b', value] : ['r', text];
  console.log(String.fromCharCode(30) + place + ' ' + JSON.stringify(form) + String.fromCharCode(31));
}
function _capibara_thrown(make) {
  try { make(); } catch (error) {
    return 'throws ' + (error && error.name ? error.name + ': ' + error.message : String(error));
  }
  return 'throws nothing';
}
"""


def prelude(used: Collection[str], classes: Collection[str], methods: Collection[str], reports: bool) -> str:
    """What runs after an answer and before its tests.

    Args:
        used: names that occur in the tests.
        classes: classes that the task asks for: their objects say by their own methods what they are.
        methods: names of methods that the task asks for.
        reports: whether the tests report values.
    """
    asked = json.dumps({"classes": sorted(classes), "methods": sorted(methods)})
    checked = f"_capibara_built_in({json.dumps(sorted(_USED | {*used}))}, _capibara_asked);\n"
    return f"const _capibara_asked = {asked};\n{_BUILT_IN}{checked}{_PLAIN}{_REPORT if reports else ''}"
