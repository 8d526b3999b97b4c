// A service whose rows and whose answer are committed together, behind `onlyonce gateway`.
//
//     npm install pg
//     DATABASE_URL=postgresql://app@127.0.0.1/shop PORT=3000 node ledger.js
//
// The gateway's route says `transactional = true`, and its store is in the same database.
// ledger-express.js has it with Express.

const http = require("node:http");
const { Client } = require("pg");

// The name of the function: another one if the store's URL names a table.
const COMPLETE = process.env.COMPLETE ?? "onlyonce_complete";

// Dies as by SIGKILL if the tests ask for it here.
function crash(point) {
  if (process.env.CRASH_AT === point) process.kill(process.pid, "SIGKILL");
}

// Books the charge and stores the answer to it, in one transaction.
async function charge(lease, cents) {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  try {
    await client.query("BEGIN");
    const made = await client.query("INSERT INTO ledger (cents) VALUES ($1) RETURNING id", [cents]);
    const headers = { "content-type": "application/json" };
    const body = Buffer.from(JSON.stringify({ charge: Number(made.rows[0].id), cents }));
    crash("before-complete");
    if (lease !== undefined) {
      await client.query(`SELECT ${COMPLETE}($1, $2, $3::jsonb, $4)`, [
        lease,
        201,
        JSON.stringify(headers),
        body,
      ]);
    }
    crash("before-commit");
    await client.query("COMMIT");
    crash("after-commit");
    return { headers, body };
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  } finally {
    await client.end().catch(() => {});
  }
}

const server = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const asked = JSON.parse(Buffer.concat(chunks));
  try {
    const { headers, body } = await charge(request.headers["onlyonce-lease"], asked.cents);
    response.writeHead(201, headers).end(body);
  } catch (error) {
    // ONCE1: another attempt has taken over, and its answer is the one that counts.
    response.writeHead(503, { "x-sqlstate": error.code ?? "" }).end("rolled back");
  }
});

if (require.main === module) {
  server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
    console.log(`listening on ${server.address().port}`);
  });
}

module.exports = { charge };
