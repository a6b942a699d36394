// The usual calls of node-memcached. Told: where the server is; tells as JSON: what each call gave.
'use strict';
const Memcached = require('memcached');
const client = new Memcached(process.argv[2], {timeout: 30000, poolSize: 5});
const told = [];

function tell(method, ...args) {
  return new Promise((done) => {
    client[method](...args, (error, found) => {
      told.push([method, error ? String(error) : found]);
      done(found);
    });
  });
}

(async () => {
  await tell('set', 'text', 'é\r\nthe end', 100);
  await tell('get', 'text');
  await tell('set', 'object', {a: [1, 2]}, 0);
  await tell('get', 'object');
  await tell('set', 'number', 41, 0);
  await tell('incr', 'number', 1);
  await tell('decr', 'number', 50);
  await tell('add', 'text', 'again', 100);
  await tell('replace', 'text', 'other', 100);
  await tell('append', 'text', '!');
  await tell('prepend', 'text', '?');
  await tell('getMulti', ['text', 'none', 'object']);
  const found = await new Promise((done) => client.gets('text', (_, each) => done(each)));
  await tell('cas', 'text', 'swapped', found.cas, 100);
  await tell('cas', 'text', 'late', found.cas, 100);
  await tell('touch', 'text', 50);
  await tell('get', 'text');
  await tell('del', 'text');
  await tell('get', 'text');
  await Promise.all(Array.from({length: 50}, (_, n) => new Promise((done) => client.set(`k${n}`, `v${n}`, 0, done))));
  await tell('getMulti', Array.from({length: 50}, (_, n) => `k${n}`));
  await tell('flush');
  await tell('get', 'k1');
  client.end();
  console.log(JSON.stringify(told));
})();
