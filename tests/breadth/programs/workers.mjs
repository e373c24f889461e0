// Worker threads: messages, shared memory with Atomics.wait, and ending while they wait.
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
if (isMainThread) {
  const shared = new Int32Array(new SharedArrayBuffer(1024));
  const workers = Array.from({ length: 8 }, (_, id) => new Worker(new URL(import.meta.url), { workerData: { id, shared } }));
  const ended = workers.slice(0, 4).map(w => new Promise(r => w.on('exit', r)));
  const sums = await Promise.all(workers.map(w => new Promise((resolve, reject) => {
    w.on('message', resolve); w.on('error', reject); w.postMessage(100000);
  })));
  console.log('sums', sums.join(' '));
  for (let round = 0; round < 200; round++) { Atomics.add(shared, 0, 1); Atomics.notify(shared, 0); await null; }
  Atomics.store(shared, 1, 1); Atomics.notify(shared, 0);
  await Promise.all(ended);
  console.log('terminated', (await Promise.all(workers.slice(4).map(w => w.terminate()))).length);
  console.log('count', Atomics.load(shared, 2));
} else {
  const { id, shared } = workerData;
  parentPort.once('message', n => {
    let sum = 0;
    for (let i = 0; i < n; i++) { sum += JSON.parse(JSON.stringify({ v: i % 7 })).v; }
    for (let i = 0; i < 1000; i++) Atomics.add(shared, 2, 1);
    parentPort.postMessage(sum);
    if (id >= 4) { for (;;) Atomics.wait(shared, 3, 0); }
    while (!Atomics.load(shared, 1)) Atomics.wait(shared, 0, Atomics.load(shared, 0), 50);
  });
}
