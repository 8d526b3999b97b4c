// The trivial handler as a Restate service. The Restate server calls it, and keeps what it answered.
import fs from 'node:fs';
import http2 from 'node:http2';
import * as restate from '@restatedev/restate-sdk';

// The SDK asks for a newer Node.js than some systems have; this is all it needs of it.
Promise.withResolvers ??= function withResolvers() {
  const parts = {};
  parts.promise = new this((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
};

const answer = 'r'.repeat(198);
let runs = 0;

const payments = restate.service({
  name: 'payments',
  handlers: {
    pay: async () => answer,
    slow: async () => {
      const run = runs++;
      fs.appendFileSync(process.env.RUNS, '.');
      await new Promise((done) => setTimeout(done, 100));
      return { run };
    },
  },
});

const endpoint = restate.createEndpointHandler({ services: [payments] });
http2.createServer(endpoint).listen(Number(process.env.PORT), '127.0.0.1');
