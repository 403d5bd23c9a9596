// A page inside another one of this host follows its light or dark mode; alone it follows the system.
try {
  const classes = self === top ? [] : parent.document.documentElement.classList;
  for (const mode of ["light", "dark"]) if ([...classes].includes(mode)) document.documentElement.dataset.mode = mode;
} catch {
  // the page around this one is of another host
}
