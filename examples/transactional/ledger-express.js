// The service of ledger.js with Express: `charge` is the same.
//
//     npm install express pg
//     DATABASE_URL=postgresql://app@127.0.0.1/shop PORT=3000 node ledger-express.js

const express = require("express");
const { charge } = require("./ledger.js");

const app = express();
app.use(express.json());

app.post("/charges", async (request, response) => {
  try {
    const { headers, body } = await charge(request.get("onlyonce-lease"), request.body.cents);
    response.status(201).set(headers).send(body);
  } catch (error) {
    // ONCE1: another attempt has taken over, and its answer is the one that counts.
    response.status(503).set("x-sqlstate", error.code ?? "").send("rolled back");
  }
});

const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`listening on ${server.address().port}`);
});
