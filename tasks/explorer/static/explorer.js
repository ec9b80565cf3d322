// What links and forms cannot do alone: the page works without it.
"use strict";

// Forms whose ticks are bounded: the button waits for enough of them, further boxes wait for one to be taken back.
function boundTicks(form) {
  const [fewest, most] = form.dataset.tick.split("-").map(Number);
  const boxes = () => [...form.elements].filter((one) => one.type === "checkbox");
  const button = form.querySelector("button[type=submit]");
  const update = () => {
    const ticked = boxes().filter((box) => box.checked).length;
    button.disabled = ticked < fewest;
    for (const box of boxes()) box.disabled = !box.checked && ticked >= most;
  };
  for (const box of boxes()) box.addEventListener("change", update);
  update();
}

// A slider asks for its step when it is let go; while it moves, its number does.
function slide(form) {
  const range = form.querySelector("input[type=range]");
  const output = form.querySelector("output");
  const steps = [...form.querySelectorAll("datalist option")].map((option) => Number(option.value));
  const nearest = () => steps.reduce((a, b) => (Math.abs(b - range.value) < Math.abs(a - range.value) ? b : a));
  range.addEventListener("input", () => { output.value = nearest(); });
  range.addEventListener("change", () => { range.value = nearest(); form.requestSubmit(); });
  for (const select of form.querySelectorAll("select")) select.addEventListener("change", () => form.requestSubmit());
}

// One token at a time can be reached by the keyboard; arrows move between them.
function walkTokens(block) {
  const tokens = [...block.querySelectorAll(".t")];
  const hint = document.querySelector("[data-hint]");
  if (!tokens.length) return;
  tokens[0].tabIndex = 0;
  const show = (token) => { hint.textContent = token.title; };
  block.addEventListener("pointerover", (event) => { if (event.target.closest(".t")) show(event.target.closest(".t")); });
  block.addEventListener("focusin", (event) => { if (event.target.closest(".t")) show(event.target.closest(".t")); });
  block.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = move && tokens[tokens.indexOf(event.target) + move];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

// A page that still grows is fetched again when the warehouse has a newer snapshot; ticks and open parts stay.
async function follow() {
  const answer = await fetch("/live");
  if (!answer.ok) return;
  const { snapshot } = await answer.json();
  if (String(snapshot) === document.body.dataset.live) return;
  const page = await fetch(location.href);
  if (!page.ok) return;
  const fresh = new DOMParser().parseFromString(await page.text(), "text/html");
  const now = document.querySelector("main");
  const ticked = new Set([...now.querySelectorAll("input:checked")].map((box) => box.name + "=" + box.value));
  const open = [...now.querySelectorAll("details")].map((part) => part.open);
  now.replaceChildren(...fresh.querySelector("main").childNodes);
  for (const box of now.querySelectorAll("input[type=checkbox]")) box.checked = ticked.has(box.name + "=" + box.value);
  [...now.querySelectorAll("details")].forEach((part, i) => { part.open = open[i] ?? false; });
  document.querySelector("#at").value = snapshot;
  if (fresh.body.dataset.live) document.body.dataset.live = fresh.body.dataset.live;
  else delete document.body.dataset.live;
  prepare(now);
}

function prepare(part) {
  part.querySelectorAll("form[data-tick]").forEach(boundTicks);
  part.querySelectorAll("form[data-slide]").forEach(slide);
  part.querySelectorAll("[data-tokens]").forEach(walkTokens);
  part.querySelectorAll("textarea[data-submit]").forEach((box) => box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) box.form.requestSubmit();
  }));
}

prepare(document);
setInterval(() => {
  const typing = document.activeElement && document.activeElement.matches("input:not([type=checkbox]), select, textarea");
  if (document.body.dataset.live && !document.hidden && !typing) follow().catch(() => {});
}, 2000);
