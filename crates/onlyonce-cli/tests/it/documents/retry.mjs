// Runs the functions by which clients of the documents retry, as they are written. They ask by
// paths, without a host; `fetch` adds it. Time is not waited for: `sleep` notes how long it would
// take, and a request that is lost times out at once.

import { readFileSync } from 'node:fs';

const [base, script, names, scenario] = process.argv.slice(2);
const key = `idem_${crypto.randomUUID()}`;
const heard = [];
const slept = [];
const keys = [];
let timeout = () => {};
let lost = 0;
let unsent = 0;

const setTimer = (run, ms) => {
  timeout = run;
  return setTimeout(run, ms);
};
const sleep = async (ms) => {
  slept.push(ms);
};

async function ask(path, options) {
  keys.push(options.headers['Idempotency-Key']);
  if (unsent > 0) {
    unsent -= 1;
    return never(options.signal);
  }
  const { signal, ...sent } = options;
  const answer = await fetch(base + path, { ...sent, signal: lost > 0 ? undefined : signal });
  if (lost > 0) {
    lost -= 1;
    await answer.text();
    return never(signal);
  }
  heard.push([answer.status, answer.headers.get('idempotent-replayed')]);
  return answer;
}

// An answer that does not come: it times out, or the connection breaks where there is no timeout.
function never(signal) {
  if (!signal) {
    return Promise.reject(new TypeError('fetch failed'));
  }
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
    timeout();
  });
}

const source = `${readFileSync(script, 'utf8')}\nreturn { ${names} };`;
const quiet = { log: () => {} };
const document = new Function('fetch', 'setTimeout', 'sleep', 'console', source)(
  ask, setTimer, sleep, quiet);

const fields = { companyName: 'Acme Corp' };
const submit = async (fields) => {
  if (document.FormBridgeClient) {
    const client = new document.FormBridgeClient();
    return document.submitWithRetry(client, 'vendor-onboarding', fields);
  }
  const answer = await document.submitWithRetry('vendor-onboarding', fields, key);
  return answer.json();
};
const scenarios = {
  succeeded: () => {
    lost = 1;
    return submit(fields);
  },
  failed: () => {
    unsent = 1;
    return submit(fields);
  },
  running: async () => {
    const [one, other] = await Promise.all([submit(fields), submit(fields)]);
    return { submissionId: one.submissionId, other: other.submissionId };
  },
  conflict: async () => {
    await submit(fields);
    const refused = await submit({ companyName: 'Evil Corp' }).catch((error) => error.message);
    return { refused };
  },
  hopeless: async () => {
    unsent = 3;
    return { refused: await submit(fields).catch((error) => error.message) };
  },
};
const result = await scenarios[scenario]();
console.log(JSON.stringify({ result, heard, slept, keys: new Set(keys).size }));
process.exit(0);
