// express-idempotency in front of the trivial handler, with its own store in memory.
const fs = require('fs');
const express = require('express');
const { idempotency, getSharedIdempotencyService } = require('express-idempotency');

const answer = JSON.stringify('r'.repeat(198));
let runs = 0;

const app = express();
app.disable('x-powered-by');
app.use(express.json());
app.use(idempotency());

// The middleware goes on to the handler in any case, and the handler has to ask.
const once = (handler) => (request, response) => {
  if (!getSharedIdempotencyService().isHit(request)) handler(response);
};

app.post('/payments', once((response) => response.type('json').send(answer)));
app.post('/slow', once((response) => {
  const run = runs++;
  fs.appendFileSync(process.env.RUNS, '.');
  setTimeout(() => response.type('json').send(JSON.stringify({ run })), 100);
}));
// A conflict has its status already, and is no reason to write a stack to the terminal.
app.use((error, request, response, next) => {
  if (response.headersSent) return;
  response.json({ error: error.message });
});

app.listen(Number(process.env.PORT), '127.0.0.1');
