// The page of claims: a box and buttons above its lists that leave the claims with these words and this outcome.
const place = document.querySelector("#filter");
if (place) {
  const claims = [...place.parentElement.querySelectorAll("li")];
  const outcomes = ["confirmed", "reversed", "absent", "inconclusive", "no detectable difference", "false as printed"];
  const box = Object.assign(document.createElement("input"), { type: "search", placeholder: "Search by paper, table or page" });
  const choice = document.createElement("select");
  const count = document.createElement("output");
  box.setAttribute("aria-label", "Search the claims");
  choice.setAttribute("aria-label", "Outcome");
  for (const name of ["Any outcome", ...outcomes]) choice.add(new Option(name));
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/);
    let left = 0;
    for (const claim of claims) {
      const text = claim.textContent.toLowerCase();
      const found = [...claim.querySelectorAll("strong")].some((outcome) => outcome.textContent === choice.value);
      claim.hidden = !words.every((word) => text.includes(word)) || (choice.selectedIndex > 0 && !found);
      left += !claim.hidden;
    }
    count.textContent = `${left} of ${claims.length}`;
  };
  box.addEventListener("input", filter);
  choice.addEventListener("input", filter);
  place.append(box, choice, count);
  filter();
}
