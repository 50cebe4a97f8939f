// The page of runs: the list of runs, and the view of those that are chosen. It asks the server again every two seconds.
import { Completions } from "./completions.js";
import { Curves } from "./curves.js";
import { byId, element } from "./dom.js";
import { Evaluations } from "./evaluations.js";
import { Profiles } from "./profile.js";
import { ApiError, listRuns, Metrics } from "./runs.js";
import { followTheme } from "./theme.js";

const PAUSE = 2000;       // milliseconds between two questions
const LIVE_SECONDS = 60;  // a run that has written something since is shown as running

let runs = [];             // of the server's list, with {color, metrics}
const chosen = new Map();  // id -> true or false, as the reader decided
const metrics = new Map();
let view = "curves";
let polling = null;

function kept(name) { try { return sessionStorage.getItem(name) ?? ""; } catch { return ""; } }
const key = () => byId("key").value.trim();

function fail(error) {
  if (!(error instanceof ApiError)) throw error;
  byId("state").textContent = error.status === 401 ? "API key needed" : error.message;
  if (error.status === 401 && !byId("key-dialog").open) byId("key-dialog").showModal();
}

const views = {
  curves: new Curves(byId("view")),
  completions: new Completions(byId("view"), key, fail),
  evaluations: new Evaluations(byId("view"), key, fail),
  profiles: new Profiles(byId("view"), key, fail),
};

// Runs are shown unless the reader has decided otherwise; of many, the first eight.
const isChosen = (run) => chosen.get(run.id) ?? (view !== "curves" || run.metrics !== true || run.rank < 8);
// Each view lists the runs that have its files.
const belongs = (run) => ({ curves: run.metrics, completions: run.completions.length > 0, evaluations: run.results,
  profiles: run.profile }[view]);

function label(run) {
  const last = metrics.get(run.id)?.last;
  if (run.metrics && last !== null && last !== undefined) return `step ${last.toLocaleString("en-US")}`;
  return run.metrics ? "" : run.results ? "evaluation" : "profile";
}

let drawn = "";
function drawList() {
  const shown = runs.filter(belongs);
  const state = JSON.stringify(shown.map((run) => [run.id, run.color, isChosen(run), run.age < LIVE_SECONDS, label(run)]));
  if (state === drawn) return;  // what has the focus keeps it
  drawn = state;
  byId("list").replaceChildren(...shown.map((run) => {
    const box = element("input", { type: "checkbox", checked: isChosen(run) });
    box.onchange = () => { chosen.set(run.id, box.checked); draw(); };
    const live = run.metrics && run.age < LIVE_SECONDS;
    return element("label", { class: `run c${run.color}${live ? " live" : ""}`, title: live ? "is writing" : "" }, box,
                   element("span", { class: "swatch" }), element("span", { class: "name", dir: "auto" }, run.name),
                   element("span", { class: "figure" }, label(run)));
  }));
  if (shown.length === 0) byId("list").append(element("div", { class: "quiet" }, "None yet"));
}

function draw() {
  for (const tab of byId("tabs").children) tab.setAttribute("aria-selected", String(tab.dataset.view === view));
  for (const [name, one] of Object.entries(views)) one.root.hidden = name !== view;
  drawList();
  const shown = runs.filter((run) => belongs(run) && isChosen(run));
  views[view].show(view === "curves" ? shown.map((run) => ({ name: run.name, color: run.color, metrics: metrics.get(run.id) }))
    .filter((run) => run.metrics) : shown);
}

async function poll() {
  clearTimeout(polling);
  try {
    const list = await listRuns(key());
    byId("root").textContent = list.cut ? `${list.root} (only a part: it has too many folders)` : list.root;
    document.title = `${list.root} · hone`;
    runs = list.runs.map((run) => ({ ...run, name: run.id === "." ? list.root : run.id }));
    let rank = 0;
    runs.forEach((run, i) => { run.color = i % 8; run.rank = run.metrics ? rank++ : 0; });
    for (const id of metrics.keys()) if (!runs.some((run) => run.id === id)) metrics.delete(id);
    for (const run of runs.filter((run) => run.metrics && (isChosen(run) || metrics.has(run.id)))) {
      if (!metrics.has(run.id)) metrics.set(run.id, new Metrics(run.id));
      await metrics.get(run.id).update(key());
    }
    const bad = [...metrics.values()].reduce((sum, one) => sum + one.bad, 0);
    byId("state").textContent = bad > 0 ? `${bad} lines of metrics.jsonl could not be read` : "";
    draw();
  } catch (error) {
    fail(error);
  }
  if (!document.hidden && !byId("key-dialog").open) polling = setTimeout(poll, PAUSE);
}

function choose(name) {
  if (!Object.hasOwn(views, name)) return;
  view = name;
  history.replaceState(null, "", `#${name}`);
  draw();
}

for (const tab of byId("tabs").children) tab.onclick = () => choose(tab.dataset.view);
byId("menu").onclick = () => document.body.classList.toggle("menu");
byId("shade").onclick = () => document.body.classList.remove("menu");
byId("key").value = kept("hone.key");
byId("key").onchange = () => { try { sessionStorage.setItem("hone.key", key()); } catch { /* lasts as long as the page */ } };
byId("key-done").onclick = () => byId("key-dialog").close();
byId("key-dialog").onclose = poll;
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") document.body.classList.remove("menu"); });
followTheme();
// At /watch the page belongs to a server with a model, whose page for conversations is at /.
byId("chat-link").hidden = !location.pathname.endsWith("/watch");
choose(location.hash.slice(1) || "curves");
poll();
