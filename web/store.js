// Conversations, kept in the browser's IndexedDB. A conversation is a tree: each message names its parent, and `leaf`
// is the last message of the branch that is shown.
let database = null;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});
const rows = (mode) => database.transaction("conversations", mode).objectStore("conversations");

// Returns all conversations. Without IndexedDB (a private window) the page works and forgets.
export async function open() {
  try {
    const request = indexedDB.open("hone", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("conversations", { keyPath: "id" });
    database = await done(request);
    return (await done(rows("readonly").getAll())).filter(valid);
  } catch {
    database = null;
    return [];
  }
}
export const save = async (conversation) => { if (database) await done(rows("readwrite").put(conversation)); };
export const remove = async (id) => { if (database) await done(rows("readwrite").delete(id)); };

export const identifier = () => Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");
export const conversation = () => ({ id: identifier(), title: "", changed: Date.now(), messages: {}, leaf: null });

// Returns true if a value, which may come from a file, is a conversation whose branches all begin at a root.
export function valid(value) {
  if (typeof value?.id !== "string" || typeof value.title !== "string" || !Number.isFinite(value.changed)) return false;
  const messages = value.messages;
  if (typeof messages !== "object" || messages === null || (value.leaf !== null && !Object.hasOwn(messages, value.leaf))) return false;
  const sound = new Set([null]);
  for (const first of Object.keys(messages)) {
    const path = new Set();
    for (let id = first; !sound.has(id); id = messages[id].parent) {
      const one = Object.hasOwn(messages, id) ? messages[id] : null;
      if (one === null || path.has(id) || one.id !== id || one.parent === undefined ||
          !["user", "assistant"].includes(one.role) || typeof one.content !== "string" ||
          typeof (one.thought ?? "") !== "string") return false;
      path.add(id);
    }
    for (const id of path) sound.add(id);
  }
  return true;
}

// Returns the messages from the root to the leaf.
export function branch(conversation) {
  const path = [];
  for (let id = conversation.leaf; id !== null; id = conversation.messages[id].parent) path.unshift(conversation.messages[id]);
  return path;
}
export const children = (conversation, parent) =>
  Object.values(conversation.messages).filter((message) => message.parent === parent).sort((a, b) => a.made - b.made);

export function add(conversation, parent, role, content) {
  const message = { id: identifier(), parent, role, content, made: Date.now() + Math.random() };
  conversation.messages[message.id] = message;
  conversation.leaf = message.id;
  return message;
}
// Shows the branch of a message: its latest children are followed to their end.
export function follow(conversation, message) {
  let id = message.id;
  for (let next = children(conversation, id); next.length > 0; next = children(conversation, id)) id = next.at(-1).id;
  conversation.leaf = id;
}

export function matches(conversation, words) {
  const text = [conversation.title, ...Object.values(conversation.messages).map((message) => message.content)].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}
