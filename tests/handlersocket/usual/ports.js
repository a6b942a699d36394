// Loaded before the package's own tests, which name the ports: PORTS has, as JSON, the ports to connect to instead.
'use strict';
const net = require('net');
const ports = JSON.parse(process.env.PORTS);
const connect = net.Socket.prototype.connect;

net.Socket.prototype.connect = function(port, ...rest) {
  return connect.call(this, ports[port], ...rest);
};
