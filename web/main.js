// The page: history, settings, and a conversation with the server that sent it.
import { ApiError, chat, models, version } from "./api.js";
import { byId, element } from "./dom.js";
import * as store from "./store.js";
import { followTheme } from "./theme.js";
import { messageElement, showAnswer } from "./view.js";

const SETTINGS = ["system", "temperature", "top_p", "max_tokens", "seed"];
const input = byId("input");
const scroll = byId("scroll");

let conversations = [];
let current = store.conversation();
let running = null;  // {conversation, message, controller} of the answer under way
let online = true;

function kept(name, fallback) {
  try { return localStorage.getItem(`hone.${name}`) ?? fallback; } catch { return fallback; }
}
function keep(name, value) {
  try { localStorage.setItem(`hone.${name}`, value); } catch { /* the setting lasts as long as the page */ }
}
const key = () => byId("key").value.trim();

// --- the server

let polling = null;
function setState(text) {
  online = !text;
  byId("state").textContent = text;
}
async function loadModels() {
  clearTimeout(polling);
  try {
    const names = await models(key());
    const chosen = byId("model").value || kept("model", "");
    byId("model").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    byId("model").value = names.includes(chosen) ? chosen : names[0];
    setState("");
    polling = setTimeout(loadModels, 15000);
  } catch (error) {
    setState(error.status === 401 ? "API key needed" : error.message);
    if (error.status === 401 && !byId("settings").open) { byId("settings").showModal(); byId("key").focus(); }
    else polling = setTimeout(loadModels, 2000);
  }
}

// A server that was started with --runs has a page of them.
async function showRunsLink() {
  try { byId("runs").hidden = (await version()).runs !== true; } catch { /* the link stays hidden */ }
}

function requestBody(path) {
  const setting = (name) => byId(name).value.trim();
  const messages = path.filter((message) => message.content || message.role === "user")
    .map(({ role, content }) => ({ role, content }));
  if (setting("system")) messages.unshift({ role: "system", content: setting("system") });
  const body = { model: byId("model").value, messages };
  for (const name of SETTINGS.slice(1)) if (setting(name) !== "") body[name] = Number(setting(name));
  return body;
}

// Adds what has arrived to a message. The time begins with the request; the speed counts from the first token.
function take(message, delta, times) {
  const thought = delta.reasoning ?? "";
  if (thought || delta.content) times.first ??= performance.now();
  if (thought) message.thought = (message.thought ?? "") + thought;
  if (delta.content) {
    if (message.thought && message.thoughtTime === undefined) message.thoughtTime = performance.now() - times.begin;
    message.content += message.content || !message.thought ? delta.content : delta.content.trimStart();
  }
  if (delta.finish) message.finish = delta.finish;
  if (delta.usage) message.tokens = delta.usage.completion_tokens;
}

async function generate(parent) {
  const conversation = current;
  const body = requestBody(store.branch(conversation));
  const message = store.add(conversation, parent, "assistant", "");
  const times = { begin: performance.now() };
  const own = { conversation, message, controller: new AbortController() };
  running = own;
  draw(true);
  try {
    for await (const delta of chat(body, key(), own.controller.signal)) {
      take(message, delta, times);
      update();
    }
  } catch (error) {
    if (error.name === "AbortError") message.finish = "stopped";
    else message.error = error.message;
    if (error instanceof ApiError && (error.status === 0 || error.status === 401)) loadModels();
  }
  message.time = performance.now() - (times.first ?? times.begin);
  if (message.thought) message.thoughtTime ??= performance.now() - times.begin;
  running = null;
  await saved(conversation);
  if (conversation === current) draw(false);
}

// --- the conversation

let waiting = false;
let late = false;  // something has arrived while the page was waiting
const nearEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
function showRunning() {
  const shown = byId("messages").lastElementChild?.shown;
  if (!running || running.conversation !== current || !shown) return;
  const follow = nearEnd();
  showAnswer(shown, running.message, true);
  if (follow) scroll.scrollTop = scroll.scrollHeight;
}
// Shows the answer under way, at most 30 times a second and in at most a fifth of the time, so that the page reacts to
// keys however long a paragraph becomes.
function update() {
  late = waiting;
  if (waiting) return;
  waiting = true;
  const begin = performance.now();
  showRunning();
  setTimeout(() => { waiting = false; if (late) update(); }, Math.max(33, 4 * (performance.now() - begin)));
}

const actions = {
  draw: () => draw(false),
  choose(message) { if (!running) { store.follow(current, message); saved(current); draw(false); } },
  edit(message, text) { if (!running) send(text, message.parent); },
  regenerate(message) { if (!running) { current.leaf = message.parent; generate(message.parent); } },
};

function draw(toEnd) {
  const path = store.branch(current);
  const top = scroll.scrollTop;
  const list = byId("messages");
  list.replaceChildren(...path.map((message) => messageElement(message, store.children(current, message.parent), actions)));
  if (path.length === 0)
    list.append(element("div", { class: "empty" }, element("h1", {}, "What shall we work on?"),
                        element("div", {}, "Conversations stay in this browser.")));
  const here = running?.conversation === current;
  if (here) showAnswer(list.lastElementChild.shown, running.message, true);
  document.body.classList.toggle("running", running !== null);
  byId("send").textContent = running ? "Stop" : "Send";
  document.title = current.title ? `${current.title} · hone` : "hone";
  scroll.scrollTop = toEnd ? scroll.scrollHeight : top;
  drawList();
}

async function saved(conversation) {
  conversation.changed = Date.now();
  if (!conversations.includes(conversation)) conversations.push(conversation);
  try { await store.save(conversation); } catch (error) { setState(`The history cannot be saved: ${error.message}`); }
}

async function send(text, parent) {
  if (running || !text.trim()) return;
  const message = store.add(current, parent, "user", text.trim());
  current.title ||= text.trim().split("\n")[0].slice(0, 80);
  saved(current);
  await generate(message.id);
}

// --- history

function drawList() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = conversations.filter((one) => store.matches(one, words)).sort((a, b) => b.changed - a.changed);
  byId("list").replaceChildren(...found.map((one) => {
    const title = element("button", { class: "title", title: one.title }, one.title || "Untitled");
    title.onclick = () => open(one);
    const remove = element("button", { class: "remove", label: `Delete ${one.title}` }, "×");
    remove.onclick = async () => {
      if (!confirm(`Delete "${one.title}"?`)) return;
      if (running?.conversation === one) running.controller.abort();
      conversations = conversations.filter((other) => other !== one);
      await store.remove(one.id);
      if (one === current) open(store.conversation()); else drawList();
    };
    return element("div", { class: one === current ? "entry on" : "entry" }, title, remove);
  }));
}
function open(conversation) {
  current = conversation;
  document.body.classList.remove("menu");
  draw(true);
  input.focus();
}

function exportAll() {
  const blob = new Blob([JSON.stringify({ format: "hone.conversations", version: 1, conversations }, null, 1)], { type: "application/json" });
  const link = element("a", { href: URL.createObjectURL(blob), download: "hone-conversations.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
async function importFile(file) {
  let list = null;
  try { list = JSON.parse(await file.text()).conversations; } catch { /* reported below */ }
  if (!Array.isArray(list) || !list.every(store.valid)) return alert(`${file.name} holds no conversations that this page has exported`);
  for (const one of list) {
    conversations = conversations.filter((other) => other.id !== one.id);
    conversations.push(one);
    await store.save(one);
  }
  open(list.find((one) => one.id === current.id) ?? current);
}

// --- controls

function grow() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
}
function submit() {
  if (running) return running.controller.abort();
  const text = input.value;
  if (!text.trim() || !online) return;
  input.value = "";
  grow();
  send(text, current.leaf);
}
function connectControls() {
  input.oninput = grow;
  input.onkeydown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) submit();
  };
  byId("send").onclick = submit;
  byId("new").onclick = () => open(store.conversation());
  byId("search").oninput = drawList;
  byId("export").onclick = exportAll;
  byId("import").onclick = () => byId("import-file").click();
  byId("import-file").onchange = async ({ target }) => { await importFile(target.files[0]); target.value = ""; };
  byId("menu").onclick = () => document.body.classList.toggle("menu");
  byId("shade").onclick = () => document.body.classList.remove("menu");
  byId("model").onchange = ({ target }) => keep("model", target.value);
  byId("settings-button").onclick = () => byId("settings").showModal();
  byId("settings-close").onclick = () => byId("settings").close();
  byId("settings").onclose = () => { loadModels(); input.focus(); };
  byId("key").onchange = () => { try { sessionStorage.setItem("hone.key", key()); } catch { /* lasts as long as the page */ } };
  for (const name of SETTINGS) {
    byId(name).value = kept(name, "");
    byId(name).onchange = ({ target }) => keep(name, target.value);
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running && !byId("settings").open) running.controller.abort();
    if (event.key === "Escape") document.body.classList.remove("menu");
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      document.body.classList.add("menu");
      byId("search").focus();
    }
    if (event.altKey && event.code === "KeyN") { event.preventDefault(); open(store.conversation()); }
  });
}

followTheme();
try { byId("key").value = sessionStorage.getItem("hone.key") ?? ""; } catch { /* no key is kept */ }
connectControls();
draw(true);
loadModels();
showRunsLink();
conversations = await store.open();
drawList();
