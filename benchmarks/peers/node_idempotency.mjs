// A reverse proxy on Node's http server whose POST requests go through @node-idempotency/core, on Redis.
import http from "node:http";
import { Idempotency, IdempotencyError } from "@node-idempotency/core";
import { RedisStorageAdapter } from "@node-idempotency/storage-adapter-redis";
import { Agent, request } from "undici";

const { UPSTREAM, REDIS, PORT } = process.env;
const HOP_BY_HOP = new Set(["host", "connection", "keep-alive", "content-length", "transfer-encoding"]);
const REFUSALS = {
  IDEMPOTENCY_KEY_LEN_EXEEDED: 400,
  IDEMPOTENCY_KEY_MISSING: 400,
  IDEMPOTENCY_FINGERPRINT_MISSMATCH: 422,
  REQUEST_IN_PROGRESS: 409,
};

const storage = new RedisStorageAdapter({ url: REDIS });
await storage.connect();
const idempotency = new Idempotency(storage, { cacheKeyPrefix: "benchmark" });
const dispatcher = new Agent({ connections: 256 });

function endToEnd(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !HOP_BY_HOP.has(name)));
}

async function read(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

async function answer(incoming, outgoing) {
  const body = await read(incoming);
  const operation = { headers: incoming.headers, path: incoming.url, method: incoming.method, body: JSON.parse(body) };
  const stored = await idempotency.onRequest(operation);
  if (stored) {
    outgoing.writeHead(stored.additional.status, { ...stored.additional.fields, "idempotent-replayed": "true" });
    outgoing.end(Buffer.from(stored.body, "base64"));
    return;
  }
  const response = await request(UPSTREAM + incoming.url, {
    method: incoming.method,
    headers: endToEnd(incoming.headers),
    body,
    dispatcher,
  });
  const content = Buffer.from(await response.body.arrayBuffer());
  const additional = { status: response.statusCode, fields: endToEnd(response.headers) };
  await idempotency.onResponse(operation, { additional, body: content.toString("base64") });
  outgoing.writeHead(additional.status, additional.fields);
  outgoing.end(content);
}

const server = http.createServer(async (incoming, outgoing) => {
  try {
    await answer(incoming, outgoing);
  } catch (error) {
    outgoing.writeHead(error instanceof IdempotencyError ? (REFUSALS[error.code] ?? 500) : 502);
    outgoing.end(String(error.message));
  }
});
server.listen(Number(PORT), "127.0.0.1");
