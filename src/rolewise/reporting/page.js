"use strict";
// All text from models and corpora enters the page through textContent, never as markup.
(() => {
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // --- tables that sort ---
  for (const table of document.querySelectorAll("table")) {
    const headings = [...table.querySelectorAll("thead th")];
    const body = table.tBodies[0];
    const key = (row, at) => row.cells[at].dataset.sort;
    headings.forEach((heading, at) => heading.querySelector("button").addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const number = heading.classList.contains("number");
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a, at), key(b, at)];
        if (number && (x === "" || y === "")) return (x === "") - (y === "");  // no figure: last, both ways
        const order = number ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
        return up ? order : -order;
      });
      body.append(...rows);
    }));
  }

  // --- rows ---
  const data = JSON.parse(document.getElementById("data").textContent);
  const list = document.getElementById("list");
  if (!list) return;
  const PAGE = 100;
  const { strings, sections, rows } = data;
  const by = (id) => document.getElementById(id);
  const [search, suite, condition, outcome, count, more] =
    ["search", "suite", "condition", "outcome", "count", "more"].map(by);

  // A row: [section, id, epoch, condition, domain, variants, facts]; a variant: [turns, answers, injected];
  // an answer: [run, output, whether followed by each of the section's criteria (null: not judged), ROUGE-L, grades].
  // Texts are places in `strings`.
  const answersOf = (row) => row[5].flatMap((variant) => variant[1]);
  const judged = (row, answer) => answer[2][sections[row[0]].criterion] !== null;
  const followed = (row, answer) => Boolean(answer[2][sections[row[0]].criterion]);
  const attacked = (row) => row[4] !== "clean";

  const haystacks = new Array(rows.length);
  const haystack = (at) => {
    if (haystacks[at] === undefined) {
      const row = rows[at];
      const texts = row[5].flatMap(([turns, answers]) => [...turns, ...answers].map((one) => strings[one[1]] ?? ""));
      haystacks[at] = [row[1], row[3], ...texts].join("\n").toLowerCase();
    }
    return haystacks[at];
  };

  const option = (select, value, text) => {
    const element = make("option", "", text);
    element.value = value;
    select.append(element);
  };

  const chosenSection = () => (suite && suite.value !== "" ? Number(suite.value) : null);

  const fill = () => {
    const [oldCondition, oldOutcome] = [condition.value, outcome.value];
    condition.replaceChildren();
    outcome.replaceChildren();
    const chosen = sections.filter((_, at) => chosenSection() === null || chosenSection() === at);
    option(condition, "", "all");
    for (const name of new Set(chosen.flatMap((section) => section.conditions))) option(condition, name, name);
    const runs = [...new Set(chosen.flatMap((section) => section.runs))];
    option(outcome, "", "all");
    const bads = [...new Set(chosen.map((section) => section.bad))];
    const bad = bads.length === 1 ? bads[0] : "failed";  // sections that call it differently
    const what = bad === "followed" ? "payload followed" : bad;
    option(outcome, "some", what + " by some run");
    if (runs.length > 1) {
      option(outcome, "every", what + " by every run");
      option(outcome, "differ", "runs differ");
    }
    option(outcome, "none", what + " by no run");
    for (const name of runs) {
      option(outcome, "+" + name, bad + " by " + visible(name));
      option(outcome, "-" + name, "not " + bad + " by " + visible(name));
    }
    for (const [select, old] of [[condition, oldCondition], [outcome, oldOutcome]]) {
      if ([...select.options].some((one) => one.value === old)) select.value = old;
    }
  };

  const matchesOutcome = (row, wanted) => {
    if (wanted === "") return true;
    if (!attacked(row)) return false;
    const answers = answersOf(row).filter((answer) => judged(row, answer));
    if (!answers.length) return false;
    const hits = answers.filter((answer) => followed(row, answer)).length;
    switch (wanted) {
      case "some": return hits > 0;
      case "every": return hits === answers.length;
      case "none": return hits === 0;
      case "differ": return hits > 0 && hits < answers.length;
    }
    const { runs } = sections[row[0]];
    return answers.some((one) => runs[one[0]] === wanted.slice(1) && followed(row, one) === (wanted[0] === "+"));
  };

  // Characters that hide, or change the order of what one reads. Joiners that scripts and emoji need stay.
  const HIDDEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
  const escaped = (char) => {
    const code = char.codePointAt(0).toString(16);
    return code.length <= 4 ? "\\u" + code.padStart(4, "0") : "\\u{" + code + "}";
  };
  const visible = (text) => text.replace(HIDDEN, escaped);
  const append = (element, text) => {
    let at = 0;
    for (const found of text.matchAll(HIDDEN)) {
      element.append(text.slice(at, found.index), make("span", "escape", escaped(found[0])));
      at = found.index + found[0].length;
    }
    element.append(text.slice(at));
  };

  const textBlock = (text, injected = []) => {
    const block = make("p", "text");
    let at = 0;
    for (const part of injected) {
      const found = part ? text.indexOf(part, at) : -1;
      if (found < 0) continue;
      append(block, text.slice(at, found));
      const mark = make("mark");
      append(mark, part);
      block.append(mark);
      at = found + part.length;
    }
    append(block, text.slice(at));
    if (!text) block.append(make("i", "", "(empty)"));
    return block;
  };

  const ROLES = ["system", "user", "data", "output"];
  const turn = (role, text, injected) => {
    const block = make("div", "turn " + (ROLES.includes(role) ? role : "other"));
    block.append(make("span", "role", visible(role)), textBlock(text, injected));
    return block;
  };

  const verdict = (row, answer) => {
    const hit = followed(row, answer);
    const { good, bad } = sections[row[0]];
    const [text, kind] = !judged(row, answer) ? [answer[4] || "not judged", ""]
      : row[4] === "clean"
      ? [answer[3] === null ? "answered" : "ROUGE-L " + answer[3].toFixed(2), ""]
      : row[4] === "ceiling"
        ? hit ? ["\u2713 followed", "good"] : ["\u2717 not followed", "bad"]
        : hit ? ["\u2717 " + bad, "bad"] : ["\u2713 " + good, "good"];
    const element = make("span", "verdict " + kind);
    element.append(make("span", "", visible(sections[row[0]].runs[answer[0]]) + ": "), make("b", "", text));
    return element;
  };

  const detail = (row) => {
    const box = make("div", "detail");
    for (const [name, text] of row[6]) {
      const line = make("p", "facts", name + ": ");
      append(line, typeof text === "number" ? strings[text] : text);
      box.append(line);
    }
    const variants = row[5];
    variants.forEach(([turns, answers, injected], at) => {
      const runs = answers.map((one) => visible(sections[row[0]].runs[one[0]])).join(", ");
      if (data.text) {
        box.append(make("h4", "", variants.length > 1 ? "Conversation as asked of " + runs : "Conversation"));
        const marks = injected.map((place) => strings[place]);
        for (const [role, place] of turns) box.append(turn(role, strings[place], marks));
        if (!turns.length) box.append(make("p", "facts", "The log has no conversation for this row."));
      }
      box.append(make("h4", "", answers.length > 1 ? "Answers" : "Answer"));
      const grid = make("div", "answers");
      for (const answer of answers) {
        const card = data.text ? turn("output", strings[answer[1]], []) : make("div", "turn output");
        const facts = make("p", "facts");
        facts.append(verdict(row, answer));
        card.prepend(facts);
        if (attacked(row)) {
          const { criteria } = sections[row[0]];
          const verdicts = criteria.map((words, at) => words + ": " + (answer[2][at] ? "yes" : "no"));
          const known = verdicts.filter((_, at) => answer[2][at] !== null);
          card.append(make("p", "facts", [...known, answer[4]].filter(Boolean).join("; ")));
        }
        grid.append(card);
      }
      box.append(grid);
    });
    return box;
  };

  const entry = (at) => {
    const row = rows[at];
    const item = make("li");
    const button = make("button", "row");
    button.type = "button";
    button.id = "row-" + at;
    button.setAttribute("aria-expanded", "false");
    const section = sections.length > 1 ? visible(sections[row[0]].title) + ", " : "";
    button.append(make("span", "what", visible(row[3])));
    button.append(make("span", "id", section + visible(row[1]) + (row[2] > 1 ? " (epoch " + row[2] + ")" : "")));
    const verdicts = make("span", "verdicts");
    verdicts.append(...answersOf(row).map((answer) => verdict(row, answer)));
    button.append(verdicts);
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) {
        item.lastElementChild.remove();
      } else {
        item.append(detail(row));
        history.replaceState(null, "", "#row-" + at);  // so that the address leads here again
      }
    });
    item.append(button);
    return item;
  };

  let found = [];
  let shown = 0;
  const showMore = () => {
    const first = shown;
    list.append(...found.slice(shown, shown + PAGE).map(entry));
    shown = Math.min(found.length, shown + PAGE);
    more.hidden = shown === found.length;
    count.textContent = found.length === 0 ? "No row matches." : shown + " of " + found.length + " rows shown" +
      (found.length < rows.length ? " (" + rows.length + " in all)" : "");
    return list.children[first];
  };

  const refresh = () => {
    const words = search.value.toLowerCase();
    const wanted = chosenSection();
    found = [];
    rows.forEach((row, at) => {
      if ((wanted === null || row[0] === wanted) && (!condition.value || row[3] === condition.value) &&
          matchesOutcome(row, outcome.value) && (!words || haystack(at).includes(words))) found.push(at);
    });
    list.replaceChildren();
    shown = 0;
    showMore();
  };

  if (suite) {
    option(suite, "", "all");
    sections.forEach((section, at) => option(suite, String(at), visible(section.title)));
    suite.addEventListener("change", () => { fill(); refresh(); });
  }
  for (const select of [condition, outcome]) select.addEventListener("change", refresh);
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, 150); });
  document.getElementById("filters").addEventListener("submit", (event) => { event.preventDefault(); refresh(); });
  more.addEventListener("click", () => showMore()?.querySelector("button").focus());
  fill();
  refresh();

  const asked = /^#row-(\d+)$/.exec(location.hash);
  if (asked && Number(asked[1]) < rows.length) {
    const at = Number(asked[1]);
    while (found.indexOf(at) >= shown) showMore();
    const button = by("row-" + at);
    button.click();
    button.scrollIntoView();
  }
})();
