// The tokens of the prompt as the model reads them, in runs of one role.

import { postJson } from "./api.js";
import { append, byId, button, make, visible } from "./text.js";

const MOST = 3000;  // more tokens at once make a page slow

const tokenOf = ([text, id, control]) => {
  const element = make("span", control ? "token control" : "token");
  element.title = `${control ? "control token " : "token "}${id}`;
  if (control) element.append(make("span", "hidden", "control token "));
  for (const part of text.split(/(?<=\n)|(\t)/)) {
    if (!part) continue;
    const line = part.endsWith("\n");
    const shown = line ? part.slice(0, -1) : part;
    if (shown === "\t") element.append(make("span", "sign", "⇥\t"));
    else append(element, shown);
    if (line) element.append(make("span", "sign", "⏎"), "\n");
  }
  return element;
};

/** Runs of `[name, role, tokens]`, from the token `from` to the one before `to`. */
const runsBetween = (runs, from, to) => {
  const found = [];
  let at = 0;
  for (const { name, role, tokens } of runs) {
    const some = tokens.slice(Math.max(0, from - at), Math.max(0, to - at));
    if (some.length) found.push({ name, role, tokens: some });
    at += tokens.length;
  }
  return found;
};

const runElement = ({ name, role, tokens }) => {
  const element = make("div", `run ${role}`);
  const body = make("div", "text");
  body.append(...tokens.map(tokenOf));
  element.append(make("span", "role", visible(name)), body);
  return element;
};

export class Tokens {
  constructor() {
    this.holder = byId("tokens");
    this.legend = byId("legend");
    this.note = byId("tokens-note");
    this.latest = null;
  }

  async refresh(model, messages) {
    this.latest?.abort();
    if (!messages.length) {
      this.holder.replaceChildren(make("p", "soft", "Nothing yet: write something into a box."));
      this.legend.replaceChildren();
      this.note.textContent = "";
      return;
    }
    const asked = new AbortController();
    this.latest = asked;
    try {
      this.show(await postJson("playground/tokens", { model, messages }, asked.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.holder.replaceChildren();
      this.legend.replaceChildren();
      this.note.textContent = visible(error.message);
      this.note.classList.add("bad-text");
    }
  }

  show({ roles, runs, count, shown }) {
    this.note.classList.remove("bad-text");
    const first = shown < count ? `, of which the first ${shown.toLocaleString("en")} can be shown` : "";
    this.note.textContent = `${count.toLocaleString("en")} tokens${first}. `;
    const control = make("span", "token control", "control token");
    this.note.append(control, " only the template can write; one that somebody typed is ordinary text. ⏎ is a line feed.");
    this.legend.replaceChildren(...roles.map(({ name, role, count: many }) => {
      const item = make("li", `turn ${role}`);
      item.append(make("span", "role", visible(name)), ` ${many.toLocaleString("en")}`);
      return item;
    }));
    this.holder.replaceChildren(...runsBetween(runs, 0, MOST).map(runElement));
    this.more(runs, shown, MOST);
  }

  more(runs, count, from) {
    if (from >= count) return;
    const to = Math.min(count, from + MOST);
    const next = button(`Show ${(to - from).toLocaleString("en")} more of ${count.toLocaleString("en")} tokens`, "", () => {
      next.remove();
      this.holder.append(...runsBetween(runs, from, to).map(runElement));
      this.holder.focus();
      this.more(runs, count, to);
    });
    this.holder.append(next);
  }
}
