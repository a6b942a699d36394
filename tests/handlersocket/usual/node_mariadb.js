// The usual calls of node-mariadb. Told as JSON: where the listeners are; tells as JSON: what each call gave.
'use strict';
const maria = require('node-mariadb');
const {promisify} = require('util');
const {read, write, db} = JSON.parse(process.argv[2]);
const told = [];

function connected(where) {
  return new Promise((done) => {
    const connection = maria.createConnection({
      driverType: maria.DRIVER_TYPE_HANDLER_SOCKET, host: where.host, port: where.port, auth: {key: where.secret},
    });
    connection.on('error', () => {}); // it tells its callbacks too
    connection.on('connect', () => done(connection));
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
  const columns = ['id', 'number', 'name', 'version'], primary = maria.HandlerSocket.PRIMARY;
  const reader = await connected(read), writer = await connected(write);
  const employees = await opened(reader, primary, columns, ['number']);
  const byNumber = await opened(reader, 'number', ['id', 'name']);
  const changing = await opened(writer, primary, columns, ['number']);
  const counted = await opened(writer, primary, ['version']);

  await tell('nothing is there', employees, 'find', [1], {operator: '>=', limit: 10});
  await tell('insert', changing, 'insert', [10, 7, 'Edgar', 35]);
  await tell('insert the same', changing, 'insert', [10, 7, 'Edgar', 35]);
  await tell('insert more', changing, 'insert', [11, 8, 'Chloé', 3]);
  await tell('insert an empty string', changing, 'insert', [12, 8, '', 4]);
  await tell('find', employees, 'find', [10], {limit: 1});
  await tell('find nothing', employees, 'find', [99], {limit: 1});
  await tell('find more', employees, 'find', [10], {operator: '>', limit: 10, offset: 0});
  await tell('find with offset', employees, 'find', [10], {operator: '>=', limit: 10, offset: 2});
  await tell('find with IN', employees, 'find', {in: [12, 10]}, {limit: 3});
  await tell('find with a filter', employees, 'find', [0], {operator: '>', limit: 5, filter: [0, '<=', 7]});
  await tell('find while', employees, 'find', [0], {operator: '>', limit: 5, while: [0, '<=', 7]});
  await tell('find by another key', byNumber, 'find', [8], {limit: 5});
  await tell('update', changing, 'update', [10], {set: [10, 9, 'Bill', 50]});
  await tell('update and get', changing, 'updateGet', [10], {set: [10, 9, 'Bob', 51]});
  await tell('increment', counted, 'increment', [10], {'+': 5});
  await tell('increment and get', counted, 'incrementGet', [10], {'+': 5});
  await tell('decrement', counted, 'decrement', [10], {'-': 1});
  await tell('decrement and get', counted, 'decrementGet', [10], {'-': 1});
  await tell('what is there', employees, 'find', [0], {operator: '>=', limit: 10});
  await tell('delete', changing, 'delete', [10]);
  await tell('delete again', changing, 'delete', [10]);
  await tell('delete and get', changing, 'deleteGet', [11], {operator: '>=', limit: 10});
  await tell('modify on the port for reading', employees, 'delete', [10]);
  told.push(['open', await opened(reader, 'nope', ['id']).then(() => 'opened', String)]);
}

main().then(() => console.log(JSON.stringify(told)), (error) => {
  console.error(error);
  process.exitCode = 1;
}).finally(() => setImmediate(() => process.exit()));
