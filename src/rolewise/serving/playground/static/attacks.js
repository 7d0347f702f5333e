// The library of attacks: choose one, see what it writes, insert it. The server makes the text, as rolewise attack does.

import { postJson } from "./api.js";
import { append, byId, debounced, make, option, visible } from "./text.js";

const MOST_SHOWN = 1500;  // characters of a stretch of the host text in a preview

const shownPart = ({ text, injected }) => {
  const element = make(injected ? "mark" : "span");
  const cut = !injected && text.length > MOST_SHOWN;
  append(element, cut ? `${text.slice(0, MOST_SHOWN / 2)}\n[…]\n${text.slice(-MOST_SHOWN / 2)}` : text);
  return element;
};

export class Library {
  /** `insert(box, text, done)` is called when an attack is taken. */
  constructor(boxes, model, insert) {
    this.boxes = boxes;
    this.model = model;
    this.insert = insert;
    this.dialog = byId("library");
    this.chosen = null;
    this.made = null;
    this.latest = null;
    this.preview = debounced(() => this.make(), () => 150);
  }

  show({ attacks, payloads }) {
    this.attacks = attacks;
    this.payloads = payloads;
    const list = byId("attack-list");
    const groups = new Map();
    for (const attack of attacks) {
      if (!groups.has(attack.group)) {
        const group = make("div", "group");
        group.append(make("p", "group-name", attack.group));
        groups.set(attack.group, group);
        list.append(group);
      }
      const label = make("label", "attack");
      const radio = make("input");
      radio.type = "radio";
      radio.name = "attack";
      radio.value = attack.name;
      radio.addEventListener("change", () => this.choose(attack));
      const words = make("span");
      words.append(make("b", "", attack.name), " ", make("span", "soft", attack.summary));
      label.append(radio, words);
      groups.get(attack.group).append(label);
      attack.radio = radio;
      attack.label = label;
    }
    payloads.forEach(({ name, text }) => option(byId("payload"), name, `${name}: ${text}`));
    option(byId("payload"), "", "own text");

    byId("attack-search").addEventListener("input", () => this.filter());
    byId("payload").addEventListener("change", () => this.fillPayload());
    for (const id of ["payload-text", "payload-witness"]) {
      byId(id).addEventListener("input", () => {
        byId("payload").value = "";
        this.preview();
      });
    }
    byId("attack-target").addEventListener("change", () => { this.offer(); this.preview(); });
    for (const id of ["attack-position", "replace"]) byId(id).addEventListener("change", this.preview);
    for (const id of ["attack-seed", "forged"]) byId(id).addEventListener("input", this.preview);
    byId("library-insert").addEventListener("click", () => this.take());
    for (const id of ["library-close", "library-cancel"]) byId(id).addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.target.matches("input"))) {
        event.preventDefault();
        event.stopPropagation();
        this.take();
      }
    });
    this.filter();
    this.choose(attacks[0]);
    this.fillPayload();
  }

  /** Open for a box, or for the last data. */
  open(box = this.boxes.data.at(-1)) {
    const target = byId("attack-target");
    target.replaceChildren();
    for (const one of this.boxes.all) {
      if (one.kind === "system" || (one.kind === "user" && !one.text)) continue;
      option(target, one.id, one.kind === "user" ? "User (following it is right there)" : one.name);
    }
    if (![...target.options].some((one) => one.value === box?.id)) box = this.boxes.data[0];
    if (!box) return;
    target.value = box.id;
    this.offer();
    this.dialog.showModal();
    (this.chosen.label.hidden ? byId("attack-search") : this.chosen.radio).focus();
    this.make();
  }

  get target() { return this.boxes.all.find((box) => box.id === byId("attack-target").value); }

  filter() {
    const words = byId("attack-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const attack of this.attacks) {
      const text = `${attack.name} ${attack.summary}`.toLowerCase();
      attack.label.hidden = !words.every((word) => text.includes(word));
      count += attack.label.hidden ? 0 : 1;
    }
    for (const group of document.querySelectorAll("#attack-list .group")) {
      group.hidden = !group.querySelector(".attack:not([hidden])");
    }
    byId("attack-count").textContent = count === this.attacks.length ? `${count} attacks` : `${count} of ${this.attacks.length} attacks`;
  }

  choose(attack) {
    this.chosen = attack;
    attack.radio.checked = true;
    byId("attack-summary").replaceChildren(make("b", "", attack.name), `: ${attack.summary}.`);
    const position = byId("attack-position");
    const before = position.value;
    position.replaceChildren();
    if (attack.positions.length) {
      option(position, "", attack.positions.join(" and "));
    } else {
      for (const [value, text] of [["", "end"], ["begin", "begin"], ["middle", "middle"]]) option(position, value, text);
      if ([...position.options].some((one) => one.value === before)) position.value = before;
    }
    position.disabled = attack.positions.length > 0;
    byId("forged-field").hidden = !attack.forges;
    if (this.dialog.open) this.preview();
  }

  offer() {
    byId("replace-field").hidden = this.target?.clean === null;
  }

  fillPayload() {
    const payload = this.payloads.find(({ name }) => name === byId("payload").value);
    if (payload) {
      byId("payload-text").value = payload.text;
      byId("payload-witness").value = payload.witness;
    } else {
      byId("payload-text").focus();
      byId("payload-text").select();
    }
    if (this.dialog.open) this.preview();
  }

  request() {
    const box = this.target;
    const instead = box.clean !== null && byId("replace").checked ? box.clean : box.text;
    const messages = this.boxes.messages(box);
    const target = this.boxes.place(box);
    messages[target].content = instead;
    const named = byId("payload").value;
    const body = { model: this.model(), messages, target, attack: this.chosen.name, seed: Number(byId("attack-seed").value) };
    if (byId("attack-position").value) body.position = byId("attack-position").value;
    if (this.chosen.forges) body.forged_answer = byId("forged").value;
    body.payload = named ? { name: named } : { text: byId("payload-text").value, witness: byId("payload-witness").value };
    return { box, body, instead };
  }

  /** Ask the server what the attack writes, and show it. */
  async make() {
    this.latest?.abort();
    const asked = new AbortController();
    this.latest = asked;
    this.made = null;
    const { box, body, instead } = this.request();
    const preview = byId("preview");
    try {
      const answer = await postJson("playground/attack", body, asked.signal);
      this.made = { ...answer, body, box, before: instead };
      preview.replaceChildren(...answer.parts.map(shownPart));
      byId("preview-error").textContent = "";
      byId("attack-command").textContent = visible(answer.command);
    } catch (error) {
      if (error.name === "AbortError") return;
      preview.replaceChildren();
      byId("attack-command").textContent = "";
      byId("preview-error").textContent = visible(error.message);
    }
  }

  async take() {
    this.preview.cancel();  // it would break off what is made now
    if (this.made === null || this.stale()) await this.make();
    if (this.made === null) return;
    const { box, text, before, positions, witness } = this.made;
    this.dialog.close();
    box.replace(text, `Inserted ${this.chosen.name} at the ${positions.join(" and ")}.`, before);
    box.area.focus();
    this.insert(witness);
  }

  /** Whether the form has changed since the preview was made. */
  stale() {
    return JSON.stringify(this.request().body) !== JSON.stringify(this.made.body);
  }
}
