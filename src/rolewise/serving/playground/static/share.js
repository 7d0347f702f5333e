// The conversation as text to take away: a curl command, JSON, a link. Keys are never part of it.

import { hasKey } from "./api.js";
import { byId } from "./text.js";

const MOST = 16000;  // characters of a link

/** A request to the API as a shell command. */
export function curl(body) {
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  const key = hasKey() ? " \\\n  -H \"Authorization: Bearer $ROLEWISE_API_KEY\"" : "";
  const address = new URL("v1/chat/completions", document.baseURI).href.replaceAll("'", "%27");
  return `curl '${address}'${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
}

/** What is on the page as the hash of its address; null when it is too long. */
export function packed(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  const hash = text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return hash.length > MOST ? null : `#s=${hash}`;
}

/** The state that an address carries; null when it has none, or none that we understand. */
export function unpacked(hash) {
  const found = /^#s=([\w-]+)$/.exec(hash);
  if (!found || found[1].length > MOST) return null;
  try {
    const bytes = Uint8Array.from(atob(found[1].replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
    return checked(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)));
  } catch {
    return null;
  }
}

// A link comes from anybody: take strings and numbers where they belong, and nothing else.
function checked(state) {
  if (state === null || typeof state !== "object" || Array.isArray(state)) return null;
  const text = (value) => (typeof value === "string" ? value : "");
  const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);
  const list = (value) => (Array.isArray(value) ? value.filter((one) => typeof one === "string") : []);
  return {
    system: text(state.system),
    user: text(state.user),
    data: list(state.data),
    witness: text(state.witness),
    columns: list(state.columns),
    temperature: number(state.temperature),
    max_tokens: number(state.max_tokens),
    seed: number(state.seed),
  };
}

/** Put text on the clipboard, or show it to be copied by hand. Resolves to what to tell. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    return `Copied ${what}.`;
  } catch {
    const dialog = byId("copy-dialog");
    byId("copy-text").value = text;
    dialog.showModal();
    byId("copy-text").select();
    return "";
  }
}
