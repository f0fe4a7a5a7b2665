// A client as an application writes it around fetch: one key for all tries, a pause as the server asks, a bounded number of tries.
const [url, token, key, body] = process.argv.slice(2);
const TRIES = 3;
const WORTH_ANOTHER_TRY = new Set([409, 502, 503, 504]);

async function send() {
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "application/x-www-form-urlencoded",
    "idempotency-key": key,
  };
  const response = await fetch(url, { method: "POST", headers, body });
  return { status: response.status, headers: response.headers, body: await response.text() };
}

let answer;
let failure;
for (let left = TRIES; left > 0; left -= 1) {
  try {
    answer = await send();
  } catch (error) {
    failure = error;
    continue;
  }
  if (!WORTH_ANOTHER_TRY.has(answer.status) || left === 1) break;
  const seconds = Number(answer.headers.get("retry-after") ?? 0.1);
  await new Promise((resume) => setTimeout(resume, seconds * 1000));
}
if (answer === undefined) throw failure;
console.log(JSON.stringify({ status: answer.status, replayed: answer.headers.get("idempotent-replayed"), body: answer.body }));
