// The console's one script. Pages are whole without it; it keeps Now up to date from /api/v1/now
// while its tab is in sight, and adds "select all" to lists of outcomes.
"use strict";

(() => {
  const POLL_MS = 2000;
  const WIDTH = 600;
  const HEIGHT = 100;
  const SAMPLE_SECONDS = 5;
  const BAR_SECONDS = 4;
  const SERIES = ["new", "replayed", "in_progress", "conflicts", "refused"];

  const grouped = (number) => number.toLocaleString("en-US");
  const millis = (ms) => `${ms.toFixed(ms >= 10 ? 0 : 2)} ms`;
  const plain = (number) => String(Number(number.toFixed(2)));
  const second = (at) => `${at.slice(0, 19).replace("T", " ")} UTC`;
  const all = (counts) => SERIES.reduce((sum, name) => sum + counts[name], 0);

  function span(seconds) {
    const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${minutes} min ${seconds % 60} s`;
    if (seconds < 86400) return `${hours} h ${minutes % 60} min`;
    return `${days} d ${hours % 24} h`;
  }

  function nice(least, most) {
    let top = least;
    for (let turn = 0; top < most; turn += 1) top *= [2, 2.5, 2][turn % 3];
    return top;
  }

  function write(name, text) {
    for (const place of document.querySelectorAll(`[data-now="${name}"]`)) {
      if (place.textContent !== text) place.textContent = text;
    }
  }

  function numbers(now) {
    write("requests", grouped(all(now.totals)));
    write("hit_rate", `${(now.hit_rate * 100).toFixed(1)} %`);
    write("running", grouped(now.running));
    write("waiting", grouped(now.waiting));
    write("in_doubt", grouped(now.in_doubt));
    write("in_doubt_all", grouped(now.in_doubt));
    write("uptime", span(now.uptime_seconds));
    for (const name of SERIES) write(`totals.${name}`, grouped(now.totals[name]));
    document.querySelector(".count").hidden = now.in_doubt === 0;
    const at = document.querySelector("[data-at]");
    at.textContent = second(now.at);
    at.dateTime = now.at;
  }

  const left = (sample) => WIDTH - sample.seconds_ago - SAMPLE_SECONDS;

  function requests(samples) {
    const plot = document.querySelector('[data-plot="requests"]');
    const top = nice(1, Math.max(0, ...samples.map((sample) => all(sample.counts))));
    plot.querySelector("[data-scale]").textContent = plain(top / SAMPLE_SECONDS);
    const below = samples.map(() => 0);
    for (const path of plot.querySelectorAll("[data-series]")) {
      let d = "";
      samples.forEach((sample, index) => {
        const height = (sample.counts[path.dataset.series] / top) * HEIGHT;
        if (height === 0) return;
        below[index] += height;
        const y = (HEIGHT - below[index]).toFixed(1);
        d += `M${left(sample)} ${y}h${BAR_SECONDS}v${height.toFixed(1)}h-${BAR_SECONDS}z`;
      });
      path.setAttribute("d", d);
    }
    const labels = [...plot.querySelectorAll(".legend li")].map((item) => item.textContent);
    const counts = SERIES.map((name) => samples.reduce((sum, it) => sum + it.counts[name], 0));
    const words = counts.map((count, index) => `${count} ${labels[index]}`).join(", ");
    plot.querySelector("svg").setAttribute("aria-label", `Requests of the last ten minutes: ${words}`);
  }

  function told(number, unit) {
    if (unit === "ms" && number > 0 && number < 1) return `${plain(Math.round(number * 1000))} µs`;
    return unit ? `${plain(number)} ${unit}` : plain(number);
  }

  function line(name, samples, of, is_marked) {
    const plot = document.querySelector(`[data-plot="${name}"]`);
    const { title, unit, least } = plot.dataset;
    const measured = samples.filter((sample) => of(sample) !== null);
    const most = Math.max(0, ...measured.map(of));
    const top = nice(Number(least), most);
    const point = (sample) => {
      const y = HEIGHT - (of(sample) / top) * HEIGHT;
      return `${left(sample) + SAMPLE_SECONDS},${y.toFixed(1)}`;
    };
    plot.querySelector("[data-scale]").textContent = told(top, unit);
    plot.querySelector("polyline").setAttribute("points", measured.map(point).join(" "));
    const label = `${title}, last ten minutes: at most ${told(most, unit)}`;
    plot.querySelector("svg").setAttribute("aria-label", label);
    const mark = (sample) => `M${left(sample)} 0h${SAMPLE_SECONDS}v${HEIGHT}h-${SAMPLE_SECONDS}z`;
    const marks = plot.querySelector("[data-marked]");
    if (marks) marks.setAttribute("d", samples.filter(is_marked).map(mark).join(""));
  }

  function cell(kind, text, name) {
    const made = document.createElement(kind);
    if (kind === "th") made.scope = "row";
    if (name) made.className = name;
    made.append(text);
    return made;
  }

  function badge(is_up) {
    const made = document.createElement("span");
    made.className = is_up ? "badge good" : "badge bad";
    made.textContent = is_up ? "up" : "down";
    return made;
  }

  function rows(name, items, cells) {
    const body = document.querySelector(`[data-table="${name}"] tbody`);
    if (!body) return;
    const made = items.map((item) => {
      const row = document.createElement("tr");
      row.append(...cells(item));
      return row;
    });
    body.replaceChildren(...made);
  }

  function tables(now) {
    rows("store", now.store, (it) => [
      cell("th", it.name),
      cell("td", grouped(it.count), "number"),
      cell("td", grouped(it.errors), "number"),
      cell("td", millis(it.mean_ms), "number"),
      cell("td", it.p99_ms === null ? "—" : millis(it.p99_ms), "number"),
    ]);
    rows("upstreams", now.upstreams, (it) => {
      const last = it.last_failure;
      return [
        cell("th", it.name),
        cell("td", badge(it.up)),
        cell("td", grouped(it.failures), "number"),
        cell("td", last ? `${last.kind}, ${second(last.at)}: ${last.cause}` : "none", "cause"),
      ];
    });
  }

  // Whether it is ready costs a question to the store, so it is asked only in trouble.
  async function trouble(now) {
    const notice = document.querySelector("[data-trouble]");
    if (now.breaker === "closed" && notice.hidden) return;
    const answer = await fetch("/readyz", { cache: "no-store" });
    if (!answer.ok) {
      const why = notice.querySelector("[data-why]");
      const { detail } = await answer.json();
      if (why.textContent !== detail) why.textContent = detail;
    }
    notice.hidden = answer.ok;
  }

  function show(now) {
    numbers(now);
    requests(now.samples);
    line("hit_rate", now.samples, (it) => (it.hit_rate === null ? null : it.hit_rate * 100));
    line("store", now.samples, (sample) => sample.store_ms);
    line("waiting", now.samples, (sample) => sample.waiting);
    line("upstreams", now.samples, (it) => it.upstream_failures, (it) => it.upstreams_down > 0);
    tables(now);
    return trouble(now);
  }

  function live() {
    const said = document.querySelector("[data-said]");
    const button = document.querySelector("[data-pause]");
    let is_paused = false;
    let timer;

    // Only what changes is announced.
    const say = (text) => {
      if (said.textContent !== text) said.textContent = text;
    };

    async function poll() {
      clearTimeout(timer);
      if (is_paused || document.hidden) return;
      try {
        const answer = await fetch("/api/v1/now", { cache: "no-store", credentials: "same-origin" });
        if (answer.status === 401) {
          say("You are logged out. Reload the page to log in.");
          return;
        }
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        await show(await answer.json());
        say("Live");
      } catch {
        say("The gateway does not answer; trying again");
      }
      clearTimeout(timer);
      timer = setTimeout(poll, POLL_MS);
    }

    button.hidden = false;
    button.addEventListener("click", () => {
      is_paused = !is_paused;
      button.textContent = is_paused ? "Go on" : "Pause";
      if (is_paused) say("Paused");
      poll();
    });
    document.addEventListener("visibilitychange", poll);
    poll();
  }

  function selection() {
    const head = document.querySelector("[data-select]");
    const boxes = [...document.querySelectorAll('input[type="checkbox"][name="attempt"]')];
    if (!head || boxes.length === 0) return;
    const every = document.createElement("input");
    every.type = "checkbox";
    every.setAttribute("aria-label", "Select all of this page");
    every.addEventListener("change", () => {
      for (const box of boxes) box.checked = every.checked;
    });
    for (const box of boxes) {
      box.addEventListener("change", () => {
        every.checked = boxes.every((it) => it.checked);
      });
    }
    head.replaceChildren(every);
  }

  if (document.querySelector("[data-live]")) live();
  selection();
})();
