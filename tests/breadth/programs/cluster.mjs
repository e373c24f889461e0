// A cluster of processes that share a port.
import cluster from 'node:cluster';
import http from 'node:http';
if (cluster.isPrimary) {
  for (let i = 0; i < 3; i++) cluster.fork();
  let up = 0, port;
  await new Promise(r => cluster.on('listening', (w, a) => { port = a.port; if (++up === 3) r(); }));
  let bytes = 0;
  const agent = new http.Agent({ keepAlive: true, maxSockets: 20 });
  await Promise.all(Array.from({ length: 400 }, () => new Promise((resolve, reject) => {
    http.get({ port, host: '127.0.0.1', agent }, res => { res.on('data', d => bytes += d.length); res.on('end', resolve); }).on('error', reject);
  })));
  agent.destroy();
  console.log('bytes', bytes);
  let codes = [];
  await new Promise(r => { cluster.on('exit', (w, code, signal) => { codes.push(code ?? signal); if (codes.length === 3) r(); }); cluster.disconnect(); });
  console.log('exits', codes.join(' '));
} else {
  http.createServer((q, s) => s.end('x'.repeat(10000))).listen(0, '127.0.0.1');
}
