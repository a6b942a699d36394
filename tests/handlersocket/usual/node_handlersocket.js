// The usual calls of node-handlersocket. Told as JSON: where the listeners are; tells as JSON: what each call gave.
'use strict';
const hs = require('node-handlersocket');
const {promisify} = require('util');
const {read, write, db} = JSON.parse(process.argv[2]);
const told = [];

function connected(where) {
  return new Promise((done, failed) => {
    const connection = hs.connect({host: where.host, port: where.port, auth: where.secret}, () => done(connection));
    connection.on('error', failed);
  });
}

function opened(connection, ...args) {
  return new Promise((done, failed) => {
    connection.openIndex(db, 'employee', ...args, (error, index) => error ? failed(error) : done(index));
  });
}

async function tell(name, index, method, ...args) {
  try {
    told.push([name, await promisify(index[method]).call(index, ...args)]);
  } catch (error) {
    told.push([name, String(error)]);
  }
}

async function main() {
  const columns = ['id', 'number', 'name', 'version'];
  const reader = await connected(read), writer = await connected(write);
  const employees = await opened(reader, 'PRIMARY', columns, ['number', 'name']);
  const byNumber = await opened(reader, 'number', ['id', 'name']);
  const changing = await opened(writer, 'PRIMARY', columns, ['number', 'name']);
  const named = await opened(writer, 'PRIMARY', ['name', 'version'], ['number']);
  const counted = await opened(writer, 'PRIMARY', ['version']);

  await tell('nothing is there', employees, 'find', '>=', 1, {limit: 10});
  await tell('insert', changing, 'insert', ['100', '9999', 'KOICHIK', 1]);
  await tell('insert the same', changing, 'insert', ['100', '9999', 'KOICHIK', 1]);
  await tell('insert Unicode and control characters', changing, 'insert', [101, 9998, 'é€😀\t\n\r\u0001', 1]);
  await tell('insert NULL and nothing', changing, 'insert', [102, 9997, null, 0]);
  await tell('insert an empty string', changing, 'insert', [103, 9997, '', 0]);
  await tell('find', employees, 'find', '=', [101]);
  await tell('find by a number', employees, 'find', '=', 100);
  await tell('find more', employees, 'find', '>=', [100], {limit: 10});
  await tell('find with limit and offset', employees, 'find', '>', [100], {limit: 2, offset: 1});
  await tell('find before', employees, 'find', '<', [102], {limit: 10});
  await tell('find by another key', byNumber, 'find', '=', [9997], {limit: 10});
  await tell('find with IN', employees, 'find', '=', [hs.in(103, 100, 7)], {limit: 10});
  await tell('find with a filter', employees, 'find', '>=', [100],
    {limit: 10, filters: [hs.filter('number', '>', 9997)]});
  await tell('find with two filters', employees, 'find', '>=', [100],
    {limit: 10, filters: [hs.filter('number', '<', 9999), hs.filter('name', '=', '')]});
  await tell('find while', employees, 'find', '>=', [100], {limit: 10, filters: hs.while('number', '>', 9998)});
  await tell('update', named, 'update', '=', [100], ['EBISU', 2]);
  await tell('update nothing', named, 'update', '=', [7], ['EBISU', 2]);
  await tell('update with a filter', named, 'update', '>=', [100],
    {limit: 10, filters: [hs.filter('number', '=', 9997)]}, ['filtered', 5]);
  await tell('update and get', named, 'updateAndGet', '=', [100], ['MEGURO', 3]);
  await tell('increment', counted, 'increment', '=', [100], [5]);
  await tell('increment and get', counted, 'incrementAndGet', '=', [100], [1]);
  await tell('decrement', counted, 'decrement', '=', [100], [2]);
  await tell('decrement below zero', counted, 'decrement', '=', [100], [100]);
  await tell('decrement and get', counted, 'decrementAndGet', '=', [100], [1]);
  await tell('what is there', employees, 'find', '>=', [0], {limit: 10});
  await tell('delete and get', changing, 'deleteAndGet', '=', [101]);
  await tell('delete', changing, 'delete', '>=', [102], {limit: 10});
  await tell('delete again', changing, 'delete', '>=', [102], {limit: 10});
  await tell('modify on the port for reading', employees, 'delete', '=', [100]);
  await tell('a key that has no such part', employees, 'find', '=', [1, 2]);
  await tell('an operator that there is not', employees, 'find', '==', [1]);
  told.push(['at once', await Promise.all(
    [...Array(50).keys()].map(() => promisify(employees.find).call(employees, '=', [100])))]);
  for (const args of [['nope', ['id']], ['PRIMARY', ['nope']]]) {
    told.push(['open', await opened(reader, ...args).then(() => 'opened', String)]);
  }
  const ended = Promise.all([reader, writer].map((each) => new Promise((done) => each.on('close', done))));
  reader.close();
  writer.close();
  await ended;
  told.push(['wrong secret', await connected({...read, secret: 'wrong'}).then(() => 'connected', String)]);
}

main().then(() => console.log(JSON.stringify(told)), (error) => {
  console.error(error);
  process.exitCode = 1;
}).finally(() => setImmediate(() => process.exit()));
