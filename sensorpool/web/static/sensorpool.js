// What the pages do beyond their HTML: they stay fresh, keys move, and what ends a wait asks first.

const PERIOD = 10_000; // milliseconds between two looks
const main = () => document.getElementById("main");
const asks = () => document.getElementById("ask");
const has = (kinds) => document.activeElement?.matches(kinds) ?? false;
const isTyping = () => asks().open || has("input, select, textarea");

let isLooking = false;

async function refresh() {
  // an error stays until it was read; and a slow server is not asked again before it has answered
  if (isLooking || document.querySelector("[data-stays]") !== null) return;
  if (document.hidden || isTyping() || getSelection()?.type === "Range") return;
  isLooking = true;
  const opened = [...main().querySelectorAll("details")].map((each) => each.open);
  const place = rows().findIndex((row) => row.classList.contains("here"));
  const focused = focusable().indexOf(document.activeElement);
  try {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    const text = await answer.text();
    // what has ended, or asks for a login, is shown as well; a server in trouble is not
    if (answer.status >= 500 || isTyping()) return;
    const page = new DOMParser().parseFromString(text, "text/html");
    if (page.getElementById("main") === null) return;
    main().replaceChildren(...page.getElementById("main").childNodes);
    main().querySelectorAll("details").forEach((each, index) => (each.open = opened[index] ?? each.open));
    document.body.dataset.fresh = "1";
    focusable()[focused]?.focus({ preventScroll: true });
    if (place >= 0) rows()[place]?.classList.add("here");
  } catch {
    // the server is away: the page stays as it was, and the next look tries again
  } finally {
    isLooking = false;
  }
}

const focusable = () => [...main().querySelectorAll("a, button, summary")];
const rows = () => [...document.querySelectorAll("table.rows tbody tr")];

function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const here = all.findIndex((row) => row.classList.contains("here"));
  const next = Math.min(all.length - 1, Math.max(0, here + step));
  all[here]?.classList.remove("here");
  all[next].classList.add("here");
  all[next].scrollIntoView({ block: "nearest" });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping()) return;
  const page = document.querySelector(`header a[data-key="${CSS.escape(event.key)}"]`);
  if (page) page.click();
  else if (event.key === "/") document.querySelector("[data-filter]")?.focus();
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "Enter" && !has("a, button, summary")) document.querySelector("tr.here a")?.click();
  else return;
  event.preventDefault();
}

document.addEventListener("keydown", onKey);
// a dialog of our own: the browser shows none of its own inside another page
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.question) return;
  event.preventDefault();
  document.getElementById("question").textContent = form.dataset.question;
  asks().returnValue = "";
  asks().showModal();
  asks().addEventListener("close", () => asks().returnValue === "yes" && form.submit(), { once: true });
});
setInterval(refresh, PERIOD);
document.addEventListener("visibilitychange", refresh);
