// What pages cannot do by themselves: keep instants and live figures right. All else works without a script.

const skew = Date.parse(document.documentElement.dataset.now) - Date.now();
const units = [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]];

function duration(seconds) {
  const left = Math.max(Math.floor(seconds), 0);
  for (const [unit, size, below, under] of units) {
    if (left >= size) {
      const rest = Math.floor((left % size) / under);
      return rest ? `${Math.floor(left / size)} ${unit} ${rest} ${below}` : `${Math.floor(left / size)} ${unit}`;
    }
  }
  return `${left} s`;
}

function tellTimes() {
  const now = Date.now() + skew;
  for (const time of document.querySelectorAll("time[data-relative]")) {
    const seconds = (now - Date.parse(time.dateTime)) / 1000;
    const text = seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
    const shown = time.querySelector(".relative");
    if (shown && shown.textContent !== text) shown.textContent = text;
  }
}

const trusted = window.trustedTypes?.createPolicy("console", { createHTML: (text) => text }) ?? { createHTML: (text) => text };

// A part of the page that is alive is fetched again from its own address, and put in the place of the old one.
async function renew(live) {
  const response = await fetch(live.dataset.live, { credentials: "same-origin", redirect: "error", headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(String(response.status));
  const page = new DOMParser().parseFromString(trusted.createHTML(await response.text()), "text/html");
  const fresh = page.getElementById(live.id);
  if (fresh && !live.contains(document.activeElement)) live.replaceWith(document.importNode(fresh, true));
}

function keepAlive(id, seconds, button, told) {
  let running = true;
  let timer = 0;
  const say = (text) => { told.textContent = text; };
  const step = async () => {
    try {
      if (!document.hidden) await renew(document.getElementById(id));
      if (running) say(`Every ${seconds} s`);
    } catch {
      say("No answer. Sign in again, or wait.");
    }
    if (running) timer = setTimeout(step, seconds * 1000);
  };
  button.addEventListener("click", () => {
    running = !running;
    clearTimeout(timer);
    button.textContent = running ? "Pause" : "Go on";
    say(running ? `Every ${seconds} s` : "Paused");
    if (running) step();
  });
  timer = setTimeout(step, seconds * 1000);
}

for (const live of document.querySelectorAll("[data-live]")) {
  const bar = document.querySelector(`[data-live-bar="${live.id}"]`);
  if (!bar) continue;
  const told = document.createElement("span");
  const button = document.createElement("button");
  const seconds = Number(live.dataset.liveSeconds) || 5;
  told.className = "quiet";
  told.textContent = `Every ${seconds} s `;
  button.type = "button";
  button.textContent = "Pause";
  bar.append(told, " ", button);
  keepAlive(live.id, seconds, button, told);
}

// One box for all boxes of a table.
for (const table of document.querySelectorAll("table.choosing")) {
  const boxes = [...table.querySelectorAll('tbody input[type="checkbox"]')];
  const place = table.querySelector("thead th");
  if (!place || boxes.length < 2) continue;
  const every = document.createElement("input");
  every.type = "checkbox";
  every.setAttribute("aria-label", "Choose all of this page");
  every.addEventListener("change", () => boxes.forEach((box) => { box.checked = every.checked; }));
  place.replaceChildren(every);
}

tellTimes();
setInterval(tellTimes, 1000);
