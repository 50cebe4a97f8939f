// Light and dark colors: the system's, or the reader's choice.
import { byId } from "./dom.js";

function kept() { try { return localStorage.getItem("hone.theme"); } catch { return null; } }

export function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const follow = () => { root.dataset.theme = kept() ?? (dark.matches ? "dark" : "light"); };
  follow();
  dark.onchange = follow;
  byId("theme").onclick = () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("hone.theme", root.dataset.theme); } catch { /* the setting lasts as long as the page */ }
  };
}
